// SPDX-License-Identifier: Apache-2.0
//
// Tests a varbit field between other fields: extract with a length, emit, copy, compare, and errors.

#include <core.p4>
#include <v1model.p4>

header options_t {
    bit<8>      length;   // in bits
    bit<4>      before;
    varbit<48>  body;
    bit<4>      after;
}

header outcome_t {
    bit<8> value;
}

struct headers_t {
    outcome_t outcome;
    options_t options;
    options_t copy;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.outcome);
        transition select(packet.lookahead<bit<8>>()) {
            default: options;
        }
    }
    state options {
        packet.extract(hdr.options, (bit<32>)(packet.lookahead<bit<8>>()));
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (std.parser_error == error.HeaderTooShort) {
            hdr.outcome.value = 0xe1;
        } else if (std.parser_error == error.PacketTooShort) {
            hdr.outcome.value = 0xe2;
        } else if (std.parser_error == error.ParserInvalidArgument) {
            hdr.outcome.value = 0xe3;
        } else if (hdr.outcome.value == 1) {
            hdr.copy = hdr.options;
            hdr.copy.after = 0xf;
        } else if (hdr.outcome.value == 2) {
            hdr.options.setInvalid();
            hdr.options.setValid();
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
