// SPDX-License-Identifier: Apache-2.0
//
// Tests header unions: at most one member is valid.

#include <core.p4>
#include <v1model.p4>

header tag_t {
    bit<8> kind;
    bit<8> seen;
}

header short_t {
    bit<8> value;
}

header long_t {
    bit<32> value;
}

header_union number_t {
    short_t short_form;
    long_t  long_form;
}

struct headers_t {
    tag_t    tag;
    number_t number;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.tag);
        transition select(hdr.tag.kind) {
            1:       short_number;
            2:       long_number;
            3:       short_number;
            4:       long_number;
            default: accept;
        }
    }
    state short_number {
        packet.extract(hdr.number.short_form);
        transition accept;
    }
    state long_number {
        packet.extract(hdr.number.long_form);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.tag.kind == 3) {
            hdr.number.long_form.setValid();
            hdr.number.long_form.value = 0x01020304;
        } else if (hdr.tag.kind == 4) {
            hdr.number.long_form.setInvalid();
        }
        if (hdr.number.short_form.isValid()) {
            hdr.tag.seen = 1;
        }
        if (hdr.number.long_form.isValid()) {
            hdr.tag.seen = hdr.tag.seen + 2;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.tag);
        packet.emit(hdr.number);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
