// SPDX-License-Identifier: Apache-2.0
//
// Defines the parser states for IPv4 options and IPv6 extension headers on v1model. The
// states walk options and headers of any length one by one, and add up the lengths.
// frame_parser (parser.p4) includes this file.

    state parse_ipv4_options {
        meta.options_left = ((bit<8>)hdr.ipv4.ihl - 5) << 2;
        meta.extensions_length = (bit<16>)meta.options_left;
        transition parse_ipv4_option;
    }

    state parse_ipv4_option {
        transition select(meta.options_left, meta.headers_walked) {
            (0, _):            parse_ipv4_fragmentation;
            (_, IPV4_OPTIONS): too_many_ipv4_options;
            default:           parse_ipv4_option_kind;
        }
    }

    state too_many_ipv4_options {
        meta.options_unparsed = 1;
        transition accept;
    }

    state parse_ipv4_option_kind {
        transition select(packet.lookahead<bit<8>>()) {
            0:       parse_ipv4_end_of_options;
            1:       parse_ipv4_no_operation;
            131:     parse_ipv4_source_route;
            137:     parse_ipv4_source_route;
            default: parse_ipv4_sized_option;
        }
    }

    state parse_ipv4_end_of_options {
        packet.extract(hdr.ipv4_option.next, (bit<32>)(meta.options_left - 1) << 3);
        transition parse_ipv4_fragmentation;
    }

    state parse_ipv4_no_operation {
        packet.extract(hdr.ipv4_option.next, 0);
        meta.headers_walked = meta.headers_walked + 1;
        meta.options_left = meta.options_left - 1;
        transition parse_ipv4_option;
    }

    state parse_ipv4_source_route {
        meta.source_routed = 1;
        transition parse_ipv4_sized_option;
    }

    state parse_ipv4_sized_option {
        bit<8> length = packet.lookahead<bit<16>>()[7:0];
        bit<1> fits = (length >= 2 && length <= meta.options_left) ? 1w1 : 0;
        transition select(fits) {
            1:       extract_ipv4_sized_option;
            default: malformed;
        }
    }

    state extract_ipv4_sized_option {
        bit<8> length = packet.lookahead<bit<16>>()[7:0];
        packet.extract(hdr.ipv4_option.next, (bit<32>)(length - 1) << 3);
        meta.headers_walked = meta.headers_walked + 1;
        meta.options_left = meta.options_left - length;
        transition parse_ipv4_option;
    }

    state parse_ipv6_routing {
        transition parse_ipv6_extension;
    }

    state parse_ipv6_extension {
        transition select(meta.headers_walked) {
            IPV6_EXTENSIONS: chain_too_deep;
            default:         extract_ipv6_extension;
        }
    }

    state chain_too_deep {
        meta.chain_too_deep = 1;
        transition accept;
    }

    // A routing header of type 0 with segments left is a source route (RFC 5095). A routing
    // header of another type with segments left names a destination that policy does not
    // see (RFC 8200, 4.4).
    state extract_ipv6_extension {
        bit<32> fixed = packet.lookahead<bit<32>>();
        bit<8> length = fixed[23:16];
        bit<8> routing_type = fixed[15:8];
        bit<8> segments_left = fixed[7:0];
        packet.extract(hdr.ipv6_extension.next, 48 + ((bit<32>)length << 6));
        meta.headers_walked = meta.headers_walked + 1;
        meta.extensions_length = meta.extensions_length + 8 + ((bit<16>)length << 3);
        transition select(meta.protocol, routing_type, segments_left) {
            (PROTOCOL_ROUTING, _, 0): parse_ipv6_after_extension;
            (PROTOCOL_ROUTING, 0, _): parse_ipv6_source_route;
            (PROTOCOL_ROUTING, _, _): parse_ipv6_segments_left;
            default:                  parse_ipv6_after_extension;
        }
    }

    state parse_ipv6_source_route {
        meta.source_routed = 1;
        transition parse_ipv6_after_extension;
    }

    state parse_ipv6_segments_left {
        meta.has_segments_left = 1;
        transition parse_ipv6_after_extension;
    }

    state parse_ipv6_after_extension {
        meta.protocol = hdr.ipv6_extension.last.next_header;
        transition select(hdr.ipv6_extension.last.next_header) {
            PROTOCOL_IPV6_HOP: parse_ipv6_extension;
            PROTOCOL_ROUTING:  parse_ipv6_routing;
            PROTOCOL_DEST_OPT: parse_ipv6_extension;
            PROTOCOL_FRAGMENT: parse_ipv6_fragment;
            TRANSPORT_STATES
        }
    }

    state parse_ipv6_fragment {
        transition select(meta.headers_walked, meta.fragment) {
            (IPV6_EXTENSIONS, _):  chain_too_deep;
            (_, fragment_t.FIRST): nested_fragment;
            default:               extract_ipv6_fragment;
        }
    }

    // A fragment of a fragment. No host sends such a packet, and policy cannot know the
    // protocol and ports before reassembly.
    state nested_fragment {
        meta.fragment = fragment_t.WHOLE;
        transition malformed;
    }

    state extract_ipv6_fragment {
        ipv6_fragment_t fragment = packet.lookahead<ipv6_fragment_t>();
        packet.extract(hdr.ipv6_extension.next, 48);
        meta.headers_walked = meta.headers_walked + 1;
        meta.extensions_length = meta.extensions_length + 8;
        meta.protocol = fragment.next_header;
        transition select(fragment.fragment_offset, fragment.more_fragments) {
            (0, 0):  parse_ipv6_after_extension;   // an atomic fragment is a whole packet (RFC 6946)
            (0, 1):  parse_ipv6_first_fragment;
            default: later_fragment;
        }
    }

    state parse_ipv6_first_fragment {
        meta.fragment = fragment_t.FIRST;
        transition parse_ipv6_after_extension;
    }

    // A UDP datagram below 16 bytes has no room for an ESP header. A frame may end where
    // its IP packet ends, so no bytes behind the packet are parsed.
    state parse_nat_traversal {
        bit<16> payload_length = hdr.ipv4.isValid() ? hdr.ipv4.total_length - 20 : hdr.ipv6.payload_length;
        bit<16> transport_length = payload_length - meta.extensions_length;
        transition select(hdr.udp.length, transport_length) {
            (0 &&& 0xfff0, _): accept;
            (_, 0 &&& 0xfff0): accept;
            default:           parse_nat_traversal_marker;
        }
    }
