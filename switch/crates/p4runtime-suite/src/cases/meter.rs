// SPDX-License-Identifier: Apache-2.0
//! Tests indirect meters with two rates, one rate or two colours, in packets or bytes.

use super::prelude::*;
use crate::bench::Client;
use crate::outcome::Outcome;

/// Values of the packet-out's port that select the meter.
const TWO_RATES: u16 = 0;
const ONE_RATE: u16 = 1;
const TWO_COLORS: u16 = 2;

/// Sends this number of packets through cell 1 of a meter, without delay. Returns the packets' colours.
async fn colors(c: &mut Client, meter: u16, packets: usize) -> Outcome<Vec<u128>> {
    let mut colors = Vec::new();
    for _ in 0..packets {
        let frame = Frame {
            port: meter,
            index: 1,
            ..Frame::default()
        };
        colors.push(c.walk(Walk::Cells, frame).await?.color);
    }
    Ok(colors)
}

fn with_colors(packets: Option<i64>) -> MeterEntry {
    let data = packets.map(|packets| counted(packets, 0));
    let colors = MeterCounterData {
        green: data,
        yellow: None,
        red: None,
    };
    MeterEntry {
        counter_data: Some(colors),
        ..meter("two_rates", Some(1), None)
    }
}

section! { "MeterEntry";

async fn without_configuration_all_is_green(t) {
    let mut c = t.primary().await?;
    same(colors(&mut c, TWO_RATES, 4).await?, vec![0; 4], "colours")?;
}

async fn a_meter_without_configuration_reads_without(t) {
    let mut c = t.primary().await?;
    c.reads_back(meter("two_rates", Some(1), None), meter("two_rates", Some(1), None)).await?;
}

async fn two_rates_give_three_colors(t) {
    let mut c = t.primary().await?;
    c.modify(meter("two_rates", Some(1), Some(rates(1, 1, 1, 3))), OK).await?;
    same(colors(&mut c, TWO_RATES, 4).await?, vec![0, 1, 1, 2], "colours")?;
}

async fn one_rate_gives_three_colors(t) {
    let mut c = t.primary().await?;
    let config = MeterConfig { eburst: 2, ..rates(1, 1, 1, 1) };
    c.modify(meter("one_rate", Some(1), Some(config)), OK).await?;
    same(colors(&mut c, ONE_RATE, 4).await?, vec![0, 1, 1, 2], "colours")?;
}

async fn one_rate_gives_two_colors(t) {
    let mut c = t.primary().await?;
    c.modify(meter("two_colors", Some(1), Some(rates(1, 2, 1, 2))), OK).await?;
    same(colors(&mut c, TWO_COLORS, 4).await?, vec![0, 0, 2, 2], "colours")?;
}

async fn a_two_color_configuration_marks_alike_in_all_types(t) {
    let mut c = t.primary().await?;
    for (name, which) in [("two_rates", TWO_RATES), ("one_rate", ONE_RATE), ("two_colors", TWO_COLORS)] {
        c.modify(meter(name, Some(1), Some(rates(1, 2, 1, 2))), OK).await?;
        same(colors(&mut c, which, 4).await?, vec![0, 0, 2, 2], name)?;
    }
}

async fn modify_without_config_resets_it(t) {
    let mut c = t.primary().await?;
    c.modify(meter("two_rates", Some(1), Some(rates(1, 1, 1, 1))), OK).await?;
    c.modify(meter("two_rates", Some(1), None), OK).await?;
    c.reads_back(meter("two_rates", Some(1), None), meter("two_rates", Some(1), None)).await?;
    same(colors(&mut c, TWO_RATES, 4).await?, vec![0; 4], "colours")?;
}

async fn modify_without_index_configures_all_cells(t) {
    let mut c = t.primary().await?;
    let config = Some(rates(10, 1, 20, 2));
    c.modify(meter("two_rates", None, config), OK).await?;
    let all = (0..4).map(|index| meter("two_rates", Some(index), config).into_entity()).collect();
    c.reads(meter("two_rates", None, None), all).await?;
}

async fn eburst_of_a_two_rate_meter_is_invalid(t) {
    let mut c = t.primary().await?;
    let config = MeterConfig { eburst: 1, ..rates(1, 1, 2, 2) };
    c.modify(meter("two_rates", Some(1), Some(config)), INVALID).await?;
}

async fn two_rates_of_a_one_rate_meter_are_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(meter("one_rate", Some(1), Some(rates(1, 1, 2, 1))), INVALID).await?;
    c.modify(meter("one_rate", Some(1), Some(rates(1, 1, 1, 2))), INVALID).await?;
}

