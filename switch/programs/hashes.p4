// SPDX-License-Identifier: Apache-2.0
//
// Tests hash() with every algorithm, with base and maximum, and over fields that are not whole bytes.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  op;
    bit<32> a;
    bit<12> b;
    bit<4>  c;
    bit<32> result;
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

#define DATA { hdr.h.a, hdr.h.b }
#define ALL 33w0x100000000

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 0) {
            hash(hdr.h.result, HashAlgorithm.crc16, 32w0, DATA, ALL);
        } else if (hdr.h.op == 1) {
            hash(hdr.h.result, HashAlgorithm.crc32, 32w0, DATA, ALL);
        } else if (hdr.h.op == 2) {
            hash(hdr.h.result, HashAlgorithm.csum16, 32w0, DATA, ALL);
        } else if (hdr.h.op == 3) {
            hash(hdr.h.result, HashAlgorithm.xor16, 32w0, DATA, ALL);
        } else if (hdr.h.op == 4) {
            hash(hdr.h.result, HashAlgorithm.identity, 32w0, { hdr.h.c, hdr.h.b }, ALL);
        } else if (hdr.h.op == 5) {
            hash(hdr.h.result, HashAlgorithm.crc16, 32w1000, DATA, 32w10);
        } else if (hdr.h.op == 6) {
            hash(hdr.h.result, HashAlgorithm.crc32, 32w5, DATA, 32w0);
        } else if (hdr.h.op == 7) {
            hash(hdr.h.result, HashAlgorithm.crc16_custom, 32w0, DATA, ALL);
        } else if (hdr.h.op == 8) {
            hash(hdr.h.result, HashAlgorithm.crc32_custom, 32w0, DATA, ALL);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
