// SPDX-License-Identifier: Apache-2.0
//! Tests direct counters and meters. Clients can read and write them as a part of their entry, or as entities of
//! their own.

use super::prelude::*;

fn counting(a: u128, data: CounterData) -> TableEntry {
    TableEntry {
        counter_data: Some(data),
        ..exact_entry(a, 5)
    }
}

fn metering(a: u128, config: Option<MeterConfig>) -> TableEntry {
    TableEntry {
        meter_config: config,
        ..exact_entry(a, 5)
    }
}

fn direct_counter(a: u128, data: Option<CounterData>) -> DirectCounterEntry {
    DirectCounterEntry {
        table_entry: Some(key_of(&exact_entry(a, 5))),
        data,
    }
}

fn direct_meter(a: u128, config: Option<MeterConfig>) -> DirectMeterEntry {
    DirectMeterEntry {
        table_entry: Some(key_of(&exact_entry(a, 5))),
        config,
        counter_data: None,
    }
}

fn wants_counter() -> TableEntry {
    TableEntry {
        counter_data: Some(CounterData::default()),
        ..all_of("exact_table")
    }
}

fn wants_meter() -> TableEntry {
    TableEntry {
        meter_config: Some(MeterConfig::default()),
        ..all_of("exact_table")
    }
}

section! { "Direct Resources";

async fn a_counter_begins_at_zero(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.reads_back(wants_counter(), counting(1, counted(0, 0))).await?;
}

async fn a_counter_begins_where_insert_says(t) {
    let mut c = t.primary().await?;
    c.insert(counting(1, counted(7, 700)), OK).await?;
    c.reads_back(wants_counter(), counting(1, counted(7, 700))).await?;
}

async fn a_counter_counts_packets_and_bytes(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    for _ in 0..3 {
        c.walk(Walk::Exact, Frame { a: 1, ..Frame::default() }).await?;
    }
    let read = c.entries(wants_counter()).await?;
    let data = read[0].counter_data.unwrap_or_default();
    same(data.packet_count, 3, "packets")?;
    // The counted size may include the packet-out's header, but must be the same for each packet.
    let frame = Frame::default().bytes().len() as i64;
    holds(data.byte_count == 3 * frame || data.byte_count == 3 * (frame + 4), format!("{data:?}"))?;
}

async fn a_modify_without_counter_data_keeps_it(t) {
    let mut c = t.primary().await?;
    c.insert(counting(1, counted(7, 700)), OK).await?;
    c.modify(exact_entry(1, 6), OK).await?;
    let read = c.entries(wants_counter()).await?;
    same(read[0].counter_data, Some(counted(7, 700)), "the counter")?;
}

async fn a_modify_with_counter_data_sets_it(t) {
    let mut c = t.primary().await?;
    c.insert(counting(1, counted(7, 700)), OK).await?;
    c.modify(counting(1, counted(1, 2)), OK).await?;
    c.reads_back(wants_counter(), counting(1, counted(1, 2))).await?;
}

async fn a_read_without_counter_data_gives_none(t) {
    let mut c = t.primary().await?;
    c.insert(counting(1, counted(7, 700)), OK).await?;
    c.reads_back(all_of("exact_table"), exact_entry(1, 5)).await?;
}

async fn a_reinserted_entry_counts_from_zero(t) {
    let mut c = t.primary().await?;
    c.insert(counting(1, counted(7, 700)), OK).await?;
    c.delete(exact_entry(1, 5), OK).await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.reads_back(wants_counter(), counting(1, counted(0, 0))).await?;
}

async fn a_meter_has_no_configuration_by_default(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.reads_back(wants_meter(), exact_entry(1, 5)).await?;
    same(c.walk(Walk::Exact, Frame { a: 1, ..Frame::default() }).await?.color, 0, "the colour")?;
}

async fn a_meter_is_configured_by_insert(t) {
    let mut c = t.primary().await?;
    let written = metering(1, Some(rates(1, 1, 1, 1)));
    c.insert(written.clone(), OK).await?;
    c.reads_back(wants_meter(), written).await?;
    let frame = Frame { a: 1, ..Frame::default() };
    same(c.walk(Walk::Exact, frame).await?.color, 0, "the first packet's colour")?;
    same(c.walk(Walk::Exact, frame).await?.color, 2, "the second packet's colour")?;
}

async fn a_modify_without_meter_config_resets_it(t) {
    let mut c = t.primary().await?;
    c.insert(metering(1, Some(rates(1, 1, 1, 1))), OK).await?;
    c.modify(exact_entry(1, 5), OK).await?;
    c.reads_back(wants_meter(), exact_entry(1, 5)).await?;
    for _ in 0..3 {
        same(c.walk(Walk::Exact, Frame { a: 1, ..Frame::default() }).await?.color, 0, "the colour")?;
    }
}

async fn a_counter_of_a_table_without_one_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { counter_data: Some(counted(0, 0)), ..lpm_entry(1 << 24, 8, 1) }, INVALID).await?;
}

