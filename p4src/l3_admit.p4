// SPDX-License-Identifier: Apache-2.0
//
// Admits packets that fulfil four conditions. They arrive on a known layer-3 interface.
// Their destination MAC address is this router's or a group's. Their headers are well
// formed. Their IP addresses may appear on a wire.

#ifndef SLUICE_L3_ADMIT_P4
#define SLUICE_L3_ADMIT_P4

// Recognizes ARP, LLDP and IS-IS. Apart from IP, only these protocols are admitted. A
// packet-out of kind TO_PORT may contain only these protocols.
control non_ip(in headers_t hdr, inout metadata_t meta) {
    action listed(punt_reason_t reason) {
        meta.non_ip_reason = reason;
    }

    table non_ip_protocol {
        key = {
            meta.ether_type:       ternary;
            hdr.ethernet.dst_addr: ternary;
        }
        actions = {
            listed;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (ETHERTYPE_ARP, _):  listed(punt_reason_t.ARP);
            (ETHERTYPE_LLDP, _): listed(punt_reason_t.LINK_PROTOCOL);
            // IS-IS uses IEEE 802.3 frames, whose length field is below 0x600, and three groups.
            (0x0000 &&& 0xfc00, 0x0180c2000014): listed(punt_reason_t.LINK_PROTOCOL);
            (0x0400 &&& 0xfe00, 0x0180c2000014): listed(punt_reason_t.LINK_PROTOCOL);
            (0x0000 &&& 0xfc00, 0x0180c2000015): listed(punt_reason_t.LINK_PROTOCOL);
            (0x0400 &&& 0xfe00, 0x0180c2000015): listed(punt_reason_t.LINK_PROTOCOL);
            (0x0000 &&& 0xfc00, 0x09002b000005): listed(punt_reason_t.LINK_PROTOCOL);
            (0x0400 &&& 0xfe00, 0x09002b000005): listed(punt_reason_t.LINK_PROTOCOL);
        }
    }

    apply {
        if (meta.is_ip == 0) {
            non_ip_protocol.apply();
        }
    }
}

