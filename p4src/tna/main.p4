// SPDX-License-Identifier: Apache-2.0
//
// Binds the router to TNA (Tofino 1). Ingress makes all decisions, and packets bypass
// egress. The parsers skip the intrinsic metadata in front of the frame.

#include "arch.p4"
#include "../router.p4"

parser tna_ingress_parser(packet_in packet, out headers_t hdr, out metadata_t meta,
                          out ingress_intrinsic_metadata_t ig_intr_md) {
    frame_parser() frame;

    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        transition select(ig_intr_md.ingress_port) {
            CPU_PORT: parse_packet_out;
            default:  parse_frame;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_frame;
    }

    state parse_frame {
        frame.apply(packet, hdr, meta);
        transition accept;
    }
}

control tna_ingress(inout headers_t hdr, inout metadata_t meta,
                    in ingress_intrinsic_metadata_t ig_intr_md,
                    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    apply {
        meta.ingress_port = ig_intr_md.ingress_port;
        if (ig_prsr_md.parser_err != 0) {
            meta.malformed = 1;
        }
        // The parser's checksum does not cover the options. The controller verifies the checksum.
        if (meta.options_unparsed == 1) {
            meta.checksum_error = 0;
        }
        // Sets the protocol after the extension headers that the parser walked.
        if (hdr.ipv6_extension[1].isValid()) {
            meta.protocol = hdr.ipv6_extension[1].next_header;
            meta.extensions_length = 16;
        } else if (hdr.ipv6_extension[0].isValid()) {
            meta.protocol = hdr.ipv6_extension[0].next_header;
            meta.extensions_length = 8;
        }

        router.apply(hdr, meta);

        if (meta.fate == fate_t.DROP) {
            ig_dprsr_md.drop_ctl = 1;
        } else {
            ig_tm_md.ucast_egress_port = meta.egress_port;
            ig_tm_md.bypass_egress = 1;
        }
    }
}

control tna_ingress_deparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                             in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    frame_deparser() frame;

    apply {
        frame.apply(packet, hdr);
    }
}

struct egress_headers_t { }
struct egress_metadata_t { }

parser tna_egress_parser(packet_in packet, out egress_headers_t hdr, out egress_metadata_t meta,
                         out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        packet.extract(eg_intr_md);
        transition accept;
    }
}

control tna_egress(inout egress_headers_t hdr, inout egress_metadata_t meta,
                   in egress_intrinsic_metadata_t eg_intr_md,
                   in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
                   inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
                   inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    apply { }
}

control tna_egress_deparser(packet_out packet, inout egress_headers_t hdr, in egress_metadata_t meta,
                            in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    apply { }
}

Pipeline(tna_ingress_parser(), tna_ingress(), tna_ingress_deparser(),
         tna_egress_parser(), tna_egress(), tna_egress_deparser()) pipe;

Switch(pipe) main;
