// SPDX-License-Identifier: Apache-2.0
//
// Tests reads of invalid headers, and writes of headers in many combinations. A header that a packet does not have
// reads as 0, for any previous packet. A removed header keeps its bytes until setValid().

#include <core.p4>
#include <v1model.p4>

header first_t {
    bit<8> op;
    bit<8> carries;
}

header item_t {
    bit<8> value;
    bit<8> more;
}

// Never valid. This header separates the other headers from fields that every packet writes.
header far_t {
    bit<1024> bytes;
}

struct headers_t {
    first_t first;
    far_t   far;
    item_t  a;
    item_t  b;
    item_t  c;
    item_t  d;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.first);
        transition select(hdr.first.carries) {
            0x1 &&& 0x1: a;
            default: after_a;
        }
    }
    state a {
        packet.extract(hdr.a);
        transition after_a;
    }
    state after_a {
        transition select(hdr.first.carries) {
            0x2 &&& 0x2: b;
            default: after_b;
        }
    }
    state b {
        packet.extract(hdr.b);
        transition after_b;
    }
    state after_b {
        transition select(hdr.first.carries) {
            0x4 &&& 0x4: c;
            default: after_c;
        }
    }
    state c {
        packet.extract(hdr.c);
        transition after_c;
    }
    state after_c {
        transition select(hdr.first.carries) {
            0x8 &&& 0x8: d;
            default: accept;
        }
    }
    state d {
        packet.extract(hdr.d);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action read_b() {
        hdr.first.carries = hdr.b.value;
    }

    action lose_b() {
        hdr.b.setInvalid();
    }

    action make_b() {
        hdr.b.setValid();
    }

    action swap() {
        hdr.c.setInvalid();
        hdr.d.setValid();
    }

    table change {
        key = {
            hdr.first.op: exact;
        }
        actions = {
            lose_b;
            make_b;
            swap;
            NoAction;
        }
        const default_action = NoAction();
    }

    table read {
        key = {
            hdr.first.op: exact;
        }
        actions = {
            read_b;
            NoAction;
        }
        const default_action = NoAction();
    }

    apply {
        std.egress_spec = 1;
        change.apply();
        read.apply();
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
