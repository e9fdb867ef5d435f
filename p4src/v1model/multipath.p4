// SPDX-License-Identifier: Apache-2.0
//
// v1model: one of several weighted next hops, by a hash over the flow.

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

    // Routers in a row must not choose alike: each sets a seed of its own as the
    // default action.
    table hash_seed {
        actions = {
            set_hash_seed;
        }
        default_action = set_hash_seed(0);
    }

    action set_group_nexthop(@refers_to(nexthop, nexthop_id) nexthop_id_t nexthop_id) {
        meta.nexthop_id = nexthop_id;
    }

    // A group that does not exist, or has no live member, leaves the next hop at
    // 0, which no next hop is.
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
        // Only the first fragment carries ports, and all fragments must take one
        // path, so fragments are hashed by their addresses only.
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
        // A CRC is linear: a seed among its input would turn all choices alike.
        // The carries of a sum do not.
        meta.flow_hash = meta.flow_hash + seed;
        nexthop_group.apply();
    }
}

#endif
