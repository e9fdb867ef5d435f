// SPDX-License-Identifier: Apache-2.0
//! Tests reads, writes and counts of indirect counters.

use super::prelude::*;

section! { "CounterEntry";

async fn cells_begin_at_zero(t) {
    let mut c = t.primary().await?;
    let zero = counter("cells_counter", Some(3), Some(counted(0, 0)));
    c.reads_back(counter("cells_counter", Some(3), None), zero).await?;
}

async fn packets_count(t) {
    let mut c = t.primary().await?;
    for _ in 0..3 {
        c.walk(Walk::Cells, Frame { index: 2, ..Frame::default() }).await?;
    }
    let read = c.read(counter("cells_counter", Some(2), None)).await?;
    let Some(entity::Entity::CounterEntry(found)) = read[0].entity else {
        return Err(Failure::Failed(format!("{read:?}")));
    };
    same(found.data.map(|data| data.packet_count), Some(3), "packets")?;
    holds(found.data.is_some_and(|data| data.byte_count > 0), "no bytes")?;
}

async fn modify_sets_a_cell(t) {
    let mut c = t.primary().await?;
    c.modify(counter("cells_counter", Some(1), Some(counted(5, 6))), OK).await?;
    let zero = counter("cells_counter", Some(0), Some(counted(0, 0)));
    c.reads_back(counter("cells_counter", Some(0), None), zero).await?;
    let set = counter("cells_counter", Some(1), Some(counted(5, 6)));
    c.reads_back(counter("cells_counter", Some(1), None), set).await?;
}

async fn modify_without_data_changes_nothing(t) {
    let mut c = t.primary().await?;
    let set = counter("cells_counter", Some(1), Some(counted(5, 6)));
    c.modify(set, OK).await?;
    c.modify(counter("cells_counter", Some(1), None), OK).await?;
    c.reads_back(counter("cells_counter", Some(1), None), set).await?;
}

async fn modify_without_index_sets_all_cells(t) {
    let mut c = t.primary().await?;
    c.modify(counter("cells_counter", None, Some(counted(5, 6))), OK).await?;
    let all = (0..program::COUNTER_CELLS)
        .map(|index| counter("cells_counter", Some(index), Some(counted(5, 6))).into_entity())
        .collect();
    c.reads(counter("cells_counter", None, None), all).await?;
}

async fn insert_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(counter("cells_counter", Some(1), Some(counted(5, 6))), INVALID).await?;
}

async fn delete_is_invalid(t) {
    let mut c = t.primary().await?;
    c.delete(counter("cells_counter", Some(1), None), INVALID).await?;
}

async fn a_negative_index_is_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(counter("cells_counter", Some(-1), Some(counted(5, 6))), INVALID).await?;
    c.read_refused(counter("cells_counter", Some(-1), None), INVALID).await?;
}

async fn an_index_beyond_the_array_is_out_of_range(t) {
    let mut c = t.primary().await?;
    let size = program::COUNTER_CELLS;
    c.modify(counter("cells_counter", Some(size), Some(counted(5, 6))), RANGE).await?;
    c.read_refused(counter("cells_counter", Some(size), None), RANGE).await?;
}

async fn an_unknown_counter_is_refused(t) {
    let mut c = t.primary().await?;
    let unknown = CounterEntry { counter_id: 0x12ff_fff1, ..counter("cells_counter", Some(0), Some(counted(1, 1))) };
    c.modify(unknown, [INVALID, NOT_FOUND]).await?;
    c.read_refused(unknown, [INVALID, NOT_FOUND]).await?;
}

async fn a_counter_without_index_reads_all_cells(t) {
    let mut c = t.primary().await?;
    same(c.read(counter("cells_counter", None, None)).await?.len(), 8, "cells")?;
}

async fn counter_id_zero_reads_all_counters(t) {
    let mut c = t.primary().await?;
    same(c.read(CounterEntry::default()).await?.len(), 8 + 4, "cells")?;
}

async fn a_counter_of_bytes_can_be_written(t) {
    let mut c = t.primary().await?;
    c.modify(counter("bytes_counter", Some(0), Some(counted(0, 6))), OK).await?;
}

}
