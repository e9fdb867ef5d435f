// SPDX-License-Identifier: Apache-2.0
//
// Tests resubmit and recirculate: preserved fields, and the metadata and headers that each pass sees.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  op;
    bit<8>  value;
    bit<8>  instance;
    bit<8>  kept;
    bit<8>  lost;
    bit<8>  ingress_port;
    bit<16> length;
}

header extra_t {
    bit<16> value;
}

struct headers_t {
    h_t     h;
    extra_t extra;
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
        hdr.h.instance = (bit<8>)std.instance_type;
        hdr.h.kept = meta.kept;
        hdr.h.lost = meta.lost;
        hdr.h.ingress_port = (bit<8>)std.ingress_port;
        hdr.h.length = (bit<16>)std.packet_length;
        hdr.h.value = hdr.h.value + 1;
        meta.kept = meta.kept + 1;
        meta.lost = meta.lost + 1;
        if (hdr.h.op == 1 && meta.kept < 3) {
            // The drop has no effect, because the packet is resubmitted.
            mark_to_drop(std);
            resubmit_preserving_field_list(1);
        } else if (hdr.h.op == 3) {
            resubmit_preserving_field_list(1);
        }
    }
}

control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (hdr.h.op == 2 && hdr.h.value < 3) {
            recirculate_preserving_field_list(1);
            hdr.extra.setValid();
            hdr.extra.value = 0xeeee;
        } else if (hdr.h.op == 4) {
            recirculate_preserving_field_list(1);
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), egress(), no_update(), deparser()) main;
