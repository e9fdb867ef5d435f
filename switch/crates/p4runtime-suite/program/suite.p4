// SPDX-License-Identifier: Apache-2.0
// Has one object of each kind that P4Runtime names, for the P4Runtime test suite. The suite needs no ports: a packet-out
// selects a table by `walk`, and comes back as a packet-in with the result. Roles and meters of one rate, which BMv2 does
// not have, are declared by annotations.
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

// Parts of the program that a packet-out can request to run through.
const bit<8> WALK_OUT = 0;  // sends the packet to egress_port
const bit<8> WALK_EXACT = 1;
const bit<8> WALK_LPM = 2;
const bit<8> WALK_TERNARY = 3;
const bit<8> WALK_RANGE = 4;
const bit<8> WALK_OPTIONAL = 5;
const bit<8> WALK_CONST = 6;
const bit<8> WALK_PROFILE = 7;
const bit<8> WALK_SELECTOR = 8;
const bit<8> WALK_KEYLESS = 9;
const bit<8> WALK_CELLS = 10;  // counters, a meter and registers at index `index`; `egress_port` selects the meter
const bit<8> WALK_LEARN = 11;  // sends a digest
const bit<8> WALK_MULTICAST = 12;  // copies the packet to group `index`
const bit<8> WALK_CLONE = 13;  // clones the packet to session 7
const bit<8> WALK_VALUE_SET = 14;
const bit<8> WALK_TIMEOUT = 15;

@controller_header("packet_out")
header packet_out_t {
    bit<16> egress_port;
    bit<8> walk;
    bit<8> index;
}

@controller_header("packet_in")
header packet_in_t {
    bit<16> ingress_port;
    bit<16> mark;       // value set by the table's action; 0 for a miss
    bit<16> instance;   // instance of a replica
    bit<8> color;       // colour from the meter
    bit<8> copy;        // 1 for a clone
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> kind;
}

header key_t {
    bit<32> a;
    bit<16> b;
    bit<12> c;
    bit<4> d;
    bit<128> wide;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    key_t key;
}

struct learned_t {
    bit<48> src;
    bit<16> b;
}

struct metadata_t {
    bit<16> mark;
    bit<8> color;
    bit<1> in_set;
    learned_t learned;
}

