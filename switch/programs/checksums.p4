// SPDX-License-Identifier: Apache-2.0
//
// Tests verify_checksum and update_checksum, with and without payload, under a condition, and over a header that may
// be invalid.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8>  flags;
    bit<8>  outcome;
    bit<16> value;
    bit<16> checksum;
}

header tail_t {
    bit<16> value;
    bit<16> checksum;
}

struct headers_t {
    h_t    h;
    tail_t tail;
}

struct meta_t { }

control no_egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply { }
}

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.flags) {
            0x02 &&& 0x02: tail;
            default:       accept;
        }
    }
    state tail {
        packet.extract(hdr.tail);
        transition accept;
    }
}

control check(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.h.flags[0:0] == 1, { hdr.h.flags, 8w0, hdr.h.value },
            hdr.h.checksum, HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.tail.isValid() && hdr.h.flags[2:2] == 1,
            { hdr.tail.value }, hdr.tail.checksum, HashAlgorithm.csum16);
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (std.checksum_error == 1) {
            hdr.h.outcome = 0xee;
        }
        if (hdr.h.flags[7:7] == 1) {
            hdr.h.value = hdr.h.value + 1;
        }
    }
}

control refresh(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.h.flags[7:7] == 1, { hdr.h.flags, 8w0, hdr.h.value, hdr.tail.value },
            hdr.h.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.h.flags[6:6] == 1, { hdr.h.value },
            hdr.h.checksum, HashAlgorithm.csum16);
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), check(), ingress(), no_egress(), refresh(), deparser()) main;
