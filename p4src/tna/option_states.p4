// SPDX-License-Identifier: Apache-2.0
//
// Defines the parser states for IPv4 options and IPv6 extension headers on TNA.
// frame_parser (parser.p4) includes this file.

    state parse_ipv4_options {
        meta.options_unparsed = 1;
        transition accept;
    }

    state chain_too_deep {
        meta.chain_too_deep = 1;
        transition accept;
    }

    // The CPU reads whether segments are left.
    state parse_ipv6_routing {
        transition chain_too_deep;
    }

    // Walks only extension headers of eight bytes (length field 0).
    state parse_ipv6_extension {
        transition select(packet.lookahead<bit<16>>()[7:0]) {
            0:       extract_ipv6_extension;
            default: chain_too_deep;
        }
    }

    state extract_ipv6_extension {
        packet.extract(hdr.ipv6_extension[0]);
        transition select(hdr.ipv6_extension[0].next_header) {
            PROTOCOL_IPV6_HOP: chain_too_deep;
            PROTOCOL_ROUTING:  chain_too_deep;
            PROTOCOL_DEST_OPT: chain_too_deep;
            PROTOCOL_FRAGMENT: parse_ipv6_fragment_behind_extension;
            TRANSPORT_STATES
        }
    }

    state parse_ipv6_fragment {
        packet.extract(hdr.ipv6_extension[0]);
        transition select(hdr.ipv6_extension[0].body[47:35], hdr.ipv6_extension[0].body[32:32]) {
            (0, 0):  parse_ipv6_after_fragment_header;
            (0, 1):  parse_ipv6_first_fragment;
            default: later_fragment;
        }
    }

    state parse_ipv6_first_fragment {
        meta.fragment = fragment_t.FIRST;
        transition parse_ipv6_after_fragment_header;
    }

    state parse_ipv6_after_fragment_header {
        transition select(hdr.ipv6_extension[0].next_header) {
            PROTOCOL_IPV6_HOP: chain_too_deep;
            PROTOCOL_ROUTING:  chain_too_deep;
            PROTOCOL_DEST_OPT: chain_too_deep;
            PROTOCOL_FRAGMENT: chain_too_deep;
            TRANSPORT_STATES
        }
    }

    // Parses a fragment header after another extension header.
    state parse_ipv6_fragment_behind_extension {
        packet.extract(hdr.ipv6_extension[1]);
        transition select(hdr.ipv6_extension[1].body[47:35], hdr.ipv6_extension[1].body[32:32]) {
            (0, 0):  parse_ipv6_after_second;
            (0, 1):  parse_ipv6_first_fragment_behind_second;
            default: later_fragment;
        }
    }

    state parse_ipv6_first_fragment_behind_second {
        meta.fragment = fragment_t.FIRST;
        transition parse_ipv6_after_second;
    }

    state parse_ipv6_after_second {
        transition select(hdr.ipv6_extension[1].next_header) {
            PROTOCOL_IPV6_HOP: chain_too_deep;
            PROTOCOL_ROUTING:  chain_too_deep;
            PROTOCOL_DEST_OPT: chain_too_deep;
            PROTOCOL_FRAGMENT: chain_too_deep;
            TRANSPORT_STATES
        }
    }

    // A UDP datagram below 16 bytes has no room for an ESP header. Frames on the wire have
    // at least 60 bytes, so the lookahead always finds four bytes.
    state parse_nat_traversal {
        transition select(hdr.udp.length) {
            0 &&& 0xfff0: accept;
            default:      parse_nat_traversal_marker;
        }
    }
