// SPDX-License-Identifier: Apache-2.0
//
// Packets that the controller sends: where does each enter the pipeline?
//
//   TO_PORT       a listed non-IP frame, out of an interface (egress_l3_if) or
//                 a bare port (egress_port). Anything else is refused here:
//                 policy must not be stepped around through the CPU port.
//   LOCAL_ORIGIN  IP that this router made. With an egress interface its MAC
//                 addresses came with it; with none, routing finds both.
//   REINJECT      a packet that was punted goes on at the stage that punted it,
//                 with what the punt carried.

#ifndef SLUICE_PACKET_IO_P4
#define SLUICE_PACKET_IO_P4

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

    action local_origin_to_routing() {
        meta.entry = stage_t.ROUTING;
        meta.origin = origin_t.LOCAL;
    }

    action reinject() {
        meta.entry = hdr.packet_out.stage;
        meta.origin = hdr.packet_out.origin;
        meta.nexthop_id = hdr.packet_out.nexthop_id;
        meta.egress_l3_if = hdr.packet_out.egress_l3_if;
    }

    action refuse(drop_reason_t reason) {
        drop_packet(meta, reason);
    }

    // What is asked for, against what the packet is.
    table packet_out_kind {
        key = {
            hdr.packet_out.kind:         ternary;
            hdr.packet_out.stage:        ternary;
            hdr.packet_out.egress_l3_if: ternary;
            hdr.packet_out.egress_port:  ternary;
            meta.is_ip:                  ternary;
            meta.non_ip_reason:          ternary;
        }
        actions = {
            to_port;
            local_origin_to_interface;
            local_origin_to_routing;
            reinject;
            refuse;
        }
        const default_action = refuse(drop_reason_t.PACKET_OUT_INVALID);
        const entries = {
            (packet_out_kind_t.TO_PORT, _, _, _, _, punt_reason_t.NONE): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            (packet_out_kind_t.TO_PORT, _, _, _, 1, _): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            // A bare port must be one: neither the CPU's, nor the drop port, nor none at all.
            (packet_out_kind_t.TO_PORT, _, 0, 510 &&& 0xfffe, _, _): refuse(drop_reason_t.PACKET_OUT_INVALID);
            (packet_out_kind_t.TO_PORT, _, 0, 0 &&& 0xfe00, _, _): to_port();
            (packet_out_kind_t.TO_PORT, _, 0, _, _, _): refuse(drop_reason_t.PACKET_OUT_INVALID);
            (packet_out_kind_t.TO_PORT, _, _, _, _, _): to_port();
            (packet_out_kind_t.LOCAL_ORIGIN, _, 0, _, 1, _): local_origin_to_routing();
            (packet_out_kind_t.LOCAL_ORIGIN, _, _, _, 1, _): local_origin_to_interface();
            (packet_out_kind_t.LOCAL_ORIGIN, _, _, _, _, _): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            (packet_out_kind_t.REINJECT, _, _, _, 0, _): refuse(drop_reason_t.PACKET_OUT_NOT_ALLOWED);
            (packet_out_kind_t.REINJECT, stage_t.ROUTING, _, _, _, _): reinject();
            (packet_out_kind_t.REINJECT, stage_t.REWRITE, _, _, _, _): reinject();
        }
    }

    apply {
        if (hdr.packet_out.isValid()) {
            meta.ingress_port = (port_id_t)hdr.packet_out.ingress_port;
            meta.ingress_l3_if = hdr.packet_out.ingress_l3_if;
            meta.vrf = hdr.packet_out.vrf;
            packet_out_kind.apply();
            hdr.packet_out.setInvalid();
        }
    }
}

#endif
