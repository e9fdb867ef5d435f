// SPDX-License-Identifier: Apache-2.0
//
// Tests direct and indirect counters.

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> key;
    bit<8> index;
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
    counter<bit<8>>(4, CounterType.packets_and_bytes) indexed;
    direct_counter(CounterType.packets_and_bytes) entries;

    action pass() { entries.count(); }

    table counted {
        key = { hdr.h.key: exact; }
        actions = { pass; NoAction; }
        counters = entries;
        default_action = NoAction();
    }

    apply {
        std.egress_spec = 1;
        counted.apply();
        indexed.count(hdr.h.index);
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
