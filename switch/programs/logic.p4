// SPDX-License-Identifier: Apache-2.0
//
// Tests comparisons, boolean operators, the conditional operator, and booleans as values.

#include <core.p4>
#include <v1model.p4>

header calc_t {
    bit<8>  op;
    bit<16> a;
    bit<16> b;
    bit<8> r;
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
            if (hdr.calc.a == hdr.calc.b) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 1) {
            if (hdr.calc.a != hdr.calc.b) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 2) {
            if (hdr.calc.a < hdr.calc.b) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 3) {
            if (hdr.calc.a <= hdr.calc.b) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 4) {
            if (hdr.calc.a > hdr.calc.b) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 5) {
            if (hdr.calc.a >= hdr.calc.b) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 6) {
            if (hdr.calc.a > 10 && hdr.calc.b > 10) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 7) {
            if (hdr.calc.a > 10 || hdr.calc.b > 10) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 8) {
            if (!(hdr.calc.a > 10)) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 9) {
            hdr.calc.r = hdr.calc.a > hdr.calc.b ? 8w7 : 8w9;
        } else if (hdr.calc.op == 10) {
            bool larger = hdr.calc.a > hdr.calc.b;
            bool even = hdr.calc.a[0:0] == 0;
            if (larger != even) { hdr.calc.r = 1; }
        } else if (hdr.calc.op == 11) {
            bool larger = hdr.calc.a > hdr.calc.b;
            hdr.calc.r = (bit<8>)(bit<1>)larger;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.calc);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
