// SPDX-License-Identifier: Apache-2.0
//
// Tests action selectors and action profiles: members, weighted groups, watch ports and one-shot groups.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  key;
    bit<16> entropy;
    bit<8>  result;
}

struct headers_t {
    h_t h;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action set(bit<8> value) { hdr.h.result = value; }

    action_selector(HashAlgorithm.identity, 16, 16) members;
    action_profile(8) profile;

    table chosen {
        key = { hdr.h.key: exact; hdr.h.entropy: selector; }
        actions = { set; NoAction; }
        implementation = members;
    }
    table indirect {
        key = { hdr.h.key: exact; }
        actions = { set; NoAction; }
        implementation = profile;
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.key[7:7] == 0) {
            chosen.apply();
        } else {
            indirect.apply();
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
