// SPDX-License-Identifier: Apache-2.0
//
// Tests a parser loop over a header stack, verify with an error of the program, and the headers after each error.

#include <core.p4>
#include <v1model.p4>

error { BadLabel }

header label_t {
    bit<7> value;
    bit<1> bottom;
}

header count_t {
    bit<8> labels;
    bit<8> outcome;
}

struct headers_t {
    count_t    count;
    label_t[3] labels;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.count);
        transition label;
    }
    state label {
        packet.extract(hdr.labels.next);
        verify(hdr.labels.last.value != 0x7f, error.BadLabel);
        transition select(hdr.labels.last.bottom) {
            0: label;
            1: accept;
        }
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        hdr.count.labels = 0;
        if (hdr.labels[0].isValid()) { hdr.count.labels = hdr.count.labels + 1; }
        if (hdr.labels[1].isValid()) { hdr.count.labels = hdr.count.labels + 1; }
        if (hdr.labels[2].isValid()) { hdr.count.labels = hdr.count.labels + 1; }
        if (std.parser_error == error.NoError) {
            hdr.count.outcome = 0;
        } else if (std.parser_error == error.StackOutOfBounds) {
            hdr.count.outcome = 1;
        } else if (std.parser_error == error.BadLabel) {
            hdr.count.outcome = 2;
        } else if (std.parser_error == error.PacketTooShort) {
            hdr.count.outcome = 3;
        } else {
            hdr.count.outcome = 4;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.count);
        packet.emit(hdr.labels);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
