// SPDX-License-Identifier: Apache-2.0
//
// Tests every match kind, constant entries with priorities, hit and miss, and switch on the action that ran.

#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<8>  which;
    bit<32> address;
    bit<16> port;
    bit<8>  result;
    bit<8>  trace;
}

struct headers_t {
    key_t key;
}

struct meta_t { }

#include "frame.p4"

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.key);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action set(bit<8> value) { hdr.key.result = value; }
    action other(bit<8> value) { hdr.key.result = value + 100; }
    action nothing() { }

    table exact_match {
        key = { hdr.key.address: exact; hdr.key.port: exact; }
        actions = { set; other; nothing; }
        default_action = nothing();
    }
    table chosen {
        key = { hdr.key.address: exact; hdr.key.port: exact; }
        actions = { set; other; nothing; }
        default_action = nothing();
    }
    table lpm_match {
        key = { hdr.key.port: exact; hdr.key.address: lpm; }
        actions = { set; nothing; }
        default_action = nothing();
    }
    table ternary_match {
        key = { hdr.key.address: ternary; hdr.key.port: ternary; }
        actions = { set; nothing; }
        default_action = nothing();
    }
    table range_match {
        key = { hdr.key.port: range; hdr.key.address: exact; }
        actions = { set; nothing; }
        default_action = nothing();
    }
    table optional_match {
        key = { hdr.key.address: optional; hdr.key.port: optional; }
        actions = { set; nothing; }
        default_action = nothing();
    }
    table constant {
        key = { hdr.key.address: ternary; hdr.key.port: range; }
        actions = { set; nothing; }
        default_action = nothing();
        const entries = {
            (0x0a000000 &&& 0xff000000, 80): set(1);
            (0x0a000000 &&& 0xff000000, 0..1023): set(2);
            (0x0a000000 &&& 0xff000000, _): set(3);
            (_, 443): set(4);
        }
    }
    table constant_prefix {
        key = { hdr.key.address: lpm; }
        actions = { set; }
        default_action = set(9);
        const entries = {
            0x0a000000 &&& 0xff000000: set(1);
            0x0a010000 &&& 0xffff0000: set(2);
            0x00000000 &&& 0x00000000: set(3);
        }
    }
    table on_valid {
        key = { hdr.key.isValid(): exact; hdr.key.port: exact; }
        actions = { set; nothing; }
        default_action = nothing();
    }

    apply {
        std.egress_spec = 1;
        if (hdr.key.which == 1) {
            if (exact_match.apply().hit) { hdr.key.trace = 1; } else { hdr.key.trace = 2; }
        } else if (hdr.key.which == 2) {
            lpm_match.apply();
        } else if (hdr.key.which == 3) {
            ternary_match.apply();
        } else if (hdr.key.which == 4) {
            range_match.apply();
        } else if (hdr.key.which == 5) {
            optional_match.apply();
        } else if (hdr.key.which == 6) {
            constant.apply();
        } else if (hdr.key.which == 7) {
            constant_prefix.apply();
        } else if (hdr.key.which == 8) {
            switch (chosen.apply().action_run) {
                set:     { hdr.key.trace = 1; }
                other:   { hdr.key.trace = 2; }
                nothing: { hdr.key.trace = 3; }
            }
            hdr.key.trace = hdr.key.trace + 0x10;
        } else if (hdr.key.which == 9) {
            on_valid.apply();
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.key);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
