// SPDX-License-Identifier: Apache-2.0
//
// Checks incoming packets against SPD-I (RFC 4301, 5.2), before they are delivered
// or routed.
//
//   ESP to this router: a packet with a known SPI goes to the engine of its SA, and
//       a fragment goes to the engine that reassembles. ESP with an unknown SPI is dropped.
//   AH to this router: dropped if a list applies, since no AH packet has an SA here.
//   In clear: the verdict of the interface's inbound list must be BYPASS.
//   Decrypted: the verdict of the inbound list of the SA's SPD must be PROTECT, with
//       the bundle that carried the packet.
//   Re-injected: the claimed verdict must have the current generation of the list.

#ifndef SLUICE_IPSEC_INBOUND_P4
#define SLUICE_IPSEC_INBOUND_P4

// Later fragments of ESP have no SPI. If first fragments went to the engine of their SA,
// no engine would get all fragments of a packet. So all ESP fragments of a VRF go to one
// engine, and the shim names neither bundle nor SA. That engine has every inbound SA of
// the VRF. The engine reassembles the packet and finds the SA by the SPI.
//
// Fragments of ESP in UDP cannot be reassembled. Later fragments look like those of any
// UDP datagram, for example of IKE, so the rules for UDP apply to them. A first fragment
// with an ESP header is dropped under a separate reason, so the datagram is never
// complete. Peers that respect the path MTU send no such fragments.

