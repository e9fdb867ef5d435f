// SPDX-License-Identifier: Apache-2.0
//
// Selects one of several weighted next hops by a hash of the flow (on v1model).

#ifndef SLUICE_MULTIPATH_P4
#define SLUICE_MULTIPATH_P4

control multipath(in headers_t hdr, inout metadata_t meta) {
    action_selector(HashAlgorithm.crc16, 65536, 16) nexthop_selector;
    bit<32> seed = 0;
    bit<32> ports = 0;
    bit<8>  protocol = 0;

    action set_hash_seed(bit<32> value) {
        seed = value;
    }

    // Routers along a path must not make the same choices. So the controller gives each
    // router its own seed, as the default action.
    table hash_seed {
        actions = {
            set_hash_seed;
        }
        default_action = set_hash_seed(0);
    }

    action set_group_nexthop(@refers_to(nexthop, nexthop_id) nexthop_id_t nexthop_id) {
        meta.nexthop_id = nexthop_id;
    }

    // If the group does not exist or has no live member, nexthop_id stays 0. No next
    // hop has this number.
    @max_group_size(MULTIPATH_GROUP_SIZE)
    table nexthop_group {
        key = {
            meta.group_id:  exact @name("group_id");
            meta.flow_hash: selector;
        }
        actions = {
            set_group_nexthop;
            @defaultonly NoAction;
        }
        implementation = nexthop_selector;
        size = 16384;
    }

    apply {
        hash_seed.apply();
        // Only first fragments have ports, and all fragments of a datagram must take the
        // same path. So the hash of a fragment includes neither ports nor protocol.
        if (meta.fragment == fragment_t.WHOLE) {
            protocol = meta.protocol;
            ports = meta.src_port ++ meta.dst_port;
        }
        if (hdr.ipv4.isValid()) {
            hash(meta.flow_hash, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, protocol, ports },
                 33w0x100000000);
        } else {
            hash(meta.flow_hash, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, hdr.ipv6.flow_label, 4w0, protocol, ports },
                 33w0x100000000);
        }
        // A CRC is linear: a seed in its input changes all hashes by the same XOR. Flows that
        // share a next hop on one router would then share one on the next router. An
        // addition is not linear, because it has carries.
        meta.flow_hash = meta.flow_hash + seed;
        nexthop_group.apply();
    }
}

#endif
