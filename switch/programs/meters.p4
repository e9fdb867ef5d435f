// SPDX-License-Identifier: Apache-2.0
//
// Tests two-rate three-colour meters: indirect meters of packets and of bytes, and a direct meter.

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> which;
    bit<8> index;
    bit<8> color;
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
    meter<bit<8>>(4, MeterType.packets) by_packets;
    meter<bit<8>>(4, MeterType.bytes) by_bytes;
    direct_meter<bit<8>>(MeterType.packets) by_entry;

    action metered() { by_entry.read(hdr.h.color); }

    table entries {
        key = { hdr.h.index: exact; }
        actions = { metered; NoAction; }
        default_action = NoAction();
        meters = by_entry;
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.which == 1) {
            by_packets.execute_meter(hdr.h.index, hdr.h.color);
        } else if (hdr.h.which == 3) {
            entries.apply();
        } else {
            by_bytes.execute_meter(hdr.h.index, hdr.h.color);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
