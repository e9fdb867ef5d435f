// SPDX-License-Identifier: Apache-2.0
// Types that clients see as strings, or in another width, wherever P4Info names a type.

#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("sluice.test/port", string)
type bit<9> port_t;

@p4runtime_translation("sluice.test/name", string)
@p4runtime_translation_mappings({ {"", 0}, {"gold", 7} })
type bit<48> name_t;

@p4runtime_translation("sluice.test/wide", 32)
type bit<12> wide_t;

enum bit<16> Kind { NAMED = 0x1111, SET = 0x2222 }

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> reason;
    name_t name;
    wide_t wide;
    bit<4> unused_pad;
}

@controller_header("packet_out")
header packet_out_t {
    bit<7> unused_pad;
    port_t egress_port;
    name_t name;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
}

struct learned_t {
    name_t name;
    port_t port;
    wide_t wide;
}

struct metadata_t {
    name_t name;
    wide_t wide;
    bool   is_named;
}

#define CPU_PORT 510

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("names")
    value_set<bit<48>>(4) names;

    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        meta.name = (name_t) hdr.ethernet.source;
        transition select(hdr.ethernet.source) {
            names: parse_named;
            default: accept;
        }
    }

    state parse_named {
        meta.is_named = true;
        transition accept;
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action drop() { mark_to_drop(standard); }

    action forward(port_t port) { standard.egress_spec = (bit<9>) port; }

    action punt(name_t name, wide_t wide) {
        meta.name = name;
        meta.wide = wide;
        standard.egress_spec = CPU_PORT;
    }

    action learn() { digest<learned_t>(1, {meta.name, (port_t) standard.ingress_port, meta.wide}); }

    table by_name {
        key = {
            meta.name: exact;
        }
        actions = { drop; forward; punt; learn; }
        default_action = drop();
        size = 16;
    }

    table by_port {
        key = {
            (port_t) standard.ingress_port: ternary @name("port");
            meta.name: optional @name("name");
        }
        actions = { NoAction; forward; punt; }
        default_action = NoAction();
        size = 16;
    }

    register<name_t>(4) seen;

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = (bit<9>) hdr.packet_out.egress_port;
            hdr.ethernet.source = (bit<48>) hdr.packet_out.name;
            hdr.packet_out.setInvalid();
        } else {
            seen.write(0, meta.name);
            by_name.apply();
            by_port.apply();
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = (port_t) standard.ingress_port;
            hdr.packet_in.reason = meta.is_named ? (bit<7>) 1 : 0;
            hdr.packet_in.name = meta.name;
            hdr.packet_in.wide = meta.wide;
            hdr.packet_in.unused_pad = 0;
        }
    }
}

control compute(inout headers_t hdr, inout metadata_t meta) { apply {} }

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
    }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), compute(), deparse()) main;
