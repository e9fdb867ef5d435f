// SPDX-License-Identifier: Apache-2.0
//
// Selects the next hop of a packet.
//
//   ipv4_fib, ipv6_fib --+------------------------> nexthop --> interface,
//   (vrf, prefix)        \-> nexthop_group (hash) -/            neighbour MAC
//
// A route with a single next hop skips the group table, so multipath does not
// slow such routes down. Routes share next hops and groups. So a new MAC address
// of a neighbour needs only one write.

#ifndef SLUICE_ROUTING_P4
#define SLUICE_ROUTING_P4

control fib(in headers_t hdr, inout metadata_t meta) {
    action set_nexthop(@refers_to(nexthop, nexthop_id) nexthop_id_t nexthop_id) {
        meta.nexthop_id = nexthop_id;
    }

    action set_nexthop_group(@refers_to(nexthop_group, group_id) group_id_t group_id) {
        meta.group_id = group_id;
    }

    // Drops without an ICMP error, like "ip route add blackhole".
    action blackhole() {
        drop_packet(meta, drop_reason_t.BLACKHOLE);
    }

    // Punts, because the controller sends an ICMP error to the sender.
    action punt_route(punt_reason_t reason) {
        punt_packet(meta, stage_t.ROUTING, reason);
    }

    table ipv4_fib {
        key = {
            meta.vrf:          exact @name("vrf");
            hdr.ipv4.dst_addr: lpm   @name("dst_addr");
        }
        actions = {
            set_nexthop;
            set_nexthop_group;
            blackhole;
            punt_route;
        }
        const default_action = punt_route(punt_reason_t.NO_ROUTE);
        size = IPV4_FIB_SIZE;
    }

    table ipv6_fib {
        key = {
            meta.vrf:          exact @name("vrf");
            hdr.ipv6.dst_addr: lpm   @name("dst_addr");
        }
        actions = {
            set_nexthop;
            set_nexthop_group;
            blackhole;
            punt_route;
        }
        const default_action = punt_route(punt_reason_t.NO_ROUTE);
        size = IPV6_FIB_SIZE;
    }

    apply {
        if (meta.options_unparsed == 1 && meta.entry == stage_t.ADMIT) {
            // The options may contain a source route. The controller checks the options, and
            // re-injects the packet at this stage.
            punt_packet(meta, stage_t.ROUTING, punt_reason_t.IP_OPTIONS);
        } else if (hdr.ipv4.isValid()) {
            ipv4_fib.apply();
        } else if (hdr.ipv6.isValid()) {
            ipv6_fib.apply();
        }
    }
}

control nexthop_resolution(inout metadata_t meta) {
    DIRECT_COUNTER(nexthop_counter);

    action set_neighbor(@refers_to(egress_interface, l3_if) l3_if_t l3_if, mac_addr_t dst_mac) {
        meta.egress_l3_if = l3_if;
        meta.neighbor_mac = dst_mac;
        nexthop_counter.count();
    }

    // The interface is known, but not the neighbour's MAC address. The packet passes
    // outbound policy before it is punted for the address.
    action resolve_neighbor(@refers_to(egress_interface, l3_if) l3_if_t l3_if) {
        meta.egress_l3_if = l3_if;
        meta.neighbor_unresolved = 1;
        nexthop_counter.count();
    }

    action discard_nexthop() {
        drop_packet(meta, drop_reason_t.NEXTHOP_DISCARD);
        nexthop_counter.count();
    }

    action no_nexthop() {
        drop_packet(meta, drop_reason_t.NO_NEXTHOP);
    }

    table nexthop {
        key = {
            meta.nexthop_id: exact @name("nexthop_id");
        }
        actions = {
            set_neighbor;
            resolve_neighbor;
            discard_nexthop;
            @defaultonly no_nexthop;
        }
        const default_action = no_nexthop();
        counters = nexthop_counter;
        size = 65536;
    }

    apply {
        nexthop.apply();
    }
}

control routing(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.fate == fate_t.CONTINUE && meta.keep_macs == 0) {
            if (meta.entry != stage_t.REWRITE) {
                fib.apply(hdr, meta);
                if (meta.fate == fate_t.CONTINUE && meta.group_id != 0) {
                    multipath.apply(hdr, meta);
                }
            }
            if (meta.fate == fate_t.CONTINUE) {
                nexthop_resolution.apply(meta);
            }
        }
    }
}

#endif
