// SPDX-License-Identifier: Apache-2.0
//
// Defines the identifiers, the enumerations and the metadata that the stages share.
// The control plane reads the names of the enumerations from P4Info.

#ifndef SLUICE_TYPES_P4
#define SLUICE_TYPES_P4

typedef bit<48>  mac_addr_t;
typedef bit<32>  ipv4_addr_t;
typedef bit<128> ipv6_addr_t;
typedef bit<12>  vlan_id_t;
typedef bit<9>   port_id_t;

// Identifiers that the controller allocates. 0 means "none", except for a VRF.
typedef bit<16> l3_if_t;
typedef bit<16> vrf_t;
typedef bit<16> nexthop_id_t;
typedef bit<16> group_id_t;
typedef bit<16> bundle_t;
typedef bit<32> rule_t;
typedef bit<16> rule_set_t;    // the entries of one list in the rule tables
typedef bit<16> list_t;        // one ordered list of an SPD, inbound or outbound
typedef bit<32> generation_t;  // of a list; rises with every commit that changes the list
typedef bit<32> epoch_t;       // of a list, and of a flow of the list; 0: none
typedef bit<32> sa_t;          // number of an SA in its engine
typedef bit<8>  engine_t;

const port_id_t CPU_PORT = 510;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP  = 0x0806;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<16> ETHERTYPE_LLDP = 0x88cc;
const bit<16> ETHERTYPE_SHIM = 0x88b5;  // for local experiments (IEEE 802); here the engine's shim

const bit<8> PROTOCOL_ICMP     = 1;
const bit<8> PROTOCOL_TCP      = 6;
const bit<8> PROTOCOL_UDP      = 17;
const bit<8> PROTOCOL_IPV6_HOP = 0;
const bit<8> PROTOCOL_ROUTING  = 43;
const bit<8> PROTOCOL_FRAGMENT = 44;
const bit<8> PROTOCOL_ESP      = 50;
const bit<8> PROTOCOL_AH       = 51;
const bit<8> PROTOCOL_ICMPV6   = 58;
const bit<8> PROTOCOL_DEST_OPT = 60;
const bit<8> PROTOCOL_OSPF     = 89;
const bit<8> PROTOCOL_VRRP     = 112;
const bit<8> PROTOCOL_SCTP     = 132;
const bit<8> PROTOCOL_MOBILITY = 135;

const bit<16> PORT_BGP       = 179;
const bit<16> PORT_IKE       = 500;
const bit<16> PORT_IKE_NAT_T = 4500;
const bit<16> PORT_BFD       = 3784;  // single hop, RFC 5881
const bit<16> PORT_BFD_MULTI = 4784;  // multihop, RFC 5883
const bit<16> PORT_LDP       = 646;
const bit<16> PORT_RIP       = 520;
const bit<16> PORT_RIPNG     = 521;

// The stages of the apply list in router.p4, in the same order. A re-injected
// packet names the stage at which it enters.
enum bit<8> stage_t {
    NONE           = 0,
    ADMIT          = 1,
    INBOUND        = 2,
    LOCAL_DELIVERY = 3,
    ROUTING        = 4,
    OUTBOUND       = 5,
    REWRITE        = 6
}

// The disposition of a packet. A stage runs only while the disposition is CONTINUE.
enum bit<8> fate_t {
    CONTINUE = 0,
    DROP     = 1,
    PUNT     = 2,
    ENGINE   = 3    // to the engine without routing: ESP to this router
}

// The origin of a packet. Policy and the TTL check depend on the origin.
enum bit<8> origin_t {
    TRANSIT   = 0,
    LOCAL     = 1,
    DECRYPTED = 2,
    ENCRYPTED = 3   // an engine's output; skips the outbound list, also when re-injected
}

// Policy distinguishes whole packets, first fragments and later fragments: a verdict
// for one kind does not apply to the others (RFC 4301, section 7).
enum bit<2> fragment_t {
    WHOLE = 0,
    FIRST = 1,
    LATER = 2    // has no ports; in IPv6 its protocol may be unknown too
}

enum bit<8> role_t {
    ROUTER = 0,
    ENGINE = 1
}

enum bit<8> packet_out_kind_t {
    NONE         = 0,
    TO_PORT      = 1,
    LOCAL_ORIGIN = 2,
    REINJECT     = 3
}

// The operation that the shim requests from the engine, or that the engine performed.
enum bit<8> shim_kind_t {
    NONE      = 0,
    ENCRYPT   = 1,   // to the engine
    ENCRYPTED = 2,   // from the engine: an ESP packet of this router, to be routed
    DECRYPT   = 3,   // to the engine
    DECRYPTED = 4    // from the engine: a packet that was carried in ESP
}

enum bit<8> verdict_t {
    NONE    = 0,
    BYPASS  = 1,
    DISCARD = 2,
    PROTECT = 3
}

