// SPDX-License-Identifier: Apache-2.0
//
// Decides at which stage each packet of the controller enters the pipeline.
//
//   TO_PORT       a listed non-IP frame, out of an interface (egress_l3_if) or
//                 a port without interface (egress_port). Any other frame is
//                 dropped, so that no packet bypasses policy by the CPU port.
//   LOCAL_ORIGIN  an IP packet of this router. If the header names an egress interface,
//                 the packet has its MAC addresses already. Otherwise routing finds the
//                 interface and the MAC addresses. If the header names a bundle, the
//                 packet leaves by the SA of that bundle.
//   REINJECT      a punted packet continues at the stage that punted it, with the
//                 fields of the punt.

#ifndef SLUICE_PACKET_IO_P4
#define SLUICE_PACKET_IO_P4

// Matches every value of origin_t. The values have two bits.
#define KNOWN_ORIGIN (origin_t)0 &&& (origin_t)0xfc

control packet_io(inout headers_t hdr, inout metadata_t meta) {
    action to_port() {
        meta.entry = stage_t.REWRITE;
        meta.keep_macs = 1;
        meta.origin = origin_t.LOCAL;
        meta.egress_port = (port_id_t)hdr.packet_out.egress_port;
        meta.egress_l3_if = hdr.packet_out.egress_l3_if;
    }

    action local_origin_to_interface() {
        meta.entry = stage_t.OUTBOUND;
        meta.keep_macs = 1;
        meta.origin = origin_t.LOCAL;
        meta.egress_l3_if = hdr.packet_out.egress_l3_if;
    }

    // If the packet-out names a bundle, the packet is an ICMP error about a packet that this
    // bundle decrypted (flow_cache.p4).
    action local_origin_to_routing() {
        meta.entry = stage_t.ROUTING;
        meta.origin = origin_t.LOCAL;
    }

    // Claims a verdict of the inbound list.
    action reinject_inbound() {
        meta.entry = stage_t.INBOUND;
        meta.origin = hdr.packet_out.origin;
        meta.inbound.claim_list_id = hdr.packet_out.list_id;
        meta.inbound.claim_generation = hdr.packet_out.generation;
        meta.inbound.claim_verdict = hdr.packet_out.verdict;
        meta.inbound.claim_bundle = hdr.packet_out.sa_bundle;
        meta.inbound.claim_rule = hdr.packet_out.rule;
    }

    // Claims the outbound list's verdict, if the packet-out has one. Also claims the verdict
    // by which the inbound list accepted the packet (`passed_as`): BYPASS if the packet
    // arrived in clear, PROTECT if a bundle carried it, NONE if this router sent it.
    action reinject(verdict_t passed_as) {
        meta.entry = hdr.packet_out.stage;
        meta.origin = hdr.packet_out.origin;
        meta.nexthop_id = hdr.packet_out.nexthop_id;
        meta.inbound.claim_list_id = hdr.packet_out.inbound_list_id;
        meta.inbound.claim_generation = hdr.packet_out.inbound_generation;
        meta.inbound.claim_verdict = passed_as;
        meta.inbound.claim_bundle = hdr.packet_out.bundle;
        meta.outbound.claim_list_id = hdr.packet_out.list_id;
        meta.outbound.claim_generation = hdr.packet_out.generation;
        meta.outbound.claim_verdict = hdr.packet_out.verdict;
        meta.outbound.claim_bundle = hdr.packet_out.sa_bundle;
        meta.outbound.claim_rule = hdr.packet_out.rule;
    }

    // Claims the outbound list's verdict for a packet that this router sends by a given
    // interface. The packet has its MAC addresses already.
    action reinject_local() {
        meta.entry = hdr.packet_out.stage;
        meta.origin = origin_t.LOCAL;
        meta.keep_macs = 1;
        meta.egress_l3_if = hdr.packet_out.egress_l3_if;
        meta.outbound.claim_list_id = hdr.packet_out.list_id;
        meta.outbound.claim_generation = hdr.packet_out.generation;
        meta.outbound.claim_verdict = hdr.packet_out.verdict;
        meta.outbound.claim_bundle = hdr.packet_out.sa_bundle;
        meta.outbound.claim_rule = hdr.packet_out.rule;
    }

    action refuse(drop_reason_t reason) {
        drop_packet(meta, reason);
    }

    // Checks the requested kind against the packet.
    table packet_out_kind {
        key = {
            hdr.packet_out.kind:         ternary;
            hdr.packet_out.stage:        ternary;
            hdr.packet_out.origin:       ternary;
            hdr.packet_out.bundle:       ternary;
            hdr.packet_out.egress_l3_if: ternary;
            hdr.packet_out.nexthop_id:   ternary;
            hdr.packet_out.egress_port:  ternary;
            meta.is_ip:                  ternary;
            meta.non_ip_reason:          ternary;
            meta.source_routed:          ternary;
        }
        actions = {
            to_port;
            local_origin_to_interface;
            local_origin_to_routing;
            reinject_inbound;
            reinject;
            reinject_local;
            refuse;
        }
        const default_action = refuse(drop_reason_t.PACKET_OUT_INVALID);
        const entries = {
            (packet_out_kind_t.TO_PORT, _, _, _, _, _, _, 1, _, _): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            (packet_out_kind_t.TO_PORT, _, _, _, _, _, _, _, punt_reason_t.NONE, _): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            // Without an interface, the port must be a real one: neither the CPU port (510) nor the
            // drop port (511), nor a number above.
            (packet_out_kind_t.TO_PORT, _, _, _, 0, _, 510 &&& 0xfffe, _, _, _): refuse(drop_reason_t.PACKET_OUT_INVALID);
            (packet_out_kind_t.TO_PORT, _, _, _, 0, _, 0 &&& 0xfe00, _, _, _): to_port();
            (packet_out_kind_t.TO_PORT, _, _, _, 0, _, _, _, _, _): refuse(drop_reason_t.PACKET_OUT_INVALID);
            (packet_out_kind_t.TO_PORT, _, _, _, _, _, _, _, _, _): to_port();
            (packet_out_kind_t.LOCAL_ORIGIN, _, _, _, _, _, _, 0, _, _): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            // With a source route, rules would not match the packet's final destination.
            (packet_out_kind_t.LOCAL_ORIGIN, _, _, _, _, _, _, _, _, 1): refuse(drop_reason_t.SOURCE_ROUTE);
            (packet_out_kind_t.LOCAL_ORIGIN, _, _, _, 0, _, _, _, _, _): local_origin_to_routing();
            (packet_out_kind_t.LOCAL_ORIGIN, _, _, 0, _, _, _, _, _, _): local_origin_to_interface();
            (packet_out_kind_t.LOCAL_ORIGIN, _, _, _, _, _, _, _, _, _): refuse(drop_reason_t.PACKET_OUT_INVALID);
            (packet_out_kind_t.REINJECT, _, _, _, _, _, _, 0, _, _): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            (packet_out_kind_t.REINJECT, stage_t.INBOUND, origin_t.LOCAL, _, _, _, _, _, _, _): refuse(drop_reason_t.PACKET_OUT_INVALID);
            (packet_out_kind_t.REINJECT, stage_t.INBOUND, origin_t.ENCRYPTED, _, _, _, _, _, _, _): refuse(drop_reason_t.PACKET_OUT_INVALID);
            (packet_out_kind_t.REINJECT, stage_t.INBOUND, KNOWN_ORIGIN, _, _, _, _, _, _, _): reinject_inbound();
            // A packet with an interface but without a next hop is a frame of the host stack.
            (packet_out_kind_t.REINJECT, stage_t.OUTBOUND, origin_t.LOCAL, _, 0, _, _, _, _, _): reinject(verdict_t.NONE);
            (packet_out_kind_t.REINJECT, stage_t.OUTBOUND, origin_t.LOCAL, _, _, 0, _, _, _, _): reinject_local();
            (packet_out_kind_t.REINJECT, stage_t.REWRITE, origin_t.LOCAL, _, 0, _, _, _, _, _): reinject(verdict_t.NONE);
            (packet_out_kind_t.REINJECT, stage_t.REWRITE, origin_t.LOCAL, _, _, 0, _, _, _, _): reinject_local();
            (packet_out_kind_t.REINJECT, stage_t.ROUTING, KNOWN_ORIGIN, 0, _, _, _, _, _, _): reinject(verdict_t.BYPASS);
            (packet_out_kind_t.REINJECT, stage_t.ROUTING, KNOWN_ORIGIN, _, _, _, _, _, _, _): reinject(verdict_t.PROTECT);
            (packet_out_kind_t.REINJECT, stage_t.OUTBOUND, KNOWN_ORIGIN, 0, _, _, _, _, _, _): reinject(verdict_t.BYPASS);
            (packet_out_kind_t.REINJECT, stage_t.OUTBOUND, KNOWN_ORIGIN, _, _, _, _, _, _, _): reinject(verdict_t.PROTECT);
            (packet_out_kind_t.REINJECT, stage_t.REWRITE, KNOWN_ORIGIN, 0, _, _, _, _, _, _): reinject(verdict_t.BYPASS);
            (packet_out_kind_t.REINJECT, stage_t.REWRITE, KNOWN_ORIGIN, _, _, _, _, _, _, _): reinject(verdict_t.PROTECT);
        }
    }

    apply {
        if (hdr.packet_out.isValid()) {
            meta.ingress_port = (port_id_t)hdr.packet_out.ingress_port;
            meta.ingress_l3_if = hdr.packet_out.ingress_l3_if;
            meta.vrf = hdr.packet_out.vrf;
            meta.bundle = hdr.packet_out.bundle;
            packet_out_kind.apply();
            hdr.packet_out.setInvalid();
            // A packet that enters at INBOUND skips l3_admit.p4, but local_delivery.p4 needs
            // is_group_frame.
            if (meta.entry == stage_t.INBOUND && meta.bundle == 0) {
                meta.is_group_frame = hdr.ethernet.dst_addr[40:40];
            }
        }
    }
}

#endif
