// SPDX-License-Identifier: Apache-2.0
//
// Tests a parser value set that the control plane fills.

#include <core.p4>
#include <v1model.p4>

header frame_t {
    bit<16> ether_type;
    bit<8>  outcome;
}

struct headers_t {
    frame_t frame;
}

struct meta_t {
    bit<1> known;
}

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    value_set<bit<16>>(4) known_types;

    state start {
        packet.extract(hdr.frame);
        transition select(hdr.frame.ether_type) {
            known_types: known;
            default:     accept;
        }
    }
    state known {
        meta.known = 1;
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        hdr.frame.outcome = (bit<8>)meta.known;
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.frame);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