// The reasons for sending a packet to the CPU. Each reason has its own meter, so
// no kind of packet can starve another kind.
enum bit<8> punt_reason_t {
    NONE                = 0,
    ARP                 = 1,
    LINK_PROTOCOL       = 2,   // LLDP, IS-IS
    NEIGHBOR_DISCOVERY  = 3,
    ROUTING_PROTOCOL    = 4,   // BGP, OSPF, BFD, LDP, RIP, VRRP
    IKE                 = 5,
    LOCAL               = 6,   // all other packets for this router
    TTL_EXCEEDED        = 7,
    MTU_EXCEEDED        = 8,
    NEIGHBOR_UNRESOLVED = 9,
    NO_ROUTE            = 10,
    UNREACHABLE         = 11,
    PROHIBITED          = 12,
    IP_OPTIONS          = 13,  // options that this target's parser cannot walk
    EXTENSION_HEADERS   = 14,  // extension headers that this target's parser cannot walk
    INBOUND_MISS        = 15,
    OUTBOUND_MISS       = 16,
    FRAGMENT            = 17,  // a list has no verdict for a fragment; `stage` tells which list
    AUDIT               = 18,  // copy of a dropped packet, for the audit log
    ACQUIRE             = 19   // copy of a packet that was dropped because its bundle has no SA
}

const bit<32> PUNT_REASONS = 32;   // size of the counters and meters that punt_reason_t indexes

// The reasons for dropping a packet. The reason is the index of drop_counter.
enum bit<8> drop_reason_t {
    NONE                   = 0,
    NO_INTERFACE           = 1,   // port and VLAN belong to no layer-3 interface
    NOT_FOR_ROUTER         = 2,   // the frame is for another station's MAC address
    MALFORMED              = 3,   // headers that contradict each other or are cut short
    BAD_CHECKSUM           = 4,
    BAD_LENGTH             = 5,   // the frame is shorter than its IP header says
    FRAGMENT_TOO_SHORT     = 6,   // first fragment without a whole transport header (RFC 1858)
    SOURCE_ROUTE           = 7,   // IPv4 LSRR, SSRR; IPv6 routing header type 0 (RFC 5095)
    MARTIAN                = 8,
    FORGED_SHIM            = 9,
    UNLISTED_PROTOCOL      = 10,  // none of IP, ARP, LLDP and IS-IS
    MULTICAST              = 11,  // multicast or broadcast that is not for this router
    ND_INVALID             = 12,  // neighbour discovery that is forwarded, fragmented or not for this router
    LINK_LOCAL             = 13,  // link-local addresses are never forwarded (RFC 4291, 3927)
    BLACKHOLE              = 14,
    NO_NEXTHOP             = 15,  // the route's next hop or group is missing or empty
    NEXTHOP_DISCARD        = 16,
    NO_EGRESS_INTERFACE    = 17,
    PUNT_METERED           = 18,
    PACKET_OUT_NOT_ALLOWED = 19,  // the kind of packet-out does not allow this protocol
    PACKET_OUT_INVALID     = 20,  // unknown kind or stage
    NO_POLICY_BINDING      = 21,  // the interface has neither an SPD nor "none"
    LIST_NOT_READY         = 22,  // the SPD's list has no epoch
    INBOUND_DISCARD        = 23,  // SPD-I says discard
    INBOUND_CLEARTEXT      = 24,  // SPD-I says protect, but the packet arrived in clear
    INBOUND_WRONG_SA       = 25,  // decrypted by another bundle than its rule names
    OUTBOUND_DISCARD       = 26,  // SPD-O says discard
    STALE_VERDICT          = 27,  // the list changed while the CPU searched it
    UNKNOWN_SPI            = 28,
    NO_SA                  = 29,  // the bundle has no outbound SA
    NO_ENGINE              = 30,
    SHIM_INVALID           = 31,  // a packet from the engine that is not a valid answer
    ESP_IN_UDP_FRAGMENT    = 32,  // a first fragment of ESP in UDP; no engine can reassemble it
    FRAGMENT_OVERLAP       = 33,  // a fragment that overlaps the TCP header (RFC 1858, RFC 3128)
    SEGMENTS_LEFT          = 34,  // a list applies, and a routing header has segments left
    AH_NO_SA               = 35   // AH for this router, in clear; the router has no SAs of AH
}

const bit<32> DROP_REASONS = 64;   // size of drop_counter

// The result of a lookup in one list of an SPD.
enum bit<8> outcome_t {
    MISS      = 0,
    VERDICT   = 1,
    STALE     = 2,   // the claim's generation is not the list's
    NOT_READY = 3,   // the list has no epoch
    UNPARSED  = 4,   // the parser could not read all fields that rules match
    SEGMENTS  = 5    // the destination that rules match is not the packet's final one
}

