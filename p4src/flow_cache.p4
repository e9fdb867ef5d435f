// SPDX-License-Identifier: Apache-2.0
//
// Checks outgoing packets against SPD-O (RFC 4301, 5.1): the outbound list of
// the interface that routing chose. The cache holds the policy's verdict and
// never the next hop, so a route change invalidates no entry here.
//
// One kind of packet is not looked up: an ICMP error of this router about a packet
// that an SA carried. The error quotes plaintext. So the error leaves by the bundle of the
// quoted packet, or is dropped (RFC 4301, section 6).

#ifndef SLUICE_FLOW_CACHE_P4
#define SLUICE_FLOW_CACHE_P4

control flow_cache(in headers_t hdr, inout metadata_t meta) {
    policy_lookup(stage_t.OUTBOUND) outbound;

    action check_outbound(@refers_to(outbound.list_state, list_id) list_t list_id) {
        meta.outbound.list_id = list_id;
    }

    action no_outbound_policy() {
    }

    action not_bound() {
        drop_packet(meta, drop_reason_t.NO_POLICY_BINDING);
    }

    table outbound_binding {
        key = {
            meta.egress_l3_if: exact @name("l3_if");
        }
        actions = {
            check_outbound;
            no_outbound_policy;
            @defaultonly not_bound;
        }
        const default_action = not_bound();
        size = 1024;
    }

    action bypass() {
    }

    action protect() {
        meta.sa_bundle = meta.outbound.bundle;
    }

    action refuse(drop_reason_t reason) {
        drop_packet(meta, reason);
    }

    action ask(punt_reason_t reason) {
        punt_packet(meta, stage_t.OUTBOUND, reason);
    }

    table outbound_decision {
        key = {
            meta.outbound.outcome: ternary;
            meta.outbound.verdict: ternary;
            meta.outbound.bundle:  ternary;
            meta.fragment:         ternary;
        }
        actions = {
            bypass;
            protect;
            refuse;
            ask;
        }
        const default_action = refuse(drop_reason_t.OUTBOUND_DISCARD);
        const entries = {
            (outcome_t.MISS, _, _, fragment_t.WHOLE):     ask(punt_reason_t.OUTBOUND_MISS);
            (outcome_t.MISS, _, _, _):                    ask(punt_reason_t.FRAGMENT);
            (outcome_t.UNPARSED, _, _, _):                ask(punt_reason_t.EXTENSION_HEADERS);
            (outcome_t.SEGMENTS, _, _, _):                refuse(drop_reason_t.SEGMENTS_LEFT);
            (outcome_t.STALE, _, _, _):                   refuse(drop_reason_t.STALE_VERDICT);
            (outcome_t.NOT_READY, _, _, _):               refuse(drop_reason_t.LIST_NOT_READY);
            (outcome_t.VERDICT, verdict_t.BYPASS, _, _):  bypass();
            (outcome_t.VERDICT, verdict_t.PROTECT, 0, _): refuse(drop_reason_t.NO_SA);
            (outcome_t.VERDICT, verdict_t.PROTECT, _, _): protect();
        }
    }

    apply {
        if (meta.fate == fate_t.CONTINUE && meta.is_ip == 1 && meta.origin != origin_t.ENCRYPTED) {
            if (meta.origin == origin_t.LOCAL && meta.bundle != 0) {
                meta.sa_bundle = meta.bundle;
            } else {
                outbound_binding.apply();
                if (meta.fate == fate_t.CONTINUE && meta.outbound.list_id != 0) {
                    if (meta.origin == origin_t.LOCAL) {
                        meta.outbound.is_local = 1;
                    }
                    outbound.apply(hdr, meta, meta.outbound);
                    outbound_decision.apply();
                }
            }
            if (meta.fate == fate_t.CONTINUE && meta.sa_bundle != 0) {
                sa_bundle.apply(meta);
            }
        }
    }
}

#endif
