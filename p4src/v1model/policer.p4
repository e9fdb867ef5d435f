// SPDX-License-Identifier: Apache-2.0
//
// Meters each punt reason in packets (on v1model).

#ifndef SLUICE_POLICER_P4
#define SLUICE_POLICER_P4

control punt_policer(inout metadata_t meta) {
    meter<bit<8>>(PUNT_REASONS, MeterType.packets) punt_meter;
    bit<2> color = 0;

    apply {
        punt_meter.execute_meter((bit<8>)meta.punt_reason, color);
        if (color == 2) {
            drop_packet(meta, drop_reason_t.PUNT_METERED);
        }
    }
}

#endif
