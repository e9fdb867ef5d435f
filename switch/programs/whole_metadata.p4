// SPDX-License-Identifier: Apache-2.0
//
// Copies standard metadata as a whole, so that the program uses all of its fields.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> tag;
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

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 3;
        log_msg("{}", {std});
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
