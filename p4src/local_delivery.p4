// SPDX-License-Identifier: Apache-2.0
//
// Sends packets for this router to the CPU. The punt reason selects their meter.
// Packets of link scope (groups, link-local addresses, neighbour discovery) are
// delivered or dropped at this stage, and never routed.

#ifndef SLUICE_LOCAL_DELIVERY_P4
#define SLUICE_LOCAL_DELIVERY_P4

// Sets is_local if the packet is for this router. Policy and delivery use the result.
control local_lookup(in headers_t hdr, inout metadata_t meta) {
    action deliver_local() {
        meta.is_local = 1;
    }

    // This router's addresses and multicast groups, by VRF. The controller writes
    // one entry for each address, and one for each range of link-local groups.
    table local_ipv4 {
        key = {
            meta.vrf:          exact @name("vrf");
            hdr.ipv4.dst_addr: lpm   @name("dst_addr");
        }
        actions = {
            deliver_local;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    table local_ipv6 {
        key = {
            meta.vrf:          exact @name("vrf");
            hdr.ipv6.dst_addr: lpm   @name("dst_addr");
        }
        actions = {
            deliver_local;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            local_ipv4.apply();
        } else if (hdr.ipv6.isValid()) {
            local_ipv6.apply();
        }
    }
}

control local_delivery(inout metadata_t meta) {
    action deliver(punt_reason_t reason) {
        punt_packet(meta, stage_t.LOCAL_DELIVERY, reason);
    }

    action refuse(drop_reason_t reason) {
        drop_packet(meta, reason);
    }

    action forward() {
    }

    // The first matching entry decides. dst_port holds the type and code of ICMPv6.
    // Neighbour discovery has types 133 to 137 (RFC 4861). It is valid only with hop limit
    // 255, which no forwarded packet has, and only in whole packets (RFC 6980).
    table delivery {
        key = {
            meta.is_local:       ternary;
            meta.is_group_frame: ternary;
            meta.is_group:       ternary;
            meta.is_link_local:  ternary;
            meta.ttl:            ternary;
            meta.protocol:       ternary;
            meta.src_port:       ternary;
            meta.dst_port:       ternary;
            meta.ether_type:     ternary;
            meta.fragment:       ternary;
        }
        actions = {
            deliver;
            refuse;
            forward;
        }
        const default_action = forward();
        const entries = {
            (_, 1, 0, _, _, _, _, _, _, _): refuse(drop_reason_t.NOT_FOR_ROUTER);
            (1, _, _, _, 255, PROTOCOL_ICMPV6, _, 0x8500 &&& 0xff00, ETHERTYPE_IPV6, fragment_t.WHOLE): deliver(punt_reason_t.NEIGHBOR_DISCOVERY);
            (1, _, _, _, 255, PROTOCOL_ICMPV6, _, 0x8600 &&& 0xfe00, ETHERTYPE_IPV6, fragment_t.WHOLE): deliver(punt_reason_t.NEIGHBOR_DISCOVERY);
            (1, _, _, _, 255, PROTOCOL_ICMPV6, _, 0x8800 &&& 0xfe00, ETHERTYPE_IPV6, fragment_t.WHOLE): deliver(punt_reason_t.NEIGHBOR_DISCOVERY);
            (_, _, _, _, _, PROTOCOL_ICMPV6, _, 0x8500 &&& 0xff00, ETHERTYPE_IPV6, _): refuse(drop_reason_t.ND_INVALID);
            (_, _, _, _, _, PROTOCOL_ICMPV6, _, 0x8600 &&& 0xfe00, ETHERTYPE_IPV6, _): refuse(drop_reason_t.ND_INVALID);
            (_, _, _, _, _, PROTOCOL_ICMPV6, _, 0x8800 &&& 0xfe00, ETHERTYPE_IPV6, _): refuse(drop_reason_t.ND_INVALID);
            (0, _, 1, _, _, _, _, _, _, _): refuse(drop_reason_t.MULTICAST);
            (1, _, _, _, _, PROTOCOL_OSPF, _, _, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_VRRP, _, _, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_TCP, PORT_BGP, _, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_TCP, _, PORT_BGP, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_TCP, PORT_LDP, _, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_TCP, _, PORT_LDP, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_UDP, _, PORT_LDP, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_UDP, _, PORT_BFD, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_UDP, _, PORT_BFD_MULTI, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_UDP, _, PORT_RIP, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_UDP, _, PORT_RIPNG, _, _): deliver(punt_reason_t.ROUTING_PROTOCOL);
            (1, _, _, _, _, PROTOCOL_UDP, _, PORT_IKE, _, _): deliver(punt_reason_t.IKE);
            (1, _, _, _, _, PROTOCOL_UDP, _, PORT_IKE_NAT_T, _, _): deliver(punt_reason_t.IKE);
            (1, _, _, _, _, _, _, _, _, _): deliver(punt_reason_t.LOCAL);
            (_, _, _, 1, _, _, _, _, _, _): refuse(drop_reason_t.LINK_LOCAL);
        }
    }

    apply {
        if (meta.fate == fate_t.CONTINUE
            && (meta.entry == stage_t.ADMIT || meta.entry == stage_t.INBOUND)) {
            if (meta.is_ip == 1) {
                delivery.apply();
            } else {
                punt_packet(meta, stage_t.LOCAL_DELIVERY, meta.non_ip_reason);
            }
        }
    }
}

#endif
