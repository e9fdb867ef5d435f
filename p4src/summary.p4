// SPDX-License-Identifier: Apache-2.0
//
// Copies to metadata what IPv4 and IPv6 headers have in common, so that later stages do
// not distinguish the versions.

#ifndef SLUICE_SUMMARY_P4
#define SLUICE_SUMMARY_P4

control summary(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.vlan.isValid()) {
            meta.ether_type = hdr.vlan.ether_type;
        } else if (hdr.shim.isValid()) {
            meta.ether_type = hdr.shim.ether_type;
        } else {
            meta.ether_type = hdr.ethernet.ether_type;
        }

        if (hdr.ipv4.isValid()) {
            meta.ttl = hdr.ipv4.ttl;
            meta.ip_length = hdr.ipv4.total_length;
            meta.header_length = meta.extensions_length + 20;
            if (hdr.ipv4.dst_addr[31:28] == 0xe || hdr.ipv4.dst_addr == 0xffffffff) {
                meta.is_group = 1;
            }
            if (hdr.ipv4.src_addr[31:16] == 0xa9fe || hdr.ipv4.dst_addr[31:16] == 0xa9fe) {
                meta.is_link_local = 1;
            }
        } else if (hdr.ipv6.isValid()) {
            meta.ttl = hdr.ipv6.hop_limit;
            meta.ip_length = hdr.ipv6.payload_length |+| 40;
            meta.header_length = meta.extensions_length + 40;
            if (hdr.ipv6.dst_addr[127:120] == 0xff) {
                meta.is_group = 1;
            }
            if (hdr.ipv6.src_addr[127:118] == 0x3fa || hdr.ipv6.dst_addr[127:118] == 0x3fa) {
                meta.is_link_local = 1;
            }
        }

        // These lengths are computed in a second step, because hardware computes only one
        // step in each of its stages.
        if (meta.is_ip == 1) {
            meta.outer_length = meta.ip_length;
            meta.transport_length = meta.ip_length |-| meta.header_length;
            meta.length_deficit = meta.header_length |-| meta.ip_length;
        }
        // Bytes behind the end of the IP packet are padding, even if they look like ESP.
        if (hdr.esp.isValid() && (!hdr.udp.isValid() || (meta.transport_length & 0xfff0) != 0)) {
            meta.has_esp = 1;
        }
    }
}

#endif
