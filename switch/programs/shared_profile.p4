// SPDX-License-Identifier: Apache-2.0
//
// Tests one action profile with two tables. Each table has its own control flow after the action of a member.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> key;
    bit<8> first;
    bit<8> second;
    bit<8> seen;
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
    action set_first(bit<8> value) { hdr.h.first = value; }
    action set_second(bit<8> value) { hdr.h.second = value; }

    @name("shared")
    action_profile(8) shared;

    table one {
        key = { hdr.h.key: exact; }
        actions = { set_first; set_second; NoAction; }
        default_action = NoAction();
        implementation = shared;
    }
    table two {
        key = { hdr.h.key: ternary; }
        actions = { set_first; set_second; NoAction; }
        default_action = NoAction();
        implementation = shared;
    }

    apply {
        std.egress_spec = 1;
        switch (one.apply().action_run) {
            set_first: { hdr.h.seen = hdr.h.seen | 0x01; }
            set_second: { hdr.h.seen = hdr.h.seen | 0x02; }
        }
        switch (two.apply().action_run) {
            set_first: { hdr.h.seen = hdr.h.seen | 0x10; }
            set_second: { hdr.h.seen = hdr.h.seen | 0x20; }
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
