// SPDX-License-Identifier: Apache-2.0
//
// Tests int<32>: two's complement, saturation, signed comparison and signed shifts.

#include <core.p4>
#include <v1model.p4>

header calc_t {
    bit<8>  op;
    int<32> a;
    int<32> b;
    int<32> r;
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
            hdr.calc.r = hdr.calc.a >> 4;
        } else if (hdr.calc.op == 7) {
            hdr.calc.r = hdr.calc.a << 4;
        } else if (hdr.calc.op == 8) {
            if (hdr.calc.a < hdr.calc.b) { hdr.calc.r = 1; } else { hdr.calc.r = -1; }
        } else if (hdr.calc.op == 9) {
            if (hdr.calc.a >= hdr.calc.b) { hdr.calc.r = 1; } else { hdr.calc.r = -1; }
        } else if (hdr.calc.op == 10) {
            hdr.calc.r = (int<32>)(int<8>)hdr.calc.a;
        } else if (hdr.calc.op == 11) {
            hdr.calc.r = (int<32>)(bit<32>)((bit<8>)(bit<32>)hdr.calc.a);
        } else if (hdr.calc.op == 12) {
            hdr.calc.r = hdr.calc.a & hdr.calc.b;
        } else if (hdr.calc.op == 13) {
            hdr.calc.r = ~hdr.calc.a;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.calc);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
