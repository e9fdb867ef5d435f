// SPDX-License-Identifier: Apache-2.0
//
// Drops a packet under a reason, or punts it with the fields that the controller needs.
// Each punt reason has a meter. For some drop reasons a copy of the dropped packet is
// punted too. Every drop is counted.

#ifndef SLUICE_PUNT_P4
#define SLUICE_PUNT_P4

control punt(inout headers_t hdr, inout metadata_t meta) {
    INDEXED_COUNTER(punt_counter, bit<8>, PUNT_REASONS);
    INDEXED_COUNTER(punt_drop_counter, bit<8>, PUNT_REASONS);
    INDEXED_COUNTER(drop_counter, bit<8>, DROP_REASONS);

    punt_policer() policer;

    action copy_to_cpu(punt_reason_t reason) {
        meta.fate = fate_t.PUNT;
        meta.punt_reason = reason;
    }

    // The drop reasons that the CPU gets a copy of the packet for: those that the audit log
    // records (RFC 4301, section 5.2), and NO_SA, by which an IKE daemon is asked for an SA.
    // Each purpose has a reason of its own, and so a meter of its own.
    table copied_drop {
        key = {
            meta.drop_reason: exact @name("drop_reason");
        }
        actions = {
            copy_to_cpu;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = DROP_REASONS;
    }

    apply {
        drop_reason_t counted = meta.drop_reason;
        if (meta.fate == fate_t.DROP) {
            copied_drop.apply();
        }
        if (meta.fate == fate_t.PUNT) {
            policer.apply(meta);
            if (meta.fate == fate_t.PUNT) {
                punt_counter.count((bit<8>)meta.punt_reason);
                meta.egress_port = CPU_PORT;
                hdr.packet_in.setValid();
                hdr.packet_in.ingress_port = (bit<16>)meta.ingress_port;
                hdr.packet_in.ingress_l3_if = meta.ingress_l3_if;
                hdr.packet_in.vrf = meta.vrf;
                hdr.packet_in.egress_l3_if = meta.egress_l3_if;
                hdr.packet_in.nexthop_id = meta.nexthop_id;
                hdr.packet_in.reason = meta.punt_reason;
                hdr.packet_in.stage = meta.stage;
                hdr.packet_in.origin = meta.origin;
                hdr.packet_in.drop_reason = counted;
                hdr.packet_in.is_local = (bit<8>)meta.inbound.is_local;
                hdr.packet_in.bundle = meta.bundle;
                hdr.packet_in.verdict = verdict_t.NONE;
                hdr.packet_in.sa_bundle = 0;
                hdr.packet_in.rule = 0;
                if (meta.outbound.outcome == outcome_t.VERDICT) {
                    hdr.packet_in.verdict = meta.outbound.verdict;
                    hdr.packet_in.sa_bundle = meta.outbound.bundle;
                    hdr.packet_in.rule = meta.outbound.rule;
                } else if (counted == drop_reason_t.INBOUND_CLEARTEXT || counted == drop_reason_t.INBOUND_WRONG_SA) {
                    hdr.packet_in.rule = meta.inbound.rule;
                }
                if (meta.stage == stage_t.INBOUND) {
                    hdr.packet_in.list_id = meta.inbound.list_id;
                    hdr.packet_in.generation = meta.inbound.generation;
                    hdr.packet_in.inbound_list_id = 0;
                    hdr.packet_in.inbound_generation = 0;
                } else {
                    hdr.packet_in.list_id = meta.outbound.list_id;
                    hdr.packet_in.generation = meta.outbound.generation;
                    hdr.packet_in.inbound_list_id = meta.inbound.list_id;
                    hdr.packet_in.inbound_generation = meta.inbound.generation;
                }
            } else {
                punt_drop_counter.count((bit<8>)meta.punt_reason);
                if (counted == drop_reason_t.NONE) {
                    counted = meta.drop_reason;
                }
            }
        }
        if (counted != drop_reason_t.NONE) {
            drop_counter.count((bit<8>)counted);
        }
    }
}

#endif
