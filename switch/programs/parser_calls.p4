// SPDX-License-Identifier: Apache-2.0
//
// Tests parser operations other than extract: verify, log_msg, setInvalid and sub-parsers. Tests assert and assume in
// a control, because p4c accepts them only there.

#include <core.p4>
#include <v1model.p4>

error {
    NotWelcome
}

header h_t {
    bit<8> op;
    bit<8> value;
    bit<8> verdict;
}

struct headers_t {
    h_t h;
    h_t second;
}

struct meta_t { }

#include "frame.p4"

parser second(packet_in packet, inout headers_t hdr) {
    state start {
        packet.extract(hdr.second);
        transition accept;
    }
}

parser p(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    second() sub;

    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.op) {
            1: checked;
            2: logged;
            4: forgotten;
            5: twice;
            default: accept;
        }
    }
    state checked {
        verify(hdr.h.value < 10, error.NotWelcome);
        hdr.h.value = hdr.h.value + 1;
        transition accept;
    }
    state logged {
        log_msg("in the parser");
        log_msg("value {}", { hdr.h.value });
        transition accept;
    }
    state forgotten {
        hdr.h.setInvalid();
        transition accept;
    }
    state twice {
        sub.apply(packet, hdr);
        transition accept;
    }
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 3) {
            assert(hdr.h.value != 7);
            assume(hdr.h.value != 8);
        }
        if (std.parser_error == error.NotWelcome) {
            hdr.h.verdict = 0xee;
        } else if (hdr.second.isValid()) {
            hdr.h.verdict = hdr.second.value;
        }
    }
}

control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(p(), no_verify(), ingress(), no_egress(), no_update(), deparser()) main;
