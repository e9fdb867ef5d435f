// SPDX-License-Identifier: Apache-2.0
//
// Accepts packets from an ESP engine. The shim says how a packet was protected, so the
// pipeline accepts a shim only from an engine's port, and checks its fields. A decrypted
// packet must name a bundle of the packet's VRF (ipsec_inbound.p4). An encrypted packet
// must be ESP from the local address of its bundle.

#ifndef SLUICE_ENGINE_RETURN_P4
#define SLUICE_ENGINE_RETURN_P4

control engine_return(inout headers_t hdr, inout metadata_t meta) {
    action encrypted() {
        meta.entry = stage_t.ROUTING;
        meta.origin = origin_t.ENCRYPTED;
    }

    action decrypted() {
        meta.origin = origin_t.DECRYPTED;
        meta.bundle = hdr.shim.bundle;
    }

    action refuse(drop_reason_t reason) {
        drop_packet(meta, reason);
    }

    // Encrypted packets are not looked up in a list again. So they must be whole ESP packets,
    // with or without UDP. Encryption yields no other packets.
    table shim_admit {
        key = {
            meta.role:          ternary;
            hdr.shim.isValid(): ternary;
            hdr.shim.kind:      ternary;
            hdr.shim.bundle:    ternary;
            meta.has_esp:       ternary;
            meta.fragment:      ternary;
        }
        actions = {
            encrypted;
            decrypted;
            refuse;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (role_t.ENGINE, false, _, _, _, _): refuse(drop_reason_t.SHIM_INVALID);
            (role_t.ENGINE, true, shim_kind_t.ENCRYPTED, _, 1, fragment_t.WHOLE): encrypted();
            (role_t.ENGINE, true, shim_kind_t.DECRYPTED, 0, _, _): refuse(drop_reason_t.SHIM_INVALID);
            (role_t.ENGINE, true, shim_kind_t.DECRYPTED, _, _, _): decrypted();
            (role_t.ENGINE, true, _, _, _, _): refuse(drop_reason_t.SHIM_INVALID);
            (_, true, _, _, _, _): refuse(drop_reason_t.FORGED_SHIM);
        }
    }

    action from_bundle() {
    }

    // The outer source address of each bundle's tunnel. Encrypted packets must have this address.
    table esp_source_ipv4 {
        key = {
            hdr.shim.vrf:      exact @name("vrf");
            hdr.shim.bundle:   exact @name("bundle");
            hdr.ipv4.src_addr: exact @name("src_addr");
        }
        actions = {
            from_bundle;
            @defaultonly refuse;
        }
        const default_action = refuse(drop_reason_t.SHIM_INVALID);
        size = 16384;
    }

    table esp_source_ipv6 {
        key = {
            hdr.shim.vrf:      exact @name("vrf");
            hdr.shim.bundle:   exact @name("bundle");
            hdr.ipv6.src_addr: exact @name("src_addr");
        }
        actions = {
            from_bundle;
            @defaultonly refuse;
        }
        const default_action = refuse(drop_reason_t.SHIM_INVALID);
        size = 16384;
    }

    apply {
        shim_admit.apply();
        if (meta.origin == origin_t.ENCRYPTED) {
            if (hdr.ipv4.isValid()) {
                esp_source_ipv4.apply();
            } else {
                esp_source_ipv6.apply();
            }
        }
        if (meta.fate == fate_t.CONTINUE && hdr.shim.isValid()) {
            meta.ingress_l3_if = hdr.shim.ingress_l3_if;
            meta.vrf = hdr.shim.vrf;
            hdr.ethernet.ether_type = hdr.shim.ether_type;
            hdr.shim.setInvalid();
        }
    }
}

#endif
