// SPDX-License-Identifier: Apache-2.0
//
// TNA: what the parser can walk of IPv4 options and IPv6 extension headers.
// Included into frame_parser (parser.p4).

    state parse_ipv4_options {
        meta.options_unparsed = 1;
        transition accept;
    }

    state chain_too_deep {
        meta.chain_too_deep = 1;
        transition accept;
    }

    // Only extension headers of eight bytes (length field 0).
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
            TRANSPORT_STATES(PROTOCOL_ICMPV6)
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
        meta.is_fragment = 1;
        transition parse_ipv6_after_fragment_header;
    }

    state parse_ipv6_after_fragment_header {
        transition select(hdr.ipv6_extension[0].next_header) {
            PROTOCOL_IPV6_HOP: chain_too_deep;
            PROTOCOL_ROUTING:  chain_too_deep;
            PROTOCOL_DEST_OPT: chain_too_deep;
            PROTOCOL_FRAGMENT: chain_too_deep;
            TRANSPORT_STATES(PROTOCOL_ICMPV6)
        }
    }

    // A fragment header behind another extension header.
    state parse_ipv6_fragment_behind_extension {
        packet.extract(hdr.ipv6_extension[1]);
        transition select(hdr.ipv6_extension[1].body[47:35], hdr.ipv6_extension[1].body[32:32]) {
            (0, 0):  parse_ipv6_after_second;
            (0, 1):  parse_ipv6_first_fragment_behind_second;
            default: later_fragment;
        }
    }

    state parse_ipv6_first_fragment_behind_second {
        meta.is_fragment = 1;
        transition parse_ipv6_after_second;
    }

    state parse_ipv6_after_second {
        transition select(hdr.ipv6_extension[1].next_header) {
            PROTOCOL_IPV6_HOP: chain_too_deep;
            PROTOCOL_ROUTING:  chain_too_deep;
            PROTOCOL_DEST_OPT: chain_too_deep;
            PROTOCOL_FRAGMENT: chain_too_deep;
            TRANSPORT_STATES(PROTOCOL_ICMPV6)
        }
    }
