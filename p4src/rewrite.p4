// SPDX-License-Identifier: Apache-2.0
//
// Sets the MAC addresses, VLAN tag, TTL and IPv4 checksum of a packet that leaves.

#ifndef SLUICE_REWRITE_P4
#define SLUICE_REWRITE_P4

control rewrite(inout headers_t hdr, inout metadata_t meta) {
    INDEXED_COUNTER(egress_interface_counter, l3_if_t, L3_INTERFACES);

    action decrement_ttl(bit<16> checksum_difference) {
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv4.checksum = hdr.ipv4.checksum + checksum_difference;
    }

    // RFC 1624: decrementing the TTL adds 0x0100 to the checksum, in one's-complement
    // arithmetic. The result must not be 0xffff. So from 0xfeff on, the end-around carry
    // is added: 0xfeff becomes 0x0000.
    table ipv4_hop {
        key = {
            hdr.ipv4.checksum: ternary;
        }
        actions = {
            decrement_ttl;
        }
        const default_action = decrement_ttl(0x0100);
        const entries = {
            (0xff00 &&& 0xff00): decrement_ttl(0x0101);
            (0xfeff):            decrement_ttl(0x0101);
        }
    }

    apply {
        if (meta.fate == fate_t.CONTINUE) {
            if (meta.keep_macs == 0 && meta.shim_kind == shim_kind_t.NONE) {
                hdr.ethernet.src_addr = meta.egress_mac;
                hdr.ethernet.dst_addr = meta.neighbor_mac;
            }

            // Decrements the TTL of forwarded packets only. Packets that this router or an engine
            // made keep their TTL.
            if (meta.origin == origin_t.TRANSIT || meta.origin == origin_t.DECRYPTED) {
                if (hdr.ipv4.isValid()) {
                    ipv4_hop.apply();
                } else if (hdr.ipv6.isValid()) {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            }

            if (meta.shim_kind != shim_kind_t.NONE) {
                // to_engine (sa_bundle.p4) removes the VLAN tag.
            } else if (meta.egress_vlan_id != 0) {
                if (!hdr.vlan.isValid()) {
                    hdr.vlan.setValid();
                    hdr.vlan.pcp = 0;
                    hdr.vlan.dei = 0;
                    hdr.vlan.ether_type = hdr.ethernet.ether_type;
                    hdr.ethernet.ether_type = ETHERTYPE_VLAN;
                }
                hdr.vlan.vlan_id = meta.egress_vlan_id;
            } else if (hdr.vlan.isValid() && meta.egress_l3_if != 0) {
                hdr.ethernet.ether_type = hdr.vlan.ether_type;
                hdr.vlan.setInvalid();
            }

            if (meta.egress_l3_if != 0 && meta.shim_kind == shim_kind_t.NONE) {
                egress_interface_counter.count(meta.egress_l3_if);
            }
        }
    }
}

#endif
