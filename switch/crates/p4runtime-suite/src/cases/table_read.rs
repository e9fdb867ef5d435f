// SPDX-License-Identifier: Apache-2.0
//! Tests reads of table entries. In a read request, a field with its default value matches every entry; any
//! other value is a filter.

use super::prelude::*;
use crate::bench::{Bench, Client};
use crate::outcome::Outcome;

/// Returns a primary, after inserting entries into three tables.
async fn filled(t: &Bench) -> Outcome<Client> {
    let mut c = t.primary().await?;
    c.insert(
        TableEntry {
            controller_metadata: 7,
            metadata: b"x".to_vec(),
            ..exact_entry(1, 1)
        },
        OK,
    )
    .await?;
    c.insert(exact_entry(2, 2), OK).await?;
    c.insert(lpm_entry(10 << 24, 8, 3), OK).await?;
    c.insert(
        entry("lpm_table", vec![lpm(1, 11 << 24, 8)], does("drop", &[])),
        OK,
    )
    .await?;
    c.insert(
        ranked("ternary_table", vec![ternary(1, 1, 0xf)], 10, mark(5)),
        OK,
    )
    .await?;
    c.insert(
        ranked("ternary_table", vec![ternary(1, 1, 0xf)], 20, mark(6)),
        OK,
    )
    .await?;
    c.insert(ranked("ternary_table", vec![], 20, mark(7)), OK)
        .await?;
    Ok(c)
}

section! { "TableEntry: Wildcard Reads";

async fn table_id_zero_reads_all_tables(t) {
    let mut c = filled(t).await?;
    let read = c.entries(TableEntry::default()).await?;
    // Seven inserted entries and two constant ones.
    same(read.len(), 9, "entries")?;
    holds(read.iter().all(|entry| !entry.is_default_action), "a default entry is among them")?;
}

async fn a_table_id_reads_that_table(t) {
    let mut c = filled(t).await?;
    same(c.entries(all_of("exact_table")).await?.len(), 2, "entries")?;
}

async fn an_unknown_table_is_refused(t) {
    let mut c = filled(t).await?;
    c.read_refused(TableEntry { table_id: UNKNOWN_ID, ..Default::default() }, [INVALID, NOT_FOUND]).await?;
}

async fn a_match_reads_one_entry(t) {
    let mut c = filled(t).await?;
    c.reads_back(key_of(&exact_entry(2, 2)), exact_entry(2, 2)).await?;
}

async fn a_match_that_no_entry_has_reads_nothing(t) {
    let mut c = filled(t).await?;
    same(c.entries(key_of(&exact_entry(3, 0))).await?, vec![], "entries")?;
}

async fn a_match_that_is_not_valid_is_refused(t) {
    let mut c = filled(t).await?;
    c.read_refused(entry("exact_table", vec![exact(1, 1)], None), INVALID).await?;
}

async fn a_match_and_its_priority_read_one_entry(t) {
    let mut c = filled(t).await?;
    let wanted = ranked("ternary_table", vec![ternary(1, 1, 0xf)], 20, None);
    c.reads_back(wanted, ranked("ternary_table", vec![ternary(1, 1, 0xf)], 20, mark(6))).await?;
}

async fn a_match_without_priority_reads_entries_of_every_priority(t) {
    let mut c = filled(t).await?;
    let wanted = entry("ternary_table", vec![ternary(1, 1, 0xf)], None);
    same(c.entries(wanted).await?.len(), 2, "entries")?;
}

async fn a_priority_reads_the_entries_that_have_it(t) {
    let mut c = filled(t).await?;
    same(c.entries(ranked("ternary_table", vec![], 20, None)).await?.len(), 2, "entries")?;
    same(c.entries(ranked("ternary_table", vec![], 30, None)).await?, vec![], "entries")?;
}

async fn an_action_reads_the_entries_that_have_it(t) {
    let mut c = filled(t).await?;
    let wanted = entry("lpm_table", vec![], does("drop", &[]));
    let read = c.entries(wanted).await?;
    same(read.len(), 1, "entries")?;
    same(read[0].action.clone(), does("drop", &[]), "the action")?;
}

async fn controller_metadata_reads_the_entries_that_have_it(t) {
    let mut c = filled(t).await?;
    let read = c.entries(TableEntry { controller_metadata: 7, ..all_of("exact_table") }).await?;
    same(read.len(), 1, "entries")?;
    same(c.entries(TableEntry { controller_metadata: 8, ..all_of("exact_table") }).await?, vec![], "entries")?;
}

async fn metadata_reads_the_entries_that_have_it(t) {
    let mut c = filled(t).await?;
    let read = c.entries(TableEntry { metadata: b"x".to_vec(), ..all_of("exact_table") }).await?;
    same(read.len(), 1, "entries")?;
    same(c.entries(TableEntry { metadata: b"y".to_vec(), ..all_of("exact_table") }).await?, vec![], "entries")?;
}

async fn the_default_flag_reads_the_default_entry(t) {
    let mut c = filled(t).await?;
    let read = c.entries(default_of("lpm_table", None)).await?;
    same(read.len(), 1, "entries")?;
    holds(read[0].is_default_action, "the flag is not set")?;
}

async fn the_default_flag_without_table_reads_all_default_entries(t) {
    let mut c = filled(t).await?;
    let read = c.entries(TableEntry { is_default_action: true, ..Default::default() }).await?;
    same(read.len(), program::P4INFO.tables.len(), "entries")?;
    holds(read.iter().all(|entry| entry.is_default_action), "an entry without the flag is among them")?;
}

async fn an_empty_table_reads_nothing(t) {
    let mut c = filled(t).await?;
    same(c.entries(all_of("range_table")).await?, vec![], "entries")?;
}

async fn an_entry_that_matches_everything_comes_with_a_wildcard(t) {
    let mut c = filled(t).await?;
    c.insert(entry("lpm_table", vec![], mark(9)), OK).await?;
    same(c.entries(all_of("lpm_table")).await?.len(), 3, "entries")?;
}

async fn a_full_table_is_read_whole(t) {
    let mut c = t.primary().await?;
    let updates = (0..64).map(|n| insert(lpm_entry((n + 1) << 8, 24, n))).collect();
    same(c.codes(updates).await?, vec![OK; 64], "the inserts")?;
    same(c.entries(all_of("lpm_table")).await?.len(), 64, "entries")?;
}

}
