// SPDX-License-Identifier: Apache-2.0
//
// Checks whether a packet can be sent. A packet without an existing egress interface is
// dropped. A packet is punted unchanged if its TTL is 0 or 1, if it exceeds the MTU
// together with the overhead of protection, or if the neighbour's MAC address is unknown.
// (A packet that goes to an engine needs no neighbour.) The controller sends an ICMP
// error, fragments the packet or resolves the neighbour. Re-injection is at REWRITE.

#ifndef SLUICE_EXCEPTIONS_P4
#define SLUICE_EXCEPTIONS_P4

control exceptions(in headers_t hdr, inout metadata_t meta) {
    action set_egress(port_id_t port, vlan_id_t vlan_id, mac_addr_t src_mac, bit<16> mtu) {
        meta.egress_port = port;
        meta.egress_vlan_id = vlan_id;
        meta.egress_mac = src_mac;
        meta.mtu = mtu;
    }

    action no_egress_interface() {
        drop_packet(meta, drop_reason_t.NO_EGRESS_INTERFACE);
    }

    // Maps a layer-3 interface to its port, VLAN tag (0: none), MAC address, and MTU
    // in bytes of IP packet.
    table egress_interface {
        key = {
            meta.egress_l3_if: exact @name("l3_if");
        }
        actions = {
            set_egress;
            @defaultonly no_egress_interface;
        }
        const default_action = no_egress_interface();
        size = 1024;
    }

    action punt(punt_reason_t reason) {
        punt_packet(meta, stage_t.REWRITE, reason);
    }

    action leave() {
    }

    // The first matching entry decides. Packets made by this router have not been
    // forwarded yet, so their TTL is not checked.
    table exception {
        key = {
            meta.origin:              ternary;
            meta.ttl:                 ternary;
            meta.mtu_excess:          ternary;
            meta.path_mtu_excess:     ternary;
            meta.neighbor_unresolved: ternary;
        }
        actions = {
            punt;
            leave;
        }
        const default_action = punt(punt_reason_t.MTU_EXCEEDED);
        const entries = {
            (origin_t.TRANSIT,   0 &&& 0xfe, _, _, _): punt(punt_reason_t.TTL_EXCEEDED);
            (origin_t.DECRYPTED, 0 &&& 0xfe, _, _, _): punt(punt_reason_t.TTL_EXCEEDED);
            (_, _, 0, 0, 0): leave();
            (_, _, 0, 0, 1): punt(punt_reason_t.NEIGHBOR_UNRESOLVED);
        }
    }

    apply {
        if (meta.fate == fate_t.CONTINUE) {
            // A packet-out to a port without interface has egress_l3_if 0.
            if (meta.egress_l3_if != 0 || meta.is_ip == 1) {
                egress_interface.apply();
            }
            if (meta.fate == fate_t.CONTINUE && meta.is_ip == 1) {
                if (meta.sa_bundle != 0) {
                    meta.path_mtu_excess = meta.outer_length |-| meta.path_mtu;
                    meta.neighbor_unresolved = 0;
                }
                meta.mtu_excess = meta.outer_length |-| meta.mtu;
                exception.apply();
            }
        }
    }
}

#endif
