// SPDX-License-Identifier: Apache-2.0
// One of everything that P4Runtime can name, for the server's tests. What a packet does is kept plain: tables are applied
// one after the other, and each can send the packet to a port, so that a test sees which entry was hit.
#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> pad;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> kind;
}

header key_t {
    bit<32> a;
    bit<16> b;
    bit<9> c;
    bit<7> d;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    key_t key;
}

struct learned_t {
    bit<48> src;
    bit<9> port;
}

struct metadata_t {
    bit<2> color;
    learned_t learned;
}

const bit<9> CPU_PORT = 510;

parser surface_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) keyed_kinds;

    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: from_controller;
            default: ethernet;
        }
    }
    state from_controller {
        packet.extract(hdr.packet_out);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x88b5: key;
            keyed_kinds: key;
            default: accept;
        }
    }
    state key {
        packet.extract(hdr.key);
        transition accept;
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) port_counter;
    meter(4, MeterType.packets) port_meter;
    register<bit<40>>(4) last_source;
    direct_counter(CounterType.packets_and_bytes) exact_counter;
    direct_meter<bit<2>>(MeterType.packets) exact_meter;
    action_profile(16) profile;
    @max_group_size(8)
    action_selector(HashAlgorithm.crc16, 32, 16) paths;

    action drop() { mark_to_drop(standard); }
    action forward(bit<9> port) { standard.egress_spec = port; }
    action multicast(bit<16> group) { standard.mcast_grp = group; }
    action mirror(bit<9> port) {
        standard.egress_spec = port;
        clone(CloneType.I2E, 7);
    }
    action to_cpu(bit<7> reason) {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard.ingress_port;
        hdr.packet_in.reason = reason;
        standard.egress_spec = CPU_PORT;
    }
    action learn(bit<9> port) {
        meta.learned = { hdr.ethernet.src, standard.ingress_port };
        digest<learned_t>(1, meta.learned);
        standard.egress_spec = port;
    }
    action mark(bit<9> port) {
        exact_counter.count();
        exact_meter.read(meta.color);
        standard.egress_spec = port;
    }
    action reset(bit<9> port) { standard.egress_spec = port; exact_counter.count(); exact_meter.read(meta.color); }

    table exact_table {
        key = { hdr.key.a: exact; }
        actions = { mark; @tableonly reset; @defaultonly NoAction; }
        default_action = NoAction();
        counters = exact_counter;
        meters = exact_meter;
        size = 16;
    }
    table lpm_table {
        key = { hdr.key.d: exact; hdr.key.a: lpm; }
        actions = { forward; multicast; mirror; to_cpu; learn; drop; NoAction; }
        default_action = NoAction();
        size = 64;
        support_timeout = true;
    }
    table ternary_table {
        key = { hdr.key.a: ternary; hdr.key.c: range; hdr.key.b: optional; }
        actions = { forward; drop; NoAction; }
        const default_action = NoAction();
        size = 16;
    }
    table const_table {
        key = { hdr.ethernet.kind: exact; }
        actions = { forward; NoAction; }
        const entries = {
            0x1111: forward(1);
            0x2222: forward(2);
        }
        default_action = NoAction();
    }
    table profile_table {
        key = { hdr.key.b: exact; }
        actions = { forward; drop; NoAction; }
        implementation = profile;
        size = 16;
    }
    table selector_table {
        key = {
            hdr.key.b: exact;
            hdr.ethernet.src: selector;
        }
        actions = { forward; drop; NoAction; }
        implementation = paths;
        size = 16;
    }
    table keyless_table {
        actions = { forward; NoAction; }
        default_action = NoAction();
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            standard.egress_spec = 511;
            port_counter.count((bit<32>)standard.ingress_port & 7);
            port_meter.execute_meter<bit<2>>((bit<32>)standard.ingress_port & 3, meta.color);
            last_source.write((bit<32>)standard.ingress_port & 3, hdr.ethernet.src[39:0]);
            keyless_table.apply();
            const_table.apply();
            if (hdr.key.isValid()) {
                lpm_table.apply();
                exact_table.apply();
                ternary_table.apply();
                profile_table.apply();
                selector_table.apply();
            }
        }
        if (meta.color == 2) { mark_to_drop(standard); }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }
control update_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.key);
    }
}

V1Switch(surface_parser(), verify_checksums(), ingress(), egress(), update_checksums(), deparser()) main;
