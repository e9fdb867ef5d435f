// SPDX-License-Identifier: Apache-2.0
//
// Tests bit<16>: and, or, xor, complement, shifts by constants and by fields, concatenation, slices.

#include <core.p4>
#include <v1model.p4>

header calc_t {
    bit<8>  op;
    bit<16> a;
    bit<16> b;
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
            hdr.calc.r = (bit<32>)(hdr.calc.a & hdr.calc.b);
        } else if (hdr.calc.op == 1) {
            hdr.calc.r = (bit<32>)(hdr.calc.a | hdr.calc.b);
        } else if (hdr.calc.op == 2) {
            hdr.calc.r = (bit<32>)(hdr.calc.a ^ hdr.calc.b);
        } else if (hdr.calc.op == 3) {
            hdr.calc.r = (bit<32>)(~hdr.calc.a);
        } else if (hdr.calc.op == 4) {
            hdr.calc.r = (bit<32>)(hdr.calc.a << 3);
        } else if (hdr.calc.op == 5) {
            hdr.calc.r = (bit<32>)(hdr.calc.a >> 3);
        } else if (hdr.calc.op == 6) {
            hdr.calc.r = (bit<32>)(hdr.calc.a << (bit<8>)hdr.calc.b);
        } else if (hdr.calc.op == 7) {
            hdr.calc.r = (bit<32>)(hdr.calc.a >> (bit<8>)hdr.calc.b);
        } else if (hdr.calc.op == 8) {
            hdr.calc.r = (bit<32>)hdr.calc.a << (bit<8>)hdr.calc.b;
        } else if (hdr.calc.op == 9) {
            hdr.calc.r = hdr.calc.a ++ hdr.calc.b;
        } else if (hdr.calc.op == 10) {
            hdr.calc.r = (bit<32>)(hdr.calc.a[11:4]);
        } else if (hdr.calc.op == 11) {
            hdr.calc.r = (bit<32>)(hdr.calc.a[15:15] ++ hdr.calc.b[0:0]);
        } else if (hdr.calc.op == 12) {
            hdr.calc.r = 0;
            hdr.calc.r[23:8] = hdr.calc.a;
        } else if (hdr.calc.op == 13) {
            hdr.calc.r = 0xffffffff;
            hdr.calc.r[0:0] = hdr.calc.b[15:15];
        } else if (hdr.calc.op == 14) {
            hdr.calc.r = (bit<32>)(hdr.calc.a[7:0] ++ hdr.calc.b[7:0] ++ hdr.calc.a[15:8]);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.calc);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
