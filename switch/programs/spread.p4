// SPDX-License-Identifier: Apache-2.0
//
// Tests HashAlgorithm.random: a hash that ignores its input, and a selector that chooses a member for each packet.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  op;
    bit<16> value;
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
    register<bit<16>>(2) seen;

    action member(bit<32> index) {
        bit<16> count;
        seen.read(count, index);
        seen.write(index, count + 1);
        hdr.h.value = count;
    }

    action_selector(HashAlgorithm.random, 8, 8) members;

    table spread {
        key = { hdr.h.op: exact; hdr.h.value: selector; }
        actions = { member; NoAction; }
        implementation = members;
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            hash(hdr.h.value, HashAlgorithm.random, 16w7, { hdr.h.value }, 16w1);
        } else {
            spread.apply();
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
