// SPDX-License-Identifier: Apache-2.0
//
// Tests bit<32>: wrap-around and saturating arithmetic, and division by constants.

#include <core.p4>
#include <v1model.p4>

header calc_t {
    bit<8>  op;
    bit<32> a;
    bit<32> b;
    bit<32> r;
}

struct headers_t {
    calc_t calc;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.calc);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.calc.op == 0) {
            hdr.calc.r = hdr.calc.a + hdr.calc.b;
        } else if (hdr.calc.op == 1) {
            hdr.calc.r = hdr.calc.a - hdr.calc.b;
        } else if (hdr.calc.op == 2) {
            hdr.calc.r = hdr.calc.a * hdr.calc.b;
        } else if (hdr.calc.op == 3) {
            hdr.calc.r = hdr.calc.a |+| hdr.calc.b;
        } else if (hdr.calc.op == 4) {
            hdr.calc.r = hdr.calc.a |-| hdr.calc.b;
        } else if (hdr.calc.op == 5) {
            hdr.calc.r = -hdr.calc.a;
        } else if (hdr.calc.op == 6) {
            hdr.calc.r = hdr.calc.a + 0xffffffff;
        } else if (hdr.calc.op == 7) {
            hdr.calc.r = (hdr.calc.a + hdr.calc.b) >> 1;
        } else if (hdr.calc.op == 8) {
            hdr.calc.r = (hdr.calc.a - hdr.calc.b) * (hdr.calc.a + hdr.calc.b) + 7;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.calc);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
