// SPDX-License-Identifier: Apache-2.0
//
// Tests standard_metadata in both pipelines, and the egress port of a packet for which the program sets none.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  op;
    bit<16> ingress_port;
    bit<16> egress_port;
    bit<32> length_in;
    bit<32> length_out;
    bit<48> time_in;
    bit<48> time_out;
    bit<32> queue;
}

header extra_t {
    bit<32> value;
}

struct headers_t {
    h_t     h;
    extra_t extra;
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

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.h.ingress_port = (bit<16>)std.ingress_port;
        hdr.h.length_in = std.packet_length;
        hdr.h.time_in = std.ingress_global_timestamp;
        if (hdr.h.op == 1) {
            std.egress_spec = 510;
            hdr.extra.setValid();
        }
    }
}

control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.h.egress_port = (bit<16>)std.egress_port;
        hdr.h.length_out = std.packet_length;
        hdr.h.time_out = std.egress_global_timestamp;
        hdr.h.queue = std.deq_timedelta;
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), egress(), no_update(), deparser()) main;
