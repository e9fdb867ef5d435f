// SPDX-License-Identifier: Apache-2.0
//
// Tests parser transitions: several fields, values, masks, ranges, lookahead, advance, and no matching case.

#include <core.p4>
#include <v1model.p4>

header kind_t {
    bit<4> major;
    bit<4> minor;
    bit<8> path;
}

header word_t {
    bit<16> value;
}

struct headers_t {
    kind_t kind;
    word_t word;
}

struct meta_t {
    bit<16> ahead;
}

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.kind);
        transition select(hdr.kind.major, hdr.kind.minor) {
            (1, 1):              one_word;
            (2, 4w8 &&& 4w0xc):  masked;
            (3, 2..5):           ranged;
            (4, _):              ahead;
            (5, _):              skip;
            (6, _):              no_match;
        }
    }
    state one_word {
        packet.extract(hdr.word);
        transition accept;
    }
    state masked {
        hdr.kind.path = 2;
        transition accept;
    }
    state ranged {
        hdr.kind.path = 3;
        transition accept;
    }
    state ahead {
        meta.ahead = packet.lookahead<bit<16>>();
        transition select(packet.lookahead<bit<8>>()) {
            0xaa:    one_word;
            default: accept;
        }
    }
    state skip {
        packet.advance(16);
        packet.extract(hdr.word);
        transition accept;
    }
    state no_match {
        transition select(hdr.kind.minor) {
            1: accept;
        }
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.word.isValid()) {
            hdr.word.value = hdr.word.value + meta.ahead;
        }
        if (std.parser_error == error.NoMatch) {
            hdr.kind.path = 0xee;
        } else if (std.parser_error == error.PacketTooShort) {
            hdr.kind.path = 0xdd;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.kind);
        packet.emit(hdr.word);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
