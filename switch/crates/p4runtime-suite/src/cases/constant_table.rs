// SPDX-License-Identifier: Apache-2.0
//! Tests entries that the program makes constant.

use super::prelude::*;

fn constant(b: u128, action: Option<TableAction>) -> TableEntry {
    entry("const_table", vec![exact(1, b)], action)
}

section! { "Constant Tables";

async fn packets_match_the_programs_entries(t) {
    let mut c = t.primary().await?;
    c.marks(Walk::Const, Frame { b: 1, ..Frame::default() }, 11).await?;
    c.marks(Walk::Const, Frame { b: 2, ..Frame::default() }, 22).await?;
    c.marks(Walk::Const, Frame { b: 3, ..Frame::default() }, 0).await?;
}

async fn insert_is_denied(t) {
    let mut c = t.primary().await?;
    c.insert(constant(3, mark(1)), DENIED).await?;
}

async fn modify_of_an_action_is_denied(t) {
    let mut c = t.primary().await?;
    c.modify(constant(1, mark(1)), DENIED).await?;
}

async fn modify_with_the_same_action_is_denied(t) {
    let mut c = t.primary().await?;
    c.modify(constant(1, mark(11)), DENIED).await?;
}

async fn delete_is_denied(t) {
    let mut c = t.primary().await?;
    c.delete(constant(1, None), DENIED).await?;
}

async fn its_entries_can_be_read(t) {
    let mut c = t.primary().await?;
    let read = c.entries(all_of("const_table")).await?;
    let mut found: Vec<_> = read.iter().map(|e| (e.r#match.clone(), e.action.clone())).collect();
    found.sort_by_key(|found| format!("{found:?}"));
    let mut expected = vec![(vec![exact(1, 1)], mark(11)), (vec![exact(1, 2)], mark(22))];
    expected.sort_by_key(|found| format!("{found:?}"));
    same(found, expected, "entries")?;
}

async fn one_of_its_entries_can_be_read(t) {
    let mut c = t.primary().await?;
    let read = c.entries(constant(2, None)).await?;
    same(read.len(), 1, "entries")?;
    same(read[0].action.clone(), mark(22), "the action")?;
}

async fn its_default_can_be_modified(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("const_table", mark(7)), OK).await?;
    c.marks(Walk::Const, Frame { b: 3, ..Frame::default() }, 7).await?;
}

async fn a_read_of_all_tables_includes_it(t) {
    let mut c = t.primary().await?;
    let read = c.entries(TableEntry::default()).await?;
    same(read.iter().filter(|e| e.table_id == id("const_table")).count(), 2, "entries")?;
}

}
