// SPDX-License-Identifier: Apache-2.0
//
// Binds the router to v1model, for sluice-switch and BMv2's simple_switch_grpc.

#include "arch.p4"
#include "../router.p4"

parser v1model_parser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default:  parse_frame;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_frame;
    }

    state parse_frame {
        frame_parser.apply(packet, hdr, meta);
        transition accept;
    }
}

control v1model_verify_checksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
              hdr.ipv4.identification, hdr.ipv4.reserved, hdr.ipv4.dont_fragment,
              hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(hdr.ipv4_option[0].isValid() && meta.options_unparsed == 0 && meta.malformed == 0,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
              hdr.ipv4.identification, hdr.ipv4.reserved, hdr.ipv4.dont_fragment,
              hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr,
              hdr.ipv4_option[0].kind, hdr.ipv4_option[0].body,
              hdr.ipv4_option[1].kind, hdr.ipv4_option[1].body,
              hdr.ipv4_option[2].kind, hdr.ipv4_option[2].body,
              hdr.ipv4_option[3].kind, hdr.ipv4_option[3].body,
              hdr.ipv4_option[4].kind, hdr.ipv4_option[4].body,
              hdr.ipv4_option[5].kind, hdr.ipv4_option[5].body,
              hdr.ipv4_option[6].kind, hdr.ipv4_option[6].body,
              hdr.ipv4_option[7].kind, hdr.ipv4_option[7].body,
              hdr.ipv4_option[8].kind, hdr.ipv4_option[8].body,
              hdr.ipv4_option[9].kind, hdr.ipv4_option[9].body },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control v1model_ingress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    // Bytes from the start of the frame to the IP header. In a packet-out, the packet-out
    // header is not subtracted, so a frame that is too short may pass. The controller
    // sends only complete frames.
    bit<16> link_length = 14;
    bit<16> frame_deficit = 0;

    apply {
        meta.ingress_port = standard_metadata.ingress_port;
        if (standard_metadata.parser_error != error.NoError) {
            meta.malformed = 1;
        }
        meta.checksum_error = standard_metadata.checksum_error;
        if (hdr.vlan.isValid()) {
            link_length = 18;
        } else if (hdr.shim.isValid()) {
            link_length = 28;
        }
        if (hdr.ipv4.isValid()) {
            frame_deficit = (hdr.ipv4.total_length |+| link_length) |-| (bit<16>)standard_metadata.packet_length;
        } else if (hdr.ipv6.isValid()) {
            frame_deficit = (hdr.ipv6.payload_length |+| (link_length + 40)) |-| (bit<16>)standard_metadata.packet_length;
        }
        if (frame_deficit != 0) {
            meta.frame_too_short = 1;
        }

        router.apply(hdr, meta);

        if (meta.fate == fate_t.DROP) {
            mark_to_drop(standard_metadata);
        } else {
            standard_metadata.egress_spec = meta.egress_port;
        }
    }
}

// Empty, because ingress makes all decisions.
control v1model_egress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    apply { }
}

control v1model_compute_checksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

V1Switch(v1model_parser(), v1model_verify_checksum(), v1model_ingress(), v1model_egress(),
         v1model_compute_checksum(), frame_deparser()) main;