// The lookup of one packet in one list. A claim is the verdict of a re-injected packet,
// with the list and the generation that the controller searched.
struct policy_t {
    list_t       list_id;
    bit<1>       is_local;         // inbound: sent to this router; outbound: sent by this router
    bundle_t     carrier;          // inbound: the bundle that decrypted the packet; 0: none
    epoch_t      epoch;
    generation_t generation;
    rule_set_t   rule_set;         // 0: the rule tables have no entries of this list
    list_t       claim_list_id;
    generation_t claim_generation;
    verdict_t    claim_verdict;
    bundle_t     claim_bundle;
    rule_t       claim_rule;
    epoch_t      flow_epoch;
    outcome_t    outcome;
    verdict_t    verdict;
    bundle_t     bundle;
    rule_t       rule;
}

struct metadata_t {
    port_id_t       ingress_port;
    port_id_t       egress_port;

    // Set by the parser.
    vlan_id_t       vlan_id;
    bit<8>          protocol;           // after the extension headers that the parser walked
    bit<16>         extensions_length;  // bytes of IPv4 options, or of IPv6 extension headers walked
    bit<8>          options_left;       // bytes of IPv4 options not yet walked
    bit<8>          headers_walked;     // number of options or extension headers extracted so far
    bit<1>          is_ip;
    bit<1>          malformed;
    bit<1>          checksum_error;
    bit<1>          frame_too_short;    // the frame is shorter than its IP header says
    bit<1>          source_routed;
    bit<1>          has_segments_left;  // an IPv6 routing header of a type other than 0 has segments left
    bit<1>          options_unparsed;   // IPv4 options that the parser could not walk
    bit<1>          chain_too_deep;     // IPv6 extension headers that the parser could not walk
    bit<1>          overlaps_header;    // a fragment that starts inside the TCP header
    fragment_t      fragment;
    bit<1>          has_transport;      // a header after the IP headers was parsed
    bit<16>         src_port;           // TCP, UDP, SCTP; else 0
    bit<16>         dst_port;           // TCP, UDP, SCTP; ICMP: type and code; mobility: type; else 0

    // Facts common to IPv4 and IPv6 (summary.p4).
    bit<16>         ether_type;         // EtherType of the payload, after a VLAN tag or a shim
    bit<8>          ttl;
    bit<16>         ip_length;          // bytes of the whole IP packet
    bit<16>         header_length;      // bytes of all IP headers
    bit<16>         transport_length;   // bytes after all IP headers
    bit<16>         length_deficit;     // bytes by which the IP headers exceed the packet
    bit<1>          has_esp;            // the IP packet contains an ESP header, directly or in UDP
    bit<1>          is_group;           // multicast or broadcast destination address
    bit<1>          is_link_local;      // the source or destination address is link-local

    // The packet's path through the stages.
    fate_t          fate;
    stage_t         entry;              // the first stage that this packet passes
    stage_t         stage;              // the stage that decided to punt
    drop_reason_t   drop_reason;
    punt_reason_t   punt_reason;
    punt_reason_t   non_ip_reason;      // of ARP, LLDP and IS-IS; else NONE
    origin_t        origin;

    // Layer 3.
    l3_if_t         ingress_l3_if;
    l3_if_t         egress_l3_if;
    vrf_t           vrf;
    role_t          role;
    bit<1>          is_group_frame;     // multicast or broadcast MAC address
    bit<1>          is_local;           // for this router
    nexthop_id_t    nexthop_id;
    group_id_t      group_id;
    bit<32>         flow_hash;
    mac_addr_t      neighbor_mac;
    bit<1>          neighbor_unresolved;
    bit<1>          keep_macs;          // the packet-out has its MAC addresses already
    vlan_id_t       egress_vlan_id;
    mac_addr_t      egress_mac;
    bit<16>         mtu;                // of the egress interface, in bytes of IP packet
    bit<16>         outer_length;       // bytes of the IP packet plus the largest overhead of its protection
    bit<16>         mtu_excess;         // bytes by which outer_length exceeds the MTU
    bit<16>         path_mtu_excess;    // bytes by which outer_length exceeds the bundle's path MTU

    // Policy (policy.p4 and the stages that use it).
    policy_t        inbound;
    policy_t        outbound;
    bundle_t        bundle;             // decrypted this packet, or the packet that this ICMP error quotes; 0: none
    bundle_t        sa_bundle;          // the bundle that is to protect the packet; 0: none
    sa_t            sa;
    engine_t        engine;
    shim_kind_t     shim_kind;          // NONE: the packet does not go to the engine
    bit<16>         path_mtu;           // of the bundle's path, in bytes of IP packet
}

action drop_packet(inout metadata_t meta, in drop_reason_t reason) {
    meta.fate = fate_t.DROP;
    meta.drop_reason = reason;
}

action punt_packet(inout metadata_t meta, in stage_t stage, in punt_reason_t reason) {
    meta.fate = fate_t.PUNT;
    meta.stage = stage;
    meta.punt_reason = reason;
}

#endif
