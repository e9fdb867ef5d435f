// SPDX-License-Identifier: Apache-2.0
//
// Tests mark_to_drop on an inout parameter: p4c copies the standard metadata in and out.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> op;
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

action discard(inout standard_metadata_t given) {
    mark_to_drop(given);
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    table discarded {
        key = { }
        actions = { discard(std); }
        const default_action = discard(std);
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            discarded.apply();
        } else if (hdr.h.op == 2) {
            standard_metadata_t copy = std;
            mark_to_drop(copy);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
