// SPDX-License-Identifier: Apache-2.0
//! Tests insert, modify and delete of table entries, and their effect on packets.

use super::prelude::*;

section! { "TableEntry";

async fn insert_is_seen_by_packets(t) {
    let mut c = t.primary().await?;
    let frame = Frame { a: 1, ..Frame::default() };
    c.marks(Walk::Exact, frame, 0).await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.marks(Walk::Exact, frame, 5).await?;
}

async fn modify_is_seen_by_packets(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.modify(exact_entry(1, 6), OK).await?;
    c.marks(Walk::Exact, Frame { a: 1, ..Frame::default() }, 6).await?;
}

async fn delete_is_seen_by_packets(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.delete(key_of(&exact_entry(1, 5)), OK).await?;
    c.marks(Walk::Exact, Frame { a: 1, ..Frame::default() }, 0).await?;
}

async fn insert_of_an_entry_that_exists_is_refused_and_changes_nothing(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.insert(exact_entry(1, 6), EXISTS).await?;
    c.reads_back(all_of("exact_table"), exact_entry(1, 5)).await?;
}

async fn modify_of_an_absent_entry_is_not_found(t) {
    let mut c = t.primary().await?;
    c.modify(exact_entry(1, 5), NOT_FOUND).await?;
}

async fn delete_of_an_absent_entry_is_not_found(t) {
    let mut c = t.primary().await?;
    c.delete(exact_entry(1, 5), NOT_FOUND).await?;
}

async fn delete_looks_at_the_key_alone(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    let nonsense = TableEntry {
        action: does("mark", &[1, 2, 3]),
        controller_metadata: 7,
        metadata: b"other".to_vec(),
        ..exact_entry(1, 5)
    };
    c.delete(nonsense, OK).await?;
}

async fn modify_is_a_full_snapshot(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { metadata: b"m".to_vec(), controller_metadata: 7, ..exact_entry(1, 5) }, OK).await?;
    c.modify(exact_entry(1, 6), OK).await?;
    c.reads_back(all_of("exact_table"), exact_entry(1, 6)).await?;
}

async fn an_unknown_table_is_refused(t) {
    let mut c = t.primary().await?;
    let unknown = TableEntry { table_id: UNKNOWN_ID, ..exact_entry(1, 5) };
    c.insert(unknown.clone(), [INVALID, NOT_FOUND]).await?;
    c.delete(unknown, [INVALID, NOT_FOUND]).await?;
}

async fn a_table_id_of_zero_is_refused(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { table_id: 0, ..exact_entry(1, 5) }, INVALID).await?;
}

async fn an_id_of_another_kind_of_object_is_refused(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { table_id: id("mark"), ..exact_entry(1, 5) }, [INVALID, NOT_FOUND]).await?;
}

async fn a_ternary_entry_needs_a_priority(t) {
    let mut c = t.primary().await?;
    let matches = vec![ternary(1, 1, 0xff)];
    c.insert(ranked("ternary_table", matches, 0, mark(1)), INVALID).await?;
}

async fn a_range_entry_needs_a_priority(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("range_table", vec![range(1, 1, 2)], 0, mark(1)), INVALID).await?;
}

async fn an_optional_entry_needs_a_priority(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("optional_table", vec![optional(1, 1)], 0, mark(1)), INVALID).await?;
}

async fn an_exact_entry_has_no_priority(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { priority: 1, ..exact_entry(1, 5) }, INVALID).await?;
}

async fn a_prefix_entry_has_no_priority(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { priority: 1, ..lpm_entry(1 << 24, 8, 5) }, INVALID).await?;
}

async fn a_negative_priority_is_refused(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("ternary_table", vec![ternary(1, 1, 0xff)], -1, mark(1)), INVALID).await?;
}

async fn the_higher_priority_wins(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("ternary_table", vec![ternary(1, 1, 0xff)], 10, mark(1)), OK).await?;
    c.insert(ranked("ternary_table", vec![ternary(1, 1, 0x0f)], 20, mark(2)), OK).await?;
    c.marks(Walk::Ternary, Frame { a: 1, ..Frame::default() }, 2).await?;
}

async fn the_priority_is_part_of_the_key(t) {
    let mut c = t.primary().await?;
    let entry = |priority, value| ranked("ternary_table", vec![ternary(1, 1, 0xff)], priority, mark(value));
    c.insert(entry(10, 1), OK).await?;
    c.insert(entry(11, 2), OK).await?;
    c.modify(entry(12, 3), NOT_FOUND).await?;
    c.delete(entry(11, 2), OK).await?;
    c.marks(Walk::Ternary, Frame { a: 1, ..Frame::default() }, 1).await?;
}

async fn delete_of_a_ternary_entry_needs_its_priority(t) {
    let mut c = t.primary().await?;
    let entry = |priority| ranked("ternary_table", vec![ternary(1, 1, 0xff)], priority, mark(1));
    c.insert(entry(10), OK).await?;
    c.delete(entry(0), [INVALID, NOT_FOUND]).await?;
    same(c.entries(all_of("ternary_table")).await?.len(), 1, "entries")?;
}

async fn the_longest_prefix_wins(t) {
    let mut c = t.primary().await?;
    c.insert(lpm_entry(0x0a00_0000, 8, 8), OK).await?;
    c.insert(lpm_entry(0x0a01_0000, 16, 16), OK).await?;
    c.insert(lpm_entry(0x0a01_0203, 32, 32), OK).await?;
    for (a, value) in [(0x0a02_0000, 8), (0x0a01_0202, 16), (0x0a01_0203, 32), (0x0b00_0000, 0)] {
        c.marks(Walk::Lpm, Frame { a, ..Frame::default() }, value).await?;
    }
}

async fn a_full_table_is_resource_exhausted_and_keeps_what_it_has(t) {
    let mut c = t.primary().await?;
    let entry = |n| ranked("range_table", vec![range(1, n, n + 1)], 1, mark(n));
    for n in 1..=16 {
        c.insert(entry(n), OK).await?;
    }
    let mut held = 16;
    // The table must hold at least as many entries as its declared size.
    let mut code = OK;
    while code == OK && held < 4096 {
        held += 1;
        code = c.codes(vec![insert(entry(held))]).await?[0];
    }
    same(code, FULL, "the insert beyond the last")?;
    c.modify(ranked("range_table", vec![range(1, 1, 2)], 1, mark(99)), OK).await?;
    c.marks(Walk::Range, Frame { b: 16, ..Frame::default() }, 15).await?;
    c.delete(entry(2), OK).await?;
    c.insert(entry(held), OK).await?;
}

async fn is_const_cannot_be_written(t) {
    let mut c = t.primary().await?;
    let entry = TableEntry { is_const: true, ..exact_entry(1, 5) };
    c.insert(entry.clone(), INVALID).await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.modify(entry, INVALID).await?;
}

async fn a_table_without_key_has_no_entries(t) {
    let mut c = t.primary().await?;
    c.insert(entry("keyless_table", vec![], mark(5)), INVALID).await?;
}

async fn metadata_can_be_changed_by_modify(t) {
    let mut c = t.primary().await?;
    let with = |metadata: &[u8]| TableEntry { metadata: metadata.to_vec(), ..exact_entry(1, 5) };
    c.insert(with(b"one"), OK).await?;
    c.modify(with(b"two"), OK).await?;
    c.reads_back(all_of("exact_table"), with(b"two")).await?;
}

async fn an_entry_of_no_entity_is_refused(t) {
    let mut c = t.primary().await?;
    c.updates(insert(Entity { entity: None }), INVALID).await?;
}

}
