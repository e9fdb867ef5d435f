// SPDX-License-Identifier: Apache-2.0
//
// Headers on the wire. How IPv4 options and IPv6 extension headers are held
// differs between architectures: arch.p4 defines ipv4_option_t and
// ipv6_extension_t, and how many of each there are.

#ifndef SLUICE_HEADERS_P4
#define SLUICE_HEADERS_P4

header ethernet_t {
    mac_addr_t dst_addr;
    mac_addr_t src_addr;
    bit<16>    ether_type;
}

header vlan_t {
    bit<3>    pcp;
    bit<1>    dei;
    vlan_id_t vlan_id;
    bit<16>   ether_type;
}

header ipv4_t {
    bit<4>      version;
    bit<4>      ihl;
    bit<8>      tos;
    bit<16>     total_length;
    bit<16>     identification;
    bit<1>      reserved;
    bit<1>      dont_fragment;
    bit<1>      more_fragments;
    bit<13>     fragment_offset;
    bit<8>      ttl;
    bit<8>      protocol;
    bit<16>     checksum;
    ipv4_addr_t src_addr;
    ipv4_addr_t dst_addr;
}

header ipv6_t {
    bit<4>      version;
    bit<8>      traffic_class;
    bit<20>     flow_label;
    bit<16>     payload_length;
    bit<8>      next_header;
    bit<8>      hop_limit;
    ipv6_addr_t src_addr;
    ipv6_addr_t dst_addr;
}

// Looked at before it is taken into the stack of extension headers (RFC 8200, 4.5).
header ipv6_fragment_t {
    bit<8>  next_header;
    bit<8>  reserved;
    bit<13> fragment_offset;
    bit<2>  reserved2;
    bit<1>  more_fragments;
    bit<32> identification;
}

// The fields common to TCP and SCTP; the rest of either header is payload here.
header ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

// ICMP and ICMPv6.
header icmp_t {
    bit<16> type_and_code;   // type in the high byte
    bit<16> checksum;
}

header esp_t {
    bit<32> spi;
    bit<32> sequence;
}

// Carries requests to an engine, and results back. The shim follows an Ethernet header
// with the EtherType of the shim, and ends with the frame's own EtherType. The engine
// returns the fields unchanged except for the kind. For a decrypted packet, it also sets
// the bundle to that of the SA that decrypted the packet.
header shim_t {
    shim_kind_t kind;
    engine_t    engine;
    bundle_t    bundle;
    sa_t        sa;
    l3_if_t     ingress_l3_if;
    vrf_t       vrf;
    bit<16>     ether_type;
}

// Goes before a punted packet. The punted packet itself is the frame as it was
// received, its VLAN tag included.
@controller_header("packet_in")
header packet_in_t {
    bit<16>       ingress_port;
    l3_if_t       ingress_l3_if;
    vrf_t         vrf;
    l3_if_t       egress_l3_if;
    nexthop_id_t  nexthop_id;
    punt_reason_t reason;
    stage_t       stage;
    origin_t      origin;
    drop_reason_t drop_reason;          // of a dropped packet that the audit log wants, else NONE
    bit<8>        is_local;             // 1: the inbound list was asked about a packet for this router
    bundle_t      bundle;               // that the packet was decrypted by
    verdict_t     verdict;              // of the outbound list, where it had one already
    bundle_t      sa_bundle;
    rule_t        rule;
    list_t        list_id;              // of the stage that punted, or of that verdict
    generation_t  generation;
    list_t        inbound_list_id;      // whose verdict was applied already
    generation_t  inbound_generation;
}

// Comes before a packet that the controller sends; see packet_io.p4.
@controller_header("packet_out")
header packet_out_t {
    packet_out_kind_t kind;
    stage_t           stage;
    origin_t          origin;
    verdict_t         verdict;
    bit<16>           egress_port;
    bit<16>           ingress_port;
    l3_if_t           ingress_l3_if;
    vrf_t             vrf;
    l3_if_t           egress_l3_if;
    nexthop_id_t      nexthop_id;
    bundle_t          bundle;           // that the packet, or the packet it is an error about, was decrypted by
    bundle_t          sa_bundle;        // that a verdict of PROTECT names
    rule_t            rule;
    list_t            list_id;
    generation_t      generation;
    list_t            inbound_list_id;
    generation_t      inbound_generation;
}

struct headers_t {
    packet_in_t      packet_in;
    packet_out_t     packet_out;
    ethernet_t       ethernet;
    vlan_t           vlan;
    shim_t           shim;
    ipv4_t           ipv4;
    ipv4_option_t[IPV4_OPTIONS]       ipv4_option;
    ipv6_t           ipv6;
    ipv6_extension_t[IPV6_EXTENSIONS] ipv6_extension;
    ports_t          ports;
    udp_t            udp;
    icmp_t           icmp;
    esp_t            esp;
}

#endif
