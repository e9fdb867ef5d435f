// SPDX-License-Identifier: Apache-2.0
//
// Tests priorities: a packet selects a queue of its port by priority, and records the metadata of this queue.

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  priority;
    bit<32> enq_timestamp;
    bit<32> deq_timedelta;
    bit<24> enq_qdepth;
    bit<24> deq_qdepth;
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
        std.priority = (bit<3>)hdr.h.priority;
        std.egress_spec = 1;
    }
}

control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.h.enq_timestamp = std.enq_timestamp;
        hdr.h.deq_timedelta = std.deq_timedelta;
        hdr.h.enq_qdepth = (bit<24>)std.enq_qdepth;
        hdr.h.deq_qdepth = (bit<24>)std.deq_qdepth;
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), egress(), no_update(), deparser()) main;
