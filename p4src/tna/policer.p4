// SPDX-License-Identifier: Apache-2.0
//
// Meters each punt reason in packets (on TNA).

#ifndef SLUICE_POLICER_P4
#define SLUICE_POLICER_P4

control punt_policer(inout metadata_t meta) {
    Meter<bit<8>>(PUNT_REASONS, MeterType_t.PACKETS) punt_meter;

    apply {
        bit<8> color = punt_meter.execute((bit<8>)meta.punt_reason);
        if (color == 3) {
            drop_packet(meta, drop_reason_t.PUNT_METERED);
        }
    }
}

#endif
