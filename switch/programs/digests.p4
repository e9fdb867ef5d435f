// SPDX-License-Identifier: Apache-2.0
//
// Tests digest(), truncate(), random(), log_msg() and assert().

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  op;
    bit<12> a;
    bit<4>  b;
    bit<16> value;
}

struct headers_t {
    h_t h;
}

struct meta_t { }

struct seen_t {
    bit<12> a;
    bit<4>  b;
    bit<9>  port;
}

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            digest<seen_t>(1, { hdr.h.a, hdr.h.b, std.ingress_port });
            hdr.h.a = 0;
        } else if (hdr.h.op == 2) {
            truncate((bit<32>)hdr.h.value);
        } else if (hdr.h.op == 3) {
            random(hdr.h.value, 16w7, 16w7);
        } else if (hdr.h.op == 4) {
            log_msg("a = {}, b = {}", { hdr.h.a, hdr.h.b });
        } else if (hdr.h.op == 5) {
            assert(hdr.h.value == 1);
        } else if (hdr.h.op == 6) {
            random(hdr.h.value, 16w9, 16w3);
        } else if (hdr.h.op == 7) {
            digest<seen_t>(1, { hdr.h.a, hdr.h.b, std.ingress_port });
            mark_to_drop(std);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
