// SPDX-License-Identifier: Apache-2.0
//
// Tests control flow: return, exit from controls and from actions, nested controls, direct calls of actions, if in
// actions, loops.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> trace;
}

struct headers_t {
    h_t h;
}

struct meta_t { }

control no_verify(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control no_update(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control inner(inout headers_t hdr) {
    apply {
        if (hdr.h.op == 1) {
            hdr.h.trace = hdr.h.trace + 1;
            return;
        }
        hdr.h.trace = hdr.h.trace + 2;
        if (hdr.h.op == 2) {
            exit;
        }
        hdr.h.trace = hdr.h.trace + 4;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action leave() {
        hdr.h.trace = hdr.h.trace + 8;
        exit;
    }
    action branch(bit<8> value) {
        if (value == 1) {
            hdr.h.trace = hdr.h.trace + 0x10;
            return;
        } else if (value == 2) {
            hdr.h.trace = hdr.h.trace + 0x20;
            exit;
        }
        hdr.h.trace = hdr.h.trace + 0x40;
    }
    action sum() {
        hdr.h.trace = 0;
        for (bit<8> i = 0; i < 5; i = i + 1) {
            if (i == 3) {
                continue;
            }
            hdr.h.trace = hdr.h.trace + i;
        }
    }
    table choose {
        key = { hdr.h.op: exact; }
        actions = { leave; branch; sum; NoAction; }
        default_action = NoAction();
    }
    inner() nested;

    apply {
        std.egress_spec = 1;
        nested.apply(hdr);
        choose.apply();
        hdr.h.trace = hdr.h.trace + 0x80;
    }
}

// exit ends only the pipeline in which it is executed.
control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.h.op = 0xff;
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), egress(), no_update(), deparser()) main;
