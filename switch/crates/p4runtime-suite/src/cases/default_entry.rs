// SPDX-License-Identifier: Apache-2.0
//! Tests the default entry, which always exists and can be modified and reset.

use super::prelude::*;

section! { "Default Entry";

async fn insert_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(default_of("lpm_table", mark(1)), INVALID).await?;
}

async fn delete_is_invalid(t) {
    let mut c = t.primary().await?;
    c.delete(default_of("lpm_table", None), INVALID).await?;
}

async fn modify_is_seen_by_packets_that_miss(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("keyless_table", mark(9)), OK).await?;
    c.marks(Walk::Keyless, Frame::default(), 9).await?;
}

async fn without_an_action_it_is_reset(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("keyless_table", mark(9)), OK).await?;
    c.modify(default_of("keyless_table", None), OK).await?;
    c.marks(Walk::Keyless, Frame::default(), 0).await?;
}

async fn a_reset_takes_metadata_away(t) {
    let mut c = t.primary().await?;
    let written = TableEntry { metadata: b"m".to_vec(), controller_metadata: 1, ..default_of("lpm_table", mark(9)) };
    c.modify(written, OK).await?;
    c.modify(default_of("lpm_table", None), OK).await?;
    let read = c.entries(default_of("lpm_table", None)).await?;
    same(read.len(), 1, "default entries")?;
    same((read[0].metadata.clone(), read[0].controller_metadata), (vec![], 0), "metadata")?;
}

async fn a_match_is_invalid(t) {
    let mut c = t.primary().await?;
    let wrong = TableEntry { r#match: vec![lpm(1, 1 << 24, 8)], ..default_of("lpm_table", mark(1)) };
    c.modify(wrong, INVALID).await?;
}

async fn a_priority_is_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(TableEntry { priority: 1, ..default_of("optional_table", mark(1)) }, INVALID).await?;
}

async fn an_idle_timeout_is_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(TableEntry { idle_timeout_ns: 1_000_000_000, ..default_of("timeout_table", mark(1)) }, INVALID).await?;
}

async fn a_constant_default_is_denied(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("ternary_table", mark(1)), DENIED).await?;
}

async fn a_constant_default_cannot_be_reset_either(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("ternary_table", None), DENIED).await?;
}

async fn an_action_of_another_table_is_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("keyless_table", does("drop", &[])), INVALID).await?;
}

async fn it_is_read_by_its_flag_alone(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("lpm_table", mark(4)), OK).await?;
    c.insert(lpm_entry(1 << 24, 8, 5), OK).await?;
    c.reads_back(default_of("lpm_table", None), default_of("lpm_table", mark(4))).await?;
    c.reads_back(all_of("lpm_table"), lpm_entry(1 << 24, 8, 5)).await?;
}

async fn an_indirect_tables_default_cannot_be_set(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("profile_table", mark(1)), [INVALID, DENIED, UNIMPLEMENTED]).await?;
}

async fn an_unknown_table_is_refused(t) {
    let mut c = t.primary().await?;
    c.modify(TableEntry { table_id: UNKNOWN_ID, ..default_of("lpm_table", mark(1)) }, [INVALID, NOT_FOUND]).await?;
}

}