control ipsec_inbound(in headers_t hdr, inout metadata_t meta) {
    policy_lookup(stage_t.INBOUND) inbound;
    bit<1> carrier_matches;

    action decrypt(@refers_to(bundle_binding, bundle) bundle_t bundle, @refers_to(engine, engine) engine_t engine, sa_t sa) {
        meta.fate = fate_t.ENGINE;
        meta.shim_kind = shim_kind_t.DECRYPT;
        meta.sa_bundle = bundle;
        meta.engine = engine;
        meta.sa = sa;
    }

    action unknown_spi() {
        drop_packet(meta, drop_reason_t.UNKNOWN_SPI);
    }

    // Inbound SAs by SPI. This router chose the SPIs, so the SPI alone identifies the SA in
    // its VRF (RFC 4301, 4.1).
    table inbound_sa {
        key = {
            meta.vrf:    exact @name("vrf");
            hdr.esp.spi: exact @name("spi");
        }
        actions = {
            decrypt;
            @defaultonly unknown_spi;
        }
        const default_action = unknown_spi();
        size = 16384;
    }

    action reassemble(@refers_to(engine, engine) engine_t engine) {
        decrypt(0, engine, 0);
    }

    // Maps a VRF to the engine that reassembles ESP fragments. A VRF without SA has no entry.
    table reassembly_engine {
        key = {
            meta.vrf: exact @name("vrf");
        }
        actions = {
            reassemble;
            @defaultonly unknown_spi;
        }
        const default_action = unknown_spi();
        size = 1024;
    }

    action check_inbound(@refers_to(inbound.list_state, list_id) list_t list_id) {
        meta.inbound.list_id = list_id;
    }

    action no_inbound_policy() {
    }

    action not_bound() {
        drop_packet(meta, drop_reason_t.NO_POLICY_BINDING);
    }

    // Maps an interface to the inbound list of its SPD. An interface without SPD has the
    // action no_inbound_policy. An interface without an entry drops packets.
    table inbound_binding {
        key = {
            meta.ingress_l3_if: exact @name("l3_if");
        }
        actions = {
            check_inbound;
            no_inbound_policy;
            @defaultonly not_bound;
        }
        const default_action = not_bound();
        size = 1024;
    }

    // Maps a bundle, within its VRF, to the inbound list of its SPD. The interface by which
    // the ESP packet arrived does not matter.
    table bundle_binding {
        key = {
            meta.vrf:    exact @name("vrf");
            meta.bundle: exact @name("bundle");
        }
        actions = {
            check_inbound;
            @defaultonly not_bound;
        }
        const default_action = not_bound();
        size = 16384;
    }

    action accept_packet() {
    }

    action refuse(drop_reason_t reason) {
        drop_packet(meta, reason);
    }

    action ask(punt_reason_t reason) {
        punt_packet(meta, stage_t.INBOUND, reason);
    }

    table inbound_decision {
        key = {
            meta.inbound.outcome: ternary;
            meta.inbound.verdict: ternary;
            meta.bundle:          ternary;
            carrier_matches:      ternary;
            meta.fragment:        ternary;
        }
        actions = {
            accept_packet;
            refuse;
            ask;
        }
        const default_action = refuse(drop_reason_t.INBOUND_DISCARD);
        const entries = {
            (outcome_t.MISS, _, _, _, fragment_t.WHOLE):     ask(punt_reason_t.INBOUND_MISS);
            (outcome_t.MISS, _, _, _, _):                    ask(punt_reason_t.FRAGMENT);
            (outcome_t.UNPARSED, _, _, _, _):                ask(punt_reason_t.EXTENSION_HEADERS);
            (outcome_t.SEGMENTS, _, _, _, _):                refuse(drop_reason_t.SEGMENTS_LEFT);
            (outcome_t.STALE, _, _, _, _):                   refuse(drop_reason_t.STALE_VERDICT);
            (outcome_t.NOT_READY, _, _, _, _):               refuse(drop_reason_t.LIST_NOT_READY);
            (outcome_t.VERDICT, verdict_t.DISCARD, _, _, _): refuse(drop_reason_t.INBOUND_DISCARD);
            (outcome_t.VERDICT, verdict_t.BYPASS, 0, _, _):  accept_packet();
            (outcome_t.VERDICT, verdict_t.PROTECT, 0, _, _): refuse(drop_reason_t.INBOUND_CLEARTEXT);
            (outcome_t.VERDICT, _, 0, _, _):                 refuse(drop_reason_t.INBOUND_DISCARD);
            (outcome_t.VERDICT, verdict_t.PROTECT, _, 1, _): accept_packet();
            (outcome_t.VERDICT, _, _, _, _):                 refuse(drop_reason_t.INBOUND_WRONG_SA);
        }
    }

    apply {
        if (meta.fate == fate_t.CONTINUE && meta.is_ip == 1
            && meta.origin != origin_t.LOCAL && meta.origin != origin_t.ENCRYPTED) {
            local_lookup.apply(hdr, meta);
            bool may_be_sealed = meta.is_local == 1 && meta.bundle == 0 && meta.entry == stage_t.ADMIT;
            if (may_be_sealed && meta.has_esp == 1) {
                if (meta.fragment != fragment_t.WHOLE && hdr.udp.isValid()) {
                    drop_packet(meta, drop_reason_t.ESP_IN_UDP_FRAGMENT);
                } else {
                    inbound_sa.apply();
                    if (meta.fate == fate_t.ENGINE && meta.fragment != fragment_t.WHOLE) {
                        reassembly_engine.apply();
                    }
                }
            } else if (may_be_sealed && meta.fragment == fragment_t.LATER && meta.protocol == PROTOCOL_ESP) {
                reassembly_engine.apply();
            } else {
                if (meta.bundle == 0) {
                    inbound_binding.apply();
                } else {
                    bundle_binding.apply();
                }
                if (meta.fate == fate_t.CONTINUE && meta.inbound.list_id != 0
                    && may_be_sealed && meta.protocol == PROTOCOL_AH) {
                    drop_packet(meta, drop_reason_t.AH_NO_SA);
                } else if (meta.fate == fate_t.CONTINUE && meta.inbound.list_id != 0) {
                    meta.inbound.is_local = meta.is_local;
                    meta.inbound.carrier = meta.bundle;
                    inbound.apply(hdr, meta, meta.inbound);
                    carrier_matches = 0;
                    if (meta.inbound.bundle == meta.bundle) {
                        carrier_matches = 1;
                    }
                    inbound_decision.apply();
                }
            }
        }
    }
}

#endif