async fn a_meter_of_a_table_without_one_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { meter_config: Some(rates(1, 1, 1, 1)), ..lpm_entry(1 << 24, 8, 1) }, INVALID).await?;
}

async fn a_direct_counter_is_set_by_modify(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.modify(direct_counter(1, Some(counted(3, 4))), OK).await?;
    c.reads_back(direct_counter(1, None), direct_counter(1, Some(counted(3, 4)))).await?;
}

async fn a_direct_counter_without_data_is_not_modified(t) {
    let mut c = t.primary().await?;
    c.insert(counting(1, counted(7, 8)), OK).await?;
    c.modify(direct_counter(1, None), OK).await?;
    c.reads_back(direct_counter(1, None), direct_counter(1, Some(counted(7, 8)))).await?;
}

async fn a_direct_counter_cannot_be_inserted_or_deleted(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.insert(direct_counter(1, Some(counted(3, 4))), INVALID).await?;
    c.delete(direct_counter(1, None), INVALID).await?;
}

async fn a_direct_counter_of_an_absent_entry_is_not_found(t) {
    let mut c = t.primary().await?;
    c.modify(direct_counter(1, Some(counted(3, 4))), NOT_FOUND).await?;
    c.read_refused(direct_counter(1, None), NOT_FOUND).await?;
}

async fn a_direct_counter_without_table_entry_is_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(DirectCounterEntry { table_entry: None, data: Some(counted(1, 1)) }, INVALID).await?;
}

async fn direct_counters_of_a_table_are_read_at_once(t) {
    let mut c = t.primary().await?;
    c.insert(counting(1, counted(1, 10)), OK).await?;
    c.insert(counting(2, counted(2, 20)), OK).await?;
    let all = DirectCounterEntry { table_entry: Some(all_of("exact_table")), data: None };
    let expected = vec![
        direct_counter(1, Some(counted(1, 10))).into_entity(),
        direct_counter(2, Some(counted(2, 20))).into_entity(),
    ];
    c.reads(all, expected).await?;
}

async fn a_direct_meter_is_configured_by_modify(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    let config = rates(100, 10, 200, 20);
    c.modify(direct_meter(1, Some(config)), OK).await?;
    c.reads_back(direct_meter(1, None), direct_meter(1, Some(config))).await?;
}

async fn a_direct_meter_without_config_is_reset(t) {
    let mut c = t.primary().await?;
    c.insert(metering(1, Some(rates(1, 1, 1, 1))), OK).await?;
    c.modify(direct_meter(1, None), OK).await?;
    c.reads_back(direct_meter(1, None), direct_meter(1, None)).await?;
}

async fn a_direct_meter_cannot_be_inserted_or_deleted(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.insert(direct_meter(1, Some(rates(1, 1, 1, 1))), INVALID).await?;
    c.delete(direct_meter(1, None), INVALID).await?;
}

async fn a_direct_meter_of_an_absent_entry_is_not_found(t) {
    let mut c = t.primary().await?;
    c.modify(direct_meter(1, Some(rates(1, 1, 1, 1))), NOT_FOUND).await?;
    c.read_refused(direct_meter(1, None), NOT_FOUND).await?;
}

async fn a_meters_packets_are_counted_by_colour(t) {
    let mut c = t.primary().await?;
    c.insert(metering(1, Some(rates(1, 1, 1, 2))), OK).await?;
    for color in [0, 1, 2] {
        let seen = c.walk(Walk::Exact, Frame { a: 1, ..Frame::default() }).await?;
        same(seen.color, color, "the colour")?;
    }
    let wanted = TableEntry { meter_counter_data: Some(MeterCounterData::default()), ..all_of("exact_table") };
    let (read, status) = c.try_read(vec![wanted.clone().into_entity()]).await;
    if status.is_err() {
        c.read_refused(wanted, Optional(OK)).await?;
    }
    let Some(entity::Entity::TableEntry(found)) = read.into_iter().next().and_then(|e| e.entity) else {
        return Err(Failure::Failed("no table entry".into()));
    };
    let Some(counters) = found.meter_counter_data else {
        return Err(Failure::Failed("no counters by colour, and no UNIMPLEMENTED".into()));
    };
    for data in [counters.green, counters.yellow, counters.red] {
        same(data.map(|data| data.packet_count), Some(1), "packets of a colour")?;
    }
}

async fn counters_by_colour_can_only_be_written_to_zero(t) {
    let mut c = t.primary().await?;
    let with = |packets| MeterCounterData { green: Some(counted(packets, 0)), yellow: None, red: None };
    c.insert(TableEntry { meter_counter_data: Some(with(0)), ..exact_entry(1, 5) }, Optional(OK)).await?;
    c.modify(TableEntry { meter_counter_data: Some(with(1)), ..exact_entry(1, 5) }, INVALID).await?;
}

}
