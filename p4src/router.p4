// SPDX-License-Identifier: Apache-2.0
//
// The router. Everything a packet meets, in the order it meets it; each stage is
// a file of its own. Compiled through v1model/main.p4 or tna/main.p4.

#ifndef SLUICE_ROUTER_P4
#define SLUICE_ROUTER_P4

#include "types.p4"
#include "headers.p4"
#include "parser.p4"
#include "summary.p4"
#include "packet_io.p4"
#include "engine_return.p4"
#include "l3_admit.p4"
#include "policy.p4"
#include "local_delivery.p4"
#include "ipsec_inbound.p4"
#include "routing.p4"
#include "multipath.p4"
#include "flow_cache.p4"
#include "sa_bundle.p4"
#include "exceptions.p4"
#include "rewrite.p4"
#include "policer.p4"
#include "punt.p4"

control router(inout headers_t hdr, inout metadata_t meta) {
    apply {
        meta.entry = stage_t.ADMIT;
        summary.apply(hdr, meta);
        non_ip.apply(hdr, meta);
        packet_io.apply(hdr, meta);

        if (meta.fate == fate_t.CONTINUE && meta.entry == stage_t.ADMIT) {
            l3_admit.apply(hdr, meta);
        }
        if (meta.fate == fate_t.CONTINUE && meta.is_ip == 1
            && meta.origin != origin_t.LOCAL && meta.origin != origin_t.ENCRYPTED) {
            local_lookup.apply(hdr, meta);
            ipsec_inbound.apply(hdr, meta);
        }
        if (meta.fate == fate_t.CONTINUE && (meta.entry == stage_t.ADMIT || meta.entry == stage_t.INBOUND)) {
            local_delivery.apply(meta);
        }
        if (meta.fate == fate_t.CONTINUE && meta.keep_macs == 0) {
            if (meta.entry != stage_t.REWRITE) {
                fib.apply(hdr, meta);
                if (meta.fate == fate_t.CONTINUE && meta.group_id != 0) {
                    multipath.apply(hdr, meta);
                }
            }
            if (meta.fate == fate_t.CONTINUE) {
                nexthop_resolution.apply(meta);
            }
        }
        if (meta.fate == fate_t.CONTINUE && meta.is_ip == 1 && meta.origin != origin_t.ENCRYPTED) {
            flow_cache.apply(hdr, meta);
            if (meta.fate == fate_t.CONTINUE && meta.sa_bundle != 0) {
                sa_bundle.apply(meta);
            }
        }
        if (meta.fate == fate_t.CONTINUE) {
            exceptions.apply(hdr, meta);
        }
        if (meta.fate == fate_t.CONTINUE) {
            rewrite.apply(hdr, meta);
        }
        if (meta.shim_kind != shim_kind_t.NONE && (meta.fate == fate_t.CONTINUE || meta.fate == fate_t.ENGINE)) {
            to_engine.apply(hdr, meta);
        }
        punt.apply(hdr, meta);
    }
}

#endif
