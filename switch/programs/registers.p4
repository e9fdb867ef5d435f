// SPDX-License-Identifier: Apache-2.0
//
// Tests registers: read, write, read-modify-write, and cells wider than a machine word.

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  op;
    bit<8>  index;
    bit<32> value;
}

header wide_t {
    bit<96> value;
}

struct headers_t {
    h_t    h;
    wide_t wide;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.op) {
            4: wide;
            5: wide;
            default: accept;
        }
    }
    state wide {
        packet.extract(hdr.wide);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    register<bit<24>, bit<32>>(8) cells;
    register<bit<96>, bit<32>>(2) wide_cells;

    apply {
        bit<24> cell = 0;
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            cells.write((bit<32>)hdr.h.index, (bit<24>)hdr.h.value);
        } else if (hdr.h.op == 2) {
            cells.read(cell, (bit<32>)hdr.h.index);
            hdr.h.value = (bit<32>)cell;
        } else if (hdr.h.op == 3) {
            cells.read(cell, (bit<32>)hdr.h.index);
            cell = cell + 1;
            cells.write((bit<32>)hdr.h.index, cell);
            hdr.h.value = (bit<32>)cell;
        } else if (hdr.h.op == 4) {
            wide_cells.write((bit<32>)hdr.h.index, hdr.wide.value);
        } else if (hdr.h.op == 5) {
            wide_cells.read(hdr.wide.value, (bit<32>)hdr.h.index);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
