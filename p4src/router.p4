// SPDX-License-Identifier: Apache-2.0
//
// Lists the stages of the router in order. Each stage is a separate file, and first tests
// whether it applies to the packet. After a drop or a punt, the remaining stages are
// skipped. A packet-out skips the stages before the one at which it enters
// (packet_io.p4). v1model/main.p4 and tna/main.p4 include this file.

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
#include "multipath.p4"
#include "routing.p4"
#include "sa_bundle.p4"
#include "flow_cache.p4"
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
        l3_admit.apply(hdr, meta);
        ipsec_inbound.apply(hdr, meta);
        local_delivery.apply(meta);
        routing.apply(hdr, meta);
        flow_cache.apply(hdr, meta);
        exceptions.apply(hdr, meta);
        rewrite.apply(hdr, meta);
        to_engine.apply(hdr, meta);
        punt.apply(hdr, meta);
    }
}

#endif
