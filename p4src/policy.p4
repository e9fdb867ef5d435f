// SPDX-License-Identifier: Apache-2.0
//
// Looks a packet up in one list of an SPD (RFC 4301, 4.4.1). The stages INBOUND and
// OUTBOUND have one instance each. Two tiers of tables can hold verdicts of the list:
//
//   flows   a cache of verdicts that the controller found by searching the list. The key
//           holds every field that a rule can match. So the result of an ordered search
//           can be cached by exact match.
//   rules   the first rules of the list, or all of them, in order. They are looked up for
//           whole, well-formed packets without a flow. A list without a rule set has none.
//
// A packet that finds its verdict in neither tier goes to the CPU.
//
// A flow has the epoch in which it was installed, and is valid only while its list has
// that epoch. So one write to list_state retires all flows of a list. The same write names
// the list's rule set, whose entries were written before. A list without an epoch gives no
// verdict.
//
// A fragment matches the rule that its datagram matches (RFC 4301, section 7). The verdict
// of a fragment is cached only if all rules that the fragment could match agree. Other
// fragments go to the CPU, which finds their datagram by the identification field.

#ifndef SLUICE_POLICY_P4
#define SLUICE_POLICY_P4

control policy_lookup(in headers_t hdr, in metadata_t meta, inout policy_t policy)(stage_t own_stage) {
    INDEXED_COUNTER(rule_hit_counter, rule_t, RULES);     // verdicts that the tables gave
    INDEXED_COUNTER(rule_claim_counter, rule_t, RULES);   // verdicts that the CPU found
    DIRECT_COUNTER(ipv4_flow_counter);
    DIRECT_COUNTER(ipv6_flow_counter);

    action set_list(epoch_t epoch, generation_t generation, rule_set_t rule_set) {
        policy.epoch = epoch;
        policy.generation = generation;
        policy.rule_set = rule_set;
    }

    table list_state {
        key = {
            policy.list_id: exact @name("list_id");
        }
        actions = {
            set_list;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    action set_ipv4_flow(epoch_t epoch, rule_t rule, verdict_t verdict, bundle_t sa_bundle) {
        policy.flow_epoch = epoch;
        policy.rule = rule;
        policy.verdict = verdict;
        policy.bundle = sa_bundle;
        ipv4_flow_counter.count();
    }

    action set_ipv6_flow(epoch_t epoch, rule_t rule, verdict_t verdict, bundle_t sa_bundle) {
        policy.flow_epoch = epoch;
        policy.rule = rule;
        policy.verdict = verdict;
        policy.bundle = sa_bundle;
        ipv6_flow_counter.count();
    }

    table ipv4_flow {
        key = {
            policy.list_id:     exact @name("list_id");
            meta.fragment:      exact @name("fragment");
            policy.is_local:    exact @name("is_local");
            policy.carrier:     exact @name("bundle");
            hdr.ipv4.src_addr:  exact @name("src_addr");
            hdr.ipv4.dst_addr:  exact @name("dst_addr");
            meta.protocol:      exact @name("protocol");
            meta.src_port:      exact @name("src_port");
            meta.dst_port:      exact @name("dst_port");
        }
        actions = {
            set_ipv4_flow;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = ipv4_flow_counter;
        IDLE_TIMEOUT
        size = IPV4_FLOWS;
    }

    table ipv6_flow {
        key = {
            policy.list_id:     exact @name("list_id");
            meta.fragment:      exact @name("fragment");
            policy.is_local:    exact @name("is_local");
            policy.carrier:     exact @name("bundle");
            hdr.ipv6.src_addr:  exact @name("src_addr");
            hdr.ipv6.dst_addr:  exact @name("dst_addr");
            meta.protocol:      exact @name("protocol");
            meta.src_port:      exact @name("src_port");
            meta.dst_port:      exact @name("dst_port");
        }
        actions = {
            set_ipv6_flow;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = ipv6_flow_counter;
        IDLE_TIMEOUT
        size = IPV6_FLOWS;
    }

    action set_rule(rule_t rule, verdict_t verdict, bundle_t sa_bundle) {
        policy.outcome = outcome_t.VERDICT;
        policy.rule = rule;
        policy.verdict = verdict;
        policy.bundle = sa_bundle;
    }

    // The CPU decides about the packet, although later entries may match it.
    action leave_to_cpu() {
    }

    // The rules of all rule sets. Of the entries of one set that match, the one with the
    // highest priority is the first rule of the list that matches.
    table ipv4_rule {
        key = {
            policy.rule_set:    exact   @name("rule_set");
            policy.is_local:    ternary @name("is_local");
            hdr.ipv4.src_addr:  ternary @name("src_addr");
            hdr.ipv4.dst_addr:  ternary @name("dst_addr");
            meta.protocol:      ternary @name("protocol");
            meta.src_port:      range   @name("src_port");
            meta.dst_port:      range   @name("dst_port");
        }
        actions = {
            set_rule;
            leave_to_cpu;
        }
        const default_action = leave_to_cpu();
        size = IPV4_RULES;
    }

    table ipv6_rule {
        key = {
            policy.rule_set:    exact   @name("rule_set");
            policy.is_local:    ternary @name("is_local");
            hdr.ipv6.src_addr:  ternary @name("src_addr");
            hdr.ipv6.dst_addr:  ternary @name("dst_addr");
            meta.protocol:      ternary @name("protocol");
            meta.src_port:      range   @name("src_port");
            meta.dst_port:      range   @name("dst_port");
        }
        actions = {
            set_rule;
            leave_to_cpu;
        }
        const default_action = leave_to_cpu();
        size = IPV6_RULES;
    }

    apply {
        list_state.apply();
        if (policy.epoch == 0) {
            policy.outcome = outcome_t.NOT_READY;
        } else if (meta.has_segments_left == 1) {
            policy.outcome = outcome_t.SEGMENTS;
        } else if (policy.claim_list_id == policy.list_id) {
            if (policy.claim_generation == policy.generation) {
                policy.outcome = outcome_t.VERDICT;
                policy.verdict = policy.claim_verdict;
                policy.bundle = policy.claim_bundle;
                policy.rule = policy.claim_rule;
                // Counts a claim only at the stage where the packet enters. The other stage
                // counted its verdict before the punt.
                if (meta.entry == own_stage) {
                    rule_claim_counter.count(policy.rule);
                }
            } else {
                policy.outcome = outcome_t.STALE;
            }
        } else if (meta.chain_too_deep == 1 || meta.options_unparsed == 1) {
            policy.outcome = outcome_t.UNPARSED;
        } else {
            if (hdr.ipv4.isValid()) {
                ipv4_flow.apply();
            } else {
                ipv6_flow.apply();
            }
            if (policy.flow_epoch == policy.epoch) {
                policy.outcome = outcome_t.VERDICT;
            } else if (policy.rule_set != 0 && meta.fragment == fragment_t.WHOLE
                       && meta.malformed == 0 && meta.length_deficit == 0
                       && (meta.has_transport == 0 || (meta.transport_length & 0xfff8) != 0)) {
                // The last line's fields are those of header_check in l3_admit.p4, which this
                // router's own packets do not pass. Ports that were not parsed match no rule.
                if (hdr.ipv4.isValid()) {
                    ipv4_rule.apply();
                } else {
                    ipv6_rule.apply();
                }
            }
            if (policy.outcome == outcome_t.VERDICT) {
                rule_hit_counter.count(policy.rule);
            }
        }
    }
}

#endif
