// SPDX-License-Identifier: Apache-2.0
//
// Tests bit<0>: fields, parameters and metadata without bits.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> a;
    bit<0> none;
    bit<8> b;
}

struct headers_t {
    h_t h;
}

struct meta_t {
    bit<0> nothing;
    bit<8> step;
}

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action forward(bit<0> none, bit<9> port) {
        meta.nothing = none;
        std.egress_spec = port;
    }

    table t {
        key = { hdr.h.a: exact; }
        actions = { forward; NoAction; }
        default_action = NoAction();
    }

    apply {
        meta.nothing = hdr.h.none;
        t.apply();
        hdr.h.none = meta.nothing;
        if (hdr.h.none == 0) {
            meta.step = 1;
        }
        hdr.h.b = hdr.h.b + meta.step;
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
