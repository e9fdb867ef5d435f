// SPDX-License-Identifier: Apache-2.0
//
// Tests header stacks in controls: push_front, pop_front, elements by constant and by run-time index, and assignment
// of whole stacks and of elements.

#include <core.p4>
#include <v1model.p4>

header op_t {
    bit<8> op;
    bit<8> index;
    bit<8> result;
    bit<8> count;
}

header item_t {
    bit<8> value;
}

struct headers_t {
    op_t      op;
    item_t[4] items;
    item_t[4] others;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.op);
        transition select(hdr.op.count) {
            0:       accept;
            default: item;
        }
    }
    state item {
        packet.extract(hdr.items.next);
        hdr.op.count = hdr.op.count - 1;
        transition select(hdr.op.count) {
            0:       accept;
            default: item;
        }
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.op.op == 1) {
            hdr.items.push_front(1);
        } else if (hdr.op.op == 2) {
            hdr.items.push_front(2);
            hdr.items[0].setValid();
            hdr.items[0].value = 0xf0;
            hdr.items[1].setValid();
        } else if (hdr.op.op == 3) {
            hdr.items.pop_front(1);
        } else if (hdr.op.op == 4) {
            hdr.items.pop_front(3);
        } else if (hdr.op.op == 5) {
            hdr.op.result = hdr.items[hdr.op.index].value;
        } else if (hdr.op.op == 6) {
            hdr.items[hdr.op.index].value = 0xee;
        } else if (hdr.op.op == 7) {
            hdr.others = hdr.items;
        } else if (hdr.op.op == 8) {
            hdr.items[3] = hdr.items[0];
        } else if (hdr.op.op == 9) {
            hdr.items[1].setInvalid();
        } else if (hdr.op.op == 10) {
            hdr.items.push_front(9);
        } else if (hdr.op.op == 11) {
            hdr.items[0] = hdr.others[0];
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.op);
        packet.emit(hdr.items);
        packet.emit(hdr.others);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
