// SPDX-License-Identifier: Apache-2.0
//
// Maps a bundle, within its VRF, to its current outbound SA. So a rekey is one write, not
// one write for each flow. Adds the shim and sends packets to the engine of their SA.

#ifndef SLUICE_SA_BUNDLE_P4
#define SLUICE_SA_BUNDLE_P4

control sa_bundle(inout metadata_t meta) {
    action encrypt(@refers_to(engine, engine) engine_t engine, sa_t sa, bit<16> path_mtu, bit<16> overhead) {
        meta.shim_kind = shim_kind_t.ENCRYPT;
        meta.engine = engine;
        meta.sa = sa;
        meta.path_mtu = path_mtu;
        meta.outer_length = meta.ip_length |+| overhead;
    }

    action no_sa() {
        drop_packet(meta, drop_reason_t.NO_SA);
    }

    table outbound_sa {
        key = {
            meta.vrf:       exact @name("vrf");
            meta.sa_bundle: exact @name("bundle");
        }
        actions = {
            encrypt;
            @defaultonly no_sa;
        }
        const default_action = no_sa();
        size = 16384;
    }

    apply {
        outbound_sa.apply();
    }
}

control to_engine(inout headers_t hdr, inout metadata_t meta) {
    DIRECT_COUNTER(engine_counter);

    action set_engine(port_id_t port) {
        meta.egress_port = port;
        engine_counter.count();
    }

    action no_engine() {
        drop_packet(meta, drop_reason_t.NO_ENGINE);
    }

    // Drops packets to an engine whose port is down. The engine's SAs stay in the tables.
    action engine_down() {
        drop_packet(meta, drop_reason_t.NO_ENGINE);
        engine_counter.count();
    }

    table engine {
        key = {
            meta.engine: exact @name("engine");
        }
        actions = {
            set_engine;
            engine_down;
            @defaultonly no_engine;
        }
        const default_action = no_engine();
        counters = engine_counter;
        size = 16;
    }

    apply {
        if (meta.shim_kind != shim_kind_t.NONE
            && (meta.fate == fate_t.CONTINUE || meta.fate == fate_t.ENGINE)) {
            meta.fate = fate_t.CONTINUE;
            engine.apply();
            hdr.shim.setValid();
            hdr.shim.kind = meta.shim_kind;
            hdr.shim.engine = meta.engine;
            hdr.shim.bundle = meta.sa_bundle;
            hdr.shim.sa = meta.sa;
            hdr.shim.ingress_l3_if = meta.ingress_l3_if;
            hdr.shim.vrf = meta.vrf;
            hdr.shim.ether_type = meta.ether_type;
            hdr.ethernet.ether_type = ETHERTYPE_SHIM;
            hdr.vlan.setInvalid();
        }
    }
}

#endif
