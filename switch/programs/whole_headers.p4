// SPDX-License-Identifier: Apache-2.0
//
// Tests headers as values: copies in the parser and in controls, `last` of a stack, and comparisons.

#include <core.p4>
#include <v1model.p4>

header first_t {
    bit<8> op;
    bit<8> items;
}

header item_t {
    bit<1> more;
    bit<7> value;
}

struct headers_t {
    first_t   first;
    item_t[3] items;
    item_t    copy;
    item_t    made;
}

struct meta_t {
    item_t latest;
}

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.first);
        transition select(hdr.first.items) {
            0: accept;
            default: item;
        }
    }
    state item {
        packet.extract(hdr.items.next);
        meta.latest = hdr.items.last;
        transition select(hdr.items.last.more) {
            1: item;
            default: accept;
        }
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.first.op == 1) {
            hdr.copy = meta.latest;
        } else if (hdr.first.op == 2) {
            hdr.made = { 1, 0x2a };
        } else if (hdr.first.op == 3) {
            hdr.copy = hdr.items[1];
        } else if (hdr.first.op == 4) {
            if (hdr.items[0] == hdr.items[1]) {
                hdr.first.op = 0xee;
            }
        } else if (hdr.first.op == 5) {
            hdr.made = meta.latest;
            hdr.made.value = hdr.made.value + 1;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
