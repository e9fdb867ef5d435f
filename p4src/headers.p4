// SPDX-License-Identifier: Apache-2.0
//
// Defines the headers on the wire. The headers of IPv4 options and IPv6 extension
// headers differ between architectures: arch.p4 defines ipv4_option_t and
// ipv6_extension_t, and the largest number of each.

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

// The IPv6 fragment header (RFC 8200, 4.5). The parser reads these fields by lookahead, and
// then extracts the header as an ipv6_extension_t.
header ipv6_fragment_t {
    bit<8>  next_header;
    bit<8>  reserved;
    bit<13> fragment_offset;
    bit<2>  reserved2;
    bit<1>  more_fragments;
    bit<32> identification;
}

// The fields that TCP and SCTP have in common. The rest of these headers counts as payload.
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
// with the EtherType of the shim, and ends with the EtherType of the original frame. The
// engine returns the fields unchanged except for the kind. For a decrypted packet, the
// engine also sets the bundle to that of the SA that decrypted the packet.
header shim_t {
    shim_kind_t kind;
    engine_t    engine;
    bundle_t    bundle;
    sa_t        sa;
    l3_if_t     ingress_l3_if;
    vrf_t       vrf;
    bit<16>     ether_type;
}

// Precedes a punted packet. The packet follows as the frame was received, with its
// VLAN tag.
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
    drop_reason_t drop_reason;          // of a dropped packet for the audit log; else NONE
    bit<8>        is_local;             // 1: an inbound list was looked up for a packet to this router
    bundle_t      bundle;               // the bundle that decrypted the packet; 0: none
    verdict_t     verdict;              // of the outbound list, if that list gave one; else NONE
    bundle_t      sa_bundle;
    rule_t        rule;
    list_t        list_id;              // the inbound list if stage INBOUND punted; else the outbound list
    generation_t  generation;
    list_t        inbound_list_id;      // the inbound list, if a stage after INBOUND punted
    generation_t  inbound_generation;
}

// Precedes a packet that the controller sends (packet_io.p4).
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
    bundle_t          bundle;           // decrypted this packet, or the packet that this ICMP error quotes; 0: none
    bundle_t          sa_bundle;        // the bundle of a verdict PROTECT
    rule_t            rule;
    list_t            list_id;
    generation_t      generation;
    list_t            inbound_list_id;
    generation_t      inbound_generation;
}

// The mobility header (RFC 6275, 6.1.1).
header mobility_t {
    bit<8>  next_header;
    bit<8>  length;
    bit<8>  message_type;
    bit<8>  reserved;
    bit<16> checksum;
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
    mobility_t       mobility;
}

#endif