control l3_admit(inout headers_t hdr, inout metadata_t meta) {
    DIRECT_COUNTER(l3_interface_counter);
    DIRECT_COUNTER(ipv4_martian_counter);
    DIRECT_COUNTER(ipv6_martian_counter);

    action set_l3_interface(l3_if_t l3_if, vrf_t vrf, role_t role) {
        meta.ingress_l3_if = l3_if;
        meta.vrf = vrf;
        meta.role = role;
        l3_interface_counter.count();
    }

    action no_l3_interface() {
        drop_packet(meta, drop_reason_t.NO_INTERFACE);
    }

    // Maps a port and a VLAN (0: untagged) to a layer-3 interface, its VRF and its role.
    table l3_interface {
        key = {
            meta.ingress_port: exact @name("ingress_port");
            meta.vlan_id:      exact @name("vlan_id");
        }
        actions = {
            set_l3_interface;
            @defaultonly no_l3_interface;
        }
        const default_action = no_l3_interface();
        counters = l3_interface_counter;
        size = 1024;
    }

    action admit_unicast() {
    }

    action not_for_router() {
        drop_packet(meta, drop_reason_t.NOT_FOR_ROUTER);
    }

    // The unicast MAC addresses of each interface.
    table router_mac {
        key = {
            meta.ingress_l3_if:    exact @name("l3_if");
            hdr.ethernet.dst_addr: exact @name("dst_mac");
        }
        actions = {
            admit_unicast;
            @defaultonly not_for_router;
        }
        const default_action = not_for_router();
        size = 2048;
    }

    action ipv4_martian_source_or_destination() {
        drop_packet(meta, drop_reason_t.MARTIAN);
        ipv4_martian_counter.count();
    }

    action ipv4_permit() {
        ipv4_martian_counter.count();
    }

    // Addresses that must not appear on a wire (RFC 1812, 5.3.7; RFC 6890).
    table ipv4_martian {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
        }
        actions = {
            ipv4_martian_source_or_destination;
            ipv4_permit;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = ipv4_martian_counter;
        const entries = {
            (0x00000000 &&& 0xff000000, _): ipv4_martian_source_or_destination();  // 0/8
            (0x7f000000 &&& 0xff000000, _): ipv4_martian_source_or_destination();  // 127/8
            (0xe0000000 &&& 0xe0000000, _): ipv4_martian_source_or_destination();  // 224/3
            (_, 0xffffffff):                ipv4_permit();                         // limited broadcast
            (_, 0x00000000 &&& 0xff000000): ipv4_martian_source_or_destination();
            (_, 0x7f000000 &&& 0xff000000): ipv4_martian_source_or_destination();
            (_, 0xf0000000 &&& 0xf0000000): ipv4_martian_source_or_destination();  // 240/4
        }
    }

    action ipv6_martian_source_or_destination() {
        drop_packet(meta, drop_reason_t.MARTIAN);
        ipv6_martian_counter.count();
    }

    action ipv6_permit() {
        ipv6_martian_counter.count();
    }

    // Addresses that must not appear on a wire (RFC 4291, 2.5 and 2.7; RFC 6890). The
    // unspecified address is a valid source only in packets to a link-local group, for
    // duplicate address detection (RFC 4862).
    table ipv6_martian {
        key = {
            hdr.ipv6.src_addr: ternary @name("src_addr");
            hdr.ipv6.dst_addr: ternary @name("dst_addr");
        }
        actions = {
            ipv6_martian_source_or_destination;
            ipv6_permit;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = ipv6_martian_counter;
        const entries = {
            (0, 0xff020000000000000000000000000000 &&& 0xffff0000000000000000000000000000): ipv6_permit();
            (0, _): ipv6_martian_source_or_destination();
            (1, _): ipv6_martian_source_or_destination();
            (0xff000000000000000000000000000000 &&& 0xff000000000000000000000000000000, _): ipv6_martian_source_or_destination();
            (0x00000000000000000000ffff00000000 &&& 0xffffffffffffffffffffffff00000000, _): ipv6_martian_source_or_destination();
            (_, 0): ipv6_martian_source_or_destination();
            (_, 1): ipv6_martian_source_or_destination();
            (_, 0xff000000000000000000000000000000 &&& 0xfffe0000000000000000000000000000): ipv6_martian_source_or_destination();
            (_, 0x00000000000000000000ffff00000000 &&& 0xffffffffffffffffffffffff00000000): ipv6_martian_source_or_destination();
        }
    }

    action refuse(drop_reason_t reason) {
        drop_packet(meta, reason);
    }

    action well_formed() {
    }

    // Drops packets whose headers contradict each other, each kind under its own reason.
    // The first matching entry decides.
    table header_check {
        key = {
            meta.malformed:        ternary;
            meta.fragment:         ternary;
            meta.checksum_error:   ternary;
            meta.frame_too_short:  ternary;
            meta.source_routed:    ternary;
            meta.overlaps_header:  ternary;
            meta.length_deficit:   ternary;
            meta.has_transport:    ternary;
            meta.transport_length: ternary;
        }
        actions = {
            refuse;
            well_formed;
        }
        const default_action = refuse(drop_reason_t.MALFORMED);   // length_deficit is not 0
        const entries = {
            (1, fragment_t.WHOLE, _, _, _, _, _, _, _): refuse(drop_reason_t.MALFORMED);
            (1, _, _, _, _, _, _, _, _): refuse(drop_reason_t.FRAGMENT_TOO_SHORT);
            (0, _, 1, _, _, _, _, _, _): refuse(drop_reason_t.BAD_CHECKSUM);
            (0, _, 0, 1, _, _, _, _, _): refuse(drop_reason_t.BAD_LENGTH);
            (0, _, 0, 0, 1, _, _, _, _): refuse(drop_reason_t.SOURCE_ROUTE);
            (0, _, 0, 0, 0, 1, _, _, _): refuse(drop_reason_t.FRAGMENT_OVERLAP);
            (0, _, 0, 0, 0, 0, 0, 0, _): well_formed();
            (0, fragment_t.WHOLE, 0, 0, 0, 0, 0, 1, 0 &&& 0xfff8): refuse(drop_reason_t.MALFORMED);
            (0, _, 0, 0, 0, 0, 0, 1, 0 &&& 0xfff8): refuse(drop_reason_t.FRAGMENT_TOO_SHORT);
            (0, _, 0, 0, 0, 0, 0, 1, _): well_formed();
        }
    }

    action own_source() {
        drop_packet(meta, drop_reason_t.MARTIAN);
    }

    // This router's own addresses. Received packets must not have them as source.
    table own_source_ipv4 {
        key = {
            meta.vrf:          exact @name("vrf");
            hdr.ipv4.src_addr: exact @name("src_addr");
        }
        actions = {
            own_source;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    table own_source_ipv6 {
        key = {
            meta.vrf:          exact @name("vrf");
            hdr.ipv6.src_addr: exact @name("src_addr");
        }
        actions = {
            own_source;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    engine_return() from_engine;

    apply {
        if (meta.fate == fate_t.CONTINUE && meta.entry == stage_t.ADMIT) {
            // A neighbour advertisement to a group. If another node has the address for which
            // this router runs duplicate address detection, the node answers from that
            // address (RFC 4862, 5.4.4).
            bool answers_duplicate_detection = meta.is_group == 1 && meta.ttl == 255
                && meta.protocol == PROTOCOL_ICMPV6 && meta.dst_port[15:8] == 136;

            l3_interface.apply();
            if (meta.fate == fate_t.CONTINUE) {
                if (meta.role == role_t.ENGINE || hdr.shim.isValid()) {
                    from_engine.apply(hdr, meta);
                } else if (!hdr.ethernet.isValid()) {
                    drop_packet(meta, drop_reason_t.MALFORMED);
                } else if (hdr.ethernet.dst_addr[40:40] == 1) {
                    meta.is_group_frame = 1;
                } else {
                    router_mac.apply();
                }
            }
            if (meta.fate == fate_t.CONTINUE) {
                if (meta.is_ip == 1 || meta.malformed == 1) {
                    header_check.apply();
                } else if (meta.ether_type == ETHERTYPE_SHIM) {
                    drop_packet(meta, drop_reason_t.FORGED_SHIM);
                } else if (meta.non_ip_reason == punt_reason_t.NONE) {
                    drop_packet(meta, drop_reason_t.UNLISTED_PROTOCOL);
                }
            }
            // Encrypted packets from the engine have this router's own address as outer source.
            if (meta.fate == fate_t.CONTINUE) {
                if (hdr.ipv4.isValid()) {
                    ipv4_martian.apply();
                    if (meta.fate == fate_t.CONTINUE && meta.origin != origin_t.ENCRYPTED) {
                        own_source_ipv4.apply();
                    }
                } else if (hdr.ipv6.isValid()) {
                    ipv6_martian.apply();
                    if (meta.fate == fate_t.CONTINUE && meta.origin != origin_t.ENCRYPTED
                        && !answers_duplicate_detection) {
                        own_source_ipv6.apply();
                    }
                }
            }
        }
    }
}

#endif
