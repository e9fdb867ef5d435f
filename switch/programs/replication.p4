// SPDX-License-Identifier: Apache-2.0
//
// Tests clones (ingress to egress, egress to egress, with preserved fields), multicast, drops, and the order of these
// decisions. Each output packet records how it was made.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  op;
    bit<8>  trace;       // changed by ingress, then by egress
    bit<8>  instance;    // instance_type at egress
    bit<16> replica;     // egress_rid at egress
    bit<8>  kept;        // preserved metadata
    bit<8>  lost;        // other metadata
}

struct headers_t {
    h_t h;
}

struct meta_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
}

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
        std.egress_spec = 1;
        meta.kept = 0x55;
        meta.lost = 0x66;
        hdr.h.trace = 1;
        if (hdr.h.op == 1) {
            clone(CloneType.I2E, 7);
        } else if (hdr.h.op == 2) {
            clone_preserving_field_list(CloneType.I2E, 7, 1);
        } else if (hdr.h.op == 3) {
            std.mcast_grp = 5;
        } else if (hdr.h.op == 4) {
            mark_to_drop(std);
        } else if (hdr.h.op == 5) {
            // A clone of a dropped packet is still sent.
            clone(CloneType.I2E, 7);
            mark_to_drop(std);
        } else if (hdr.h.op == 6) {
            // mark_to_drop after a group is set drops the packet. Before, it has no effect.
            std.mcast_grp = 5;
            mark_to_drop(std);
        } else if (hdr.h.op == 7) {
            mark_to_drop(std);
            std.mcast_grp = 5;
        } else if (hdr.h.op == 8) {
            clone(CloneType.I2E, 99);
        } else if (hdr.h.op == 9) {
            std.mcast_grp = 99;
        } else if (hdr.h.op == 14) {
            clone(CloneType.I2E, 8);
            clone(CloneType.I2E, 7);
        } else if (hdr.h.op == 15) {
            clone(CloneType.I2E, 9);
        }
    }
}

control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.h.instance = (bit<8>)std.instance_type;
        hdr.h.replica = std.egress_rid;
        hdr.h.kept = meta.kept;
        hdr.h.lost = meta.lost;
        hdr.h.trace = hdr.h.trace + 0x10;
        if (hdr.h.op == 10 && std.instance_type == 0) {
            clone(CloneType.E2E, 7);
        } else if (hdr.h.op == 11 && std.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, 7, 1);
            hdr.h.trace = hdr.h.trace + 0x20;
        } else if (hdr.h.op == 12) {
            mark_to_drop(std);
        } else if (hdr.h.op == 13) {
            // Without the limit of passes, this would never end.
            clone(CloneType.E2E, 7);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), egress(), no_update(), deparser()) main;
