// SPDX-License-Identifier: Apache-2.0
//
// Tests bit<128> and bit<512>: arithmetic wider than any machine word.

#include <core.p4>
#include <v1model.p4>

header calc_t {
    bit<8>  op;
    bit<128> a;
    bit<128> b;
    bit<256> r;
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
            hdr.calc.r = (bit<256>)(hdr.calc.a + hdr.calc.b);
        } else if (hdr.calc.op == 1) {
            hdr.calc.r = (bit<256>)hdr.calc.a + (bit<256>)hdr.calc.b;
        } else if (hdr.calc.op == 2) {
            hdr.calc.r = (bit<256>)hdr.calc.a * (bit<256>)hdr.calc.b;
        } else if (hdr.calc.op == 3) {
            hdr.calc.r = (bit<256>)hdr.calc.a - (bit<256>)hdr.calc.b;
        } else if (hdr.calc.op == 4) {
            hdr.calc.r = hdr.calc.a ++ hdr.calc.b;
        } else if (hdr.calc.op == 5) {
            hdr.calc.r = (bit<256>)((hdr.calc.a ++ hdr.calc.b)[191:64]);
        } else if (hdr.calc.op == 6) {
            hdr.calc.r = ~(hdr.calc.a ++ hdr.calc.b);
        } else if (hdr.calc.op == 7) {
            hdr.calc.r = (bit<256>)hdr.calc.a << 200;
        } else if (hdr.calc.op == 8) {
            bit<512> square = (bit<512>)(hdr.calc.a ++ hdr.calc.b) * (bit<512>)(hdr.calc.a ++ hdr.calc.b);
            hdr.calc.r = square[511:256];
        } else if (hdr.calc.op == 9) {
            bit<512> shifted = (bit<512>)(hdr.calc.a) << 300;
            hdr.calc.r = shifted[450:195];
        } else if (hdr.calc.op == 10) {
            if (hdr.calc.a < hdr.calc.b) { hdr.calc.r = 1; } else if (hdr.calc.a == hdr.calc.b) { hdr.calc.r = 2; } else { hdr.calc.r = 3; }
        } else if (hdr.calc.op == 11) {
            hdr.calc.r = (bit<256>)(hdr.calc.a |+| hdr.calc.b);
        } else if (hdr.calc.op == 12) {
            hdr.calc.r = (bit<256>)(hdr.calc.a |-| hdr.calc.b);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.calc);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