parser suite_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) kinds;

    state start {
        meta.in_set = 0;
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
            kinds: listed;
            default: accept;
        }
    }
    state listed {
        meta.in_set = 1;
        transition accept;
    }
    state key {
        packet.extract(hdr.key);
        transition accept;
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @brief("Eight cells of packets and bytes.")
    counter(8, CounterType.packets_and_bytes) cells_counter;
    counter(4, CounterType.bytes) bytes_counter;
    meter(4, MeterType.packets) two_rates;
    @single_rate_three_color
    meter(4, MeterType.packets) one_rate;
    @single_rate_two_color
    meter(4, MeterType.packets) two_colors;
    register<bit<40>>(4) small_register;
    register<bit<128>>(2) wide_register;
    direct_counter(CounterType.packets_and_bytes) exact_counter;
    direct_meter<bit<8>>(MeterType.packets) exact_meter;
    action_profile(8) profile;
    @max_group_size(8)
    action_selector(HashAlgorithm.crc16, 32, 16) paths;

    action drop() { mark_to_drop(standard); }
    action mark(bit<16> value) { meta.mark = value; }
    action mark_other(bit<16> value, bit<4> small) { meta.mark = value + (bit<16>)small; }
    action mark_direct(bit<16> value) {
        meta.mark = value;
        exact_counter.count();
        exact_meter.read(meta.color);
    }
    action only_entries(bit<16> value) {
        meta.mark = value;
        exact_counter.count();
        exact_meter.read(meta.color);
    }
    action learn() {
        meta.learned = { hdr.ethernet.src, hdr.key.b };
        digest<learned_t>(1, meta.learned);
    }

    table exact_table {
        key = { hdr.key.a: exact @name("a"); hdr.key.c: exact @name("c"); }
        actions = { mark_direct; @tableonly only_entries; @defaultonly NoAction; }
        default_action = NoAction();
        counters = exact_counter;
        meters = exact_meter;
        size = 64;
    }
    table lpm_table {
        key = { hdr.key.a: lpm @name("a"); }
        actions = { mark; mark_other; drop; NoAction; }
        default_action = NoAction();
        size = 64;
    }
    table wide_table {
        key = { hdr.key.wide: lpm @name("wide"); }
        actions = { mark; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table ternary_table {
        key = { hdr.key.a: ternary @name("a"); hdr.key.c: ternary @name("c"); }
        actions = { mark; mark_other; NoAction; }
        const default_action = NoAction();
        size = 16;
    }
    table range_table {
        key = { hdr.key.b: range @name("b"); }
        actions = { mark; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table optional_table {
        key = { hdr.key.b: optional @name("b"); hdr.key.d: optional @name("d"); }
        actions = { mark; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table const_table {
        key = { hdr.key.b: exact @name("b"); }
        actions = { mark; NoAction; }
        const entries = {
            0x0001: mark(11);
            0x0002: mark(22);
        }
        default_action = NoAction();
    }
    table profile_table {
        key = { hdr.key.b: exact @name("b"); }
        actions = { mark; mark_other; NoAction; }
        implementation = profile;
        size = 16;
    }
    table selector_table {
        key = {
            hdr.key.b: exact @name("b");
            hdr.ethernet.src: selector;
        }
        actions = { mark; mark_other; NoAction; }
        implementation = paths;
        size = 16;
    }
    table keyless_table {
        actions = { mark; NoAction; }
        default_action = NoAction();
    }
    table timeout_table {
        key = { hdr.key.b: exact @name("b"); }
        actions = { mark; NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 16;
    }
    @p4runtime_role("acl")
    table acl_table {
        key = { hdr.key.b: exact @name("b"); }
        actions = { mark; NoAction; }
        default_action = NoAction();
        size = 16;
    }

    action use_cells() {
        bit<32> index = (bit<32>)hdr.packet_out.index;
        cells_counter.count(index);
        bytes_counter.count(index);
        two_rates.execute_meter<bit<8>>(index, meta.color);
        bit<40> last;
        small_register.read(last, index);
        meta.mark = (bit<16>)last;
        small_register.write(index, hdr.ethernet.src[39:0]);
    }
    action use_one_rate() {
        one_rate.execute_meter<bit<8>>((bit<32>)hdr.packet_out.index, meta.color);
        wide_register.write(0, hdr.key.wide);
    }

    action use_two_colors() {
        two_colors.execute_meter<bit<8>>((bit<32>)hdr.packet_out.index, meta.color);
    }

    apply {
        meta.mark = 0;
        meta.color = 0;
        if (!hdr.packet_out.isValid()) {
            mark_to_drop(standard);
            return;
        }
        bit<8> walk = hdr.packet_out.walk;
        bit<8> index = hdr.packet_out.index;
        standard.egress_spec = CPU_PORT;
        if (walk == WALK_OUT) {
            standard.egress_spec = (bit<9>)hdr.packet_out.egress_port;
        } else if (walk == WALK_EXACT) {
            exact_table.apply();
        } else if (walk == WALK_LPM) {
            if (!lpm_table.apply().hit) { wide_table.apply(); }
        } else if (walk == WALK_TERNARY) {
            ternary_table.apply();
        } else if (walk == WALK_RANGE) {
            range_table.apply();
        } else if (walk == WALK_OPTIONAL) {
            optional_table.apply();
        } else if (walk == WALK_CONST) {
            const_table.apply();
        } else if (walk == WALK_PROFILE) {
            profile_table.apply();
        } else if (walk == WALK_SELECTOR) {
            selector_table.apply();
        } else if (walk == WALK_KEYLESS) {
            keyless_table.apply();
        } else if (walk == WALK_CELLS) {
            if (hdr.packet_out.egress_port == 0) { use_cells(); }
            else if (hdr.packet_out.egress_port == 1) { use_one_rate(); }
            else { use_two_colors(); }
        } else if (walk == WALK_LEARN) {
            learn();
        } else if (walk == WALK_MULTICAST) {
            standard.mcast_grp = (bit<16>)index;
        } else if (walk == WALK_CLONE) {
            clone(CloneType.I2E, 7);
        } else if (walk == WALK_VALUE_SET) {
            meta.mark = (bit<16>)meta.in_set;
        } else if (walk == WALK_TIMEOUT) {
            timeout_table.apply();
            acl_table.apply();
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.packet_out.setInvalid();
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (bit<16>)standard.ingress_port;
            hdr.packet_in.mark = meta.mark;
            hdr.packet_in.instance = standard.egress_rid;
            hdr.packet_in.color = meta.color;
            hdr.packet_in.copy = 0;
            if (standard.instance_type == 1) { hdr.packet_in.copy = 1; }
        }
    }
}

control update_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.key);
    }
}

V1Switch(suite_parser(), verify_checksums(), ingress(), egress(), update_checksums(), deparser()) main;
