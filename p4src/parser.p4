// SPDX-License-Identifier: Apache-2.0
//
// Parses a frame from Ethernet to the ports. The parser drops nothing: it flags
// inconsistent headers in the metadata, and l3_admit.p4 drops such packets by reason.
//
//   Ethernet [VLAN or shim] --> IPv4 [options] ----+--> TCP, SCTP: ports
//                   \-> IPv6 [extensions] -+--> UDP: ports [--> ESP in UDP]
//                                          +--> ICMP, ICMPv6, ESP, mobility
//
// Ports are read from whole packets and first fragments only. Architectures differ in
// the options and extension headers that they can walk. So each architecture has an
// option_states.p4, which this parser includes. The parser walks the extension headers
// that RFC 4301 (section 4.4.1.1) lists: hop-by-hop, routing, destination options, fragment.

#ifndef SLUICE_PARSER_P4
#define SLUICE_PARSER_P4

// Selects the parser state for the header after all IP headers, by protocol number. Rules
// may match ICMP, ICMPv6 and mobility types over either IP version. So IPv4 and IPv6 parse
// all of them.
#define TRANSPORT_STATES               \
    PROTOCOL_ICMP:     parse_icmp;     \
    PROTOCOL_ICMPV6:   parse_icmp;     \
    PROTOCOL_TCP:      parse_ports;    \
    PROTOCOL_SCTP:     parse_ports;    \
    PROTOCOL_UDP:      parse_udp;      \
    PROTOCOL_ESP:      parse_esp;      \
    PROTOCOL_MOBILITY: parse_mobility; \
    default:           accept;

parser frame_parser(packet_in packet, inout headers_t hdr, inout metadata_t meta) {
    ARCH_PARSER_LOCALS

    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_SHIM: parse_shim;
            default:        accept;
        }
    }

    state parse_shim {
        packet.extract(hdr.shim);
        transition select(hdr.shim.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default:        malformed;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        meta.vlan_id = hdr.vlan.vlan_id;
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default:        accept;
        }
    }

    state malformed {
        meta.malformed = 1;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        meta.is_ip = 1;
        meta.protocol = hdr.ipv4.protocol;
        CHECK_IPV4_CHECKSUM
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 5):         parse_ipv4_fragmentation;
            (4, 0 &&& 0xc): malformed;
            (4, 4):         malformed;
            (4, _):         parse_ipv4_options;
            default:        malformed;
        }
    }

    state parse_ipv4_fragmentation {
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.more_fragments, hdr.ipv4.protocol) {
            (0, 0, _):            parse_ipv4_payload;
            (0, 1, _):            parse_ipv4_first_fragment;
            (1, _, PROTOCOL_TCP): overlapping_fragment;
            default:              later_fragment;
        }
    }

    state parse_ipv4_first_fragment {
        meta.fragment = fragment_t.FIRST;
        transition parse_ipv4_payload;
    }

    // A fragment with offset 8. After reassembly it would replace the TCP flags of the first
    // fragment, although policy has passed that fragment (RFC 3128).
    state overlapping_fragment {
        meta.overlaps_header = 1;
        transition later_fragment;
    }

    state later_fragment {
        meta.fragment = fragment_t.LATER;
        transition accept;
    }

    state parse_ipv4_payload {
        transition select(hdr.ipv4.protocol) {
            TRANSPORT_STATES
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.is_ip = 1;
        meta.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.version) {
            6:       parse_ipv6_next_header;
            default: malformed;
        }
    }

    state parse_ipv6_next_header {
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_IPV6_HOP: parse_ipv6_extension;
            PROTOCOL_ROUTING:  parse_ipv6_routing;
            PROTOCOL_DEST_OPT: parse_ipv6_extension;
            PROTOCOL_FRAGMENT: parse_ipv6_fragment;
            TRANSPORT_STATES
        }
    }

    // Defines parse_ipv4_options, parse_ipv6_extension, parse_ipv6_routing,
    // parse_ipv6_fragment and parse_nat_traversal.
#include "option_states.p4"

    state parse_ports {
        packet.extract(hdr.ports);
        meta.has_transport = 1;
        meta.src_port = hdr.ports.src_port;
        meta.dst_port = hdr.ports.dst_port;
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.has_transport = 1;
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.src_port, hdr.udp.dst_port) {
            (PORT_IKE_NAT_T, _): parse_nat_traversal;
            (_, PORT_IKE_NAT_T): parse_nat_traversal;
            default:             accept;
        }
    }

    // Four zero bytes after the UDP header announce IKE; any other value is the SPI of an
    // ESP packet (RFC 3948). A keep-alive is a single byte. The four bytes may be padding
    // behind the IP packet, so summary.p4 decides whether the packet has ESP (has_esp).
    state parse_nat_traversal_marker {
        transition select(packet.lookahead<bit<32>>()) {
            0:       accept;
            default: parse_esp;
        }
    }

    state parse_icmp {
        packet.extract(hdr.icmp);
        meta.has_transport = 1;
        meta.dst_port = hdr.icmp.type_and_code;
        transition accept;
    }

    state parse_esp {
        packet.extract(hdr.esp);
        meta.has_transport = 1;
        transition accept;
    }

    state parse_mobility {
        packet.extract(hdr.mobility);
        meta.has_transport = 1;
        meta.dst_port = (bit<16>)hdr.mobility.message_type;
        transition accept;
    }
}

control frame_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.shim);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_option);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.ipv6_extension);
        packet.emit(hdr.ports);
        packet.emit(hdr.udp);
        packet.emit(hdr.icmp);
        packet.emit(hdr.esp);
        packet.emit(hdr.mobility);
    }
}

#endif