async fn two_rates_or_eburst_of_a_two_color_meter_are_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(meter("two_colors", Some(1), Some(rates(1, 1, 2, 1))), INVALID).await?;
    let config = MeterConfig { eburst: 1, ..rates(1, 1, 1, 1) };
    c.modify(meter("two_colors", Some(1), Some(config)), INVALID).await?;
}

async fn eburst_of_a_one_rate_meter_reads_back(t) {
    let mut c = t.primary().await?;
    let written = meter("one_rate", Some(1), Some(MeterConfig { eburst: 9, ..rates(10, 5, 10, 5) }));
    c.modify(written, OK).await?;
    c.reads_back(meter("one_rate", Some(1), None), written).await?;
}

async fn insert_and_delete_are_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(meter("two_rates", Some(1), Some(rates(1, 1, 1, 1))), INVALID).await?;
    c.delete(meter("two_rates", Some(1), None), INVALID).await?;
}

async fn a_negative_index_is_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(meter("two_rates", Some(-1), Some(rates(1, 1, 1, 1))), INVALID).await?;
}

async fn an_index_beyond_the_array_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.modify(meter("two_rates", Some(4), Some(rates(1, 1, 1, 1))), RANGE).await?;
    c.read_refused(meter("two_rates", Some(4), None), RANGE).await?;
}

async fn an_unknown_meter_is_refused(t) {
    let mut c = t.primary().await?;
    let unknown = MeterEntry { meter_id: 0x14ff_fff1, ..meter("two_rates", Some(0), None) };
    c.modify(unknown, [INVALID, NOT_FOUND]).await?;
}

async fn meter_id_zero_reads_all_meters(t) {
    let mut c = t.primary().await?;
    same(c.read(MeterEntry::default()).await?.len(), 12, "cells")?;
}

async fn a_read_without_counter_data_gives_none(t) {
    let mut c = t.primary().await?;
    colors(&mut c, TWO_RATES, 1).await?;
    c.reads_back(meter("two_rates", Some(1), None), meter("two_rates", Some(1), None)).await?;
}

async fn packets_are_counted_by_color(t) {
    let mut c = t.primary().await?;
    c.modify(meter("two_rates", Some(1), Some(rates(1, 1, 1, 3))), OK).await?;
    colors(&mut c, TWO_RATES, 5).await?;
    let (read, status) = c.try_read(vec![with_colors(None).into_entity()]).await;
    if status.is_err() {
        c.read_refused(with_colors(None), Optional(OK)).await?;
    }
    let Some(Some(entity::Entity::MeterEntry(found))) = read.into_iter().next().map(|e| e.entity) else {
        return Err(Failure::Failed("no meter".into()));
    };
    let counters = found.counter_data.unwrap_or_default();
    let packets = |data: Option<CounterData>| data.map(|data| data.packet_count);
    let found = [counters.green, counters.yellow, counters.red].map(packets);
    same(found, [Some(1), Some(2), Some(2)], "packets by colour")?;
}

async fn counters_by_color_are_reset_by_zero(t) {
    let mut c = t.primary().await?;
    c.modify(with_colors(Some(0)), Optional(OK)).await?;
    c.needs_packets()?;
    colors(&mut c, TWO_RATES, 2).await?;
    c.modify(with_colors(Some(0)), OK).await?;
    let zero = Some(counted(0, 0));
    let expected = MeterEntry {
        counter_data: Some(MeterCounterData { green: zero, yellow: zero, red: zero }),
        ..meter("two_rates", Some(1), None)
    };
    c.reads_back(with_colors(None), expected).await?;
}

async fn counters_by_color_are_not_set_to_other_values(t) {
    let mut c = t.primary().await?;
    c.modify(with_colors(Some(1)), Optional(INVALID)).await?;
}

}
