// SPDX-License-Identifier: Apache-2.0
//! Tests entries: which ones are accepted, which error refuses the others, and how they read back.

mod common;

use common::{entry, exact, id, look_up, lpm, set, store, with};
use sluice_program::ActionId;
use sluice_tables::{ActionCall, Entry, EntryAction, EntryState, KeyField, TableError};

fn ternary(value: u8, mask: u8) -> KeyField {
    KeyField::Ternary {
        value: vec![value],
        mask: vec![mask],
    }
}

#[test]
fn an_entry_is_seen_by_packets_after_commit_and_not_before() {
    let store = store();
    let mut tx = store.transaction();
    tx.insert(id(&store, "small"), entry(vec![exact(7)], 0, 1))
        .unwrap();
    tx.commit();
    assert_eq!(look_up(&store, "small", &[0, 7], 0), Some(1));
    assert_eq!(look_up(&store, "small", &[0, 8], 0), None);
    let mut tx = store.transaction();
    tx.insert(id(&store, "small"), entry(vec![exact(8)], 0, 2))
        .unwrap();
    drop(tx);
    assert_eq!(look_up(&store, "small", &[0, 8], 0), None);
}

#[test]
fn what_is_written_with_padding_reads_back_in_the_shortest_form() {
    let store = store();
    let mut tx = store.transaction();
    let key = KeyField::Exact(vec![0, 0, 0, 0, 9]);
    let call = ActionCall {
        action: ActionId(1),
        params: vec![vec![0, 0, 1, 4]],
    };
    tx.insert(
        id(&store, "small"),
        with(vec![key], 0, EntryAction::Direct(call)),
    )
    .unwrap();
    tx.commit();
    let view = store.view();
    let read = view.entries(id(&store, "small"));
    let spec = read[0].spec(store.program(), store.program().table(id(&store, "small")));
    assert_eq!(spec.key, [KeyField::Exact(vec![9])]);
    let call = ActionCall {
        action: ActionId(1),
        params: vec![vec![1, 4]],
    };
    assert_eq!(spec.action, EntryAction::Direct(call));
}

#[test]
fn values_that_are_empty_or_too_wide_are_out_of_range() {
    let store = store();
    let mut tx = store.transaction();
    let mut insert = |key: Vec<u8>, param: Vec<u8>| {
        let call = ActionCall {
            action: ActionId(1),
            params: vec![param],
        };
        let spec = with(vec![KeyField::Exact(key)], 0, EntryAction::Direct(call));
        tx.insert(id(&store, "small"), spec)
    };
    for (key, param) in [
        (vec![], vec![1]),
        (vec![1, 0, 0], vec![1]),
        (vec![1], vec![]),
        (vec![1], vec![2, 0]), // 9 bits hold at most 0x1ff
    ] {
        let result = insert(key, param);
        assert!(
            matches!(result, Err(TableError::OutOfRange(_))),
            "{result:?}"
        );
    }
    assert!(insert(vec![1], vec![1, 0xff]).is_ok());
}

#[test]
fn each_mistake_has_its_error_and_changes_nothing() {
    let store = store();
    let mut tx = store.transaction();
    let small = id(&store, "small");
    let invalid = |result: Result<(), TableError>| {
        assert!(
            matches!(result, Err(TableError::InvalidArgument(_))),
            "{result:?}"
        );
    };
    tx.insert(small, entry(vec![exact(1)], 0, 1)).unwrap();
    let twice = tx.insert(small, entry(vec![exact(1)], 0, 2));
    assert!(matches!(twice, Err(TableError::AlreadyExists(_))));
    tx.insert(small, entry(vec![exact(2)], 0, 1)).unwrap();
    let full = tx.insert(small, entry(vec![exact(3)], 0, 1));
    assert!(matches!(full, Err(TableError::ResourceExhausted(_))));
    let missing = tx.modify(small, entry(vec![exact(3)], 0, 1));
    assert!(matches!(missing, Err(TableError::NotFound(_))));
    assert!(matches!(
        tx.delete(small, &[exact(3)], 0),
        Err(TableError::NotFound(_))
    ));
    invalid(tx.insert(small, entry(vec![], 0, 1)));
    invalid(tx.insert(small, entry(vec![exact(3), exact(3)], 0, 1)));
    invalid(tx.insert(small, entry(vec![KeyField::DontCare], 0, 1)));
    invalid(tx.insert(small, entry(vec![lpm(3, 4)], 0, 1)));
    invalid(tx.insert(small, entry(vec![exact(3)], 1, 1)));
    let unused = ActionCall {
        action: ActionId(2),
        params: vec![],
    };
    invalid(tx.modify(small, with(vec![exact(1)], 0, EntryAction::Direct(unused))));
    let no_params = ActionCall {
        action: ActionId(1),
        params: vec![],
    };
    invalid(tx.modify(
        small,
        with(vec![exact(1)], 0, EntryAction::Direct(no_params)),
    ));
    invalid(tx.modify(small, with(vec![exact(1)], 0, EntryAction::Member(1))));
    let mut timed = entry(vec![exact(1)], 0, 1);
    timed.idle_timeout_ns = 5;
    invalid(tx.modify(small, timed));
    tx.commit();
    assert_eq!(store.view().entry_count(small), 2);
    assert_eq!(look_up(&store, "small", &[0, 1], 0), Some(1));
}

#[test]
fn a_ternary_table_needs_priorities_and_refuses_bits_outside_the_mask() {
    let store = store();
    let mut tx = store.transaction();
    let table = id(&store, "ternary");
    let mut insert = |fields: Vec<KeyField>, priority| tx.insert(table, entry(fields, priority, 1));
    let invalid = |result: Result<(), TableError>| {
        assert!(
            matches!(result, Err(TableError::InvalidArgument(_))),
            "{result:?}"
        );
    };
    invalid(insert(vec![ternary(1, 1), KeyField::DontCare], 0));
    invalid(insert(vec![ternary(1, 1), KeyField::DontCare], -1));
    invalid(insert(vec![ternary(2, 1), KeyField::DontCare], 1));
    invalid(insert(vec![ternary(0, 0), KeyField::DontCare], 1));
    invalid(insert(vec![exact(1), KeyField::DontCare], 1));
    insert(vec![ternary(1, 1), KeyField::DontCare], 1).unwrap();
    insert(vec![ternary(1, 1), KeyField::DontCare], 2).unwrap();
    insert(vec![KeyField::DontCare, KeyField::DontCare], 1).unwrap();
}

#[test]
fn prefixes_and_ranges_are_checked() {
    let store = store();
    let mut tx = store.transaction();
    let (lpm_table, range) = (id(&store, "lpm"), id(&store, "range"));
    let bad_prefix = |value: u32, prefix_len| KeyField::Lpm {
        value: value.to_be_bytes().to_vec(),
        prefix_len,
    };
    for field in [
        bad_prefix(0, 0),
        bad_prefix(0, 33),
        bad_prefix(0x0a00_0001, 8),
    ] {
        let result = tx.insert(lpm_table, entry(vec![exact(0), field], 0, 1));
        assert!(
            matches!(result, Err(TableError::InvalidArgument(_))),
            "{result:?}"
        );
    }
    tx.insert(lpm_table, entry(vec![exact(0), KeyField::DontCare], 0, 1))
        .unwrap();
    let bounds = |low, high| KeyField::Range {
        low: vec![low],
        high: vec![high],
    };
    let backwards = tx.insert(range, entry(vec![bounds(5, 4), exact(0)], 1, 1));
    assert!(matches!(backwards, Err(TableError::InvalidArgument(_))));
    let all = KeyField::Range {
        low: vec![0],
        high: vec![0xff, 0xff],
    };
    let all = tx.insert(range, entry(vec![all, exact(0)], 1, 1));
    assert!(matches!(all, Err(TableError::InvalidArgument(_))));
    tx.insert(range, entry(vec![bounds(4, 4), exact(0)], 1, 1))
        .unwrap();
}

#[test]
fn constant_entries_and_defaults_refuse_changes() {
    let store = store();
    let table = id(&store, "constant");
    assert_eq!(look_up(&store, "constant", &[0, 7], 0), Some(9));
    assert!(store.view().entries(table)[0].is_const());
    let mut tx = store.transaction();
    let denied = |result: Result<(), TableError>| {
        assert!(
            matches!(result, Err(TableError::PermissionDenied(_))),
            "{result:?}"
        );
    };
    denied(tx.insert(table, entry(vec![exact(1)], 0, 1)));
    denied(tx.modify(table, entry(vec![exact(7)], 0, 1)));
    denied(tx.delete(table, &[exact(7)], 0));
    denied(tx.set_default(table, Some(EntryAction::Direct(set(1)).into())));
    tx.set_default(
        id(&store, "small"),
        Some(EntryAction::Direct(set(1)).into()),
    )
    .unwrap();
}

#[test]
fn the_default_entry_can_be_set_and_reset() {
    let store = store();
    let table = id(&store, "small");
    let default = |store: &sluice_tables::Store| {
        let mut reader = store.reader();
        let replica = reader.pin();
        let found = replica.lookup(table, &[0, 1], || 0);
        assert!(!found.hit);
        found.action.map(|action| action.params[0])
    };
    assert_eq!(default(&store), None);
    let mut tx = store.transaction();
    tx.set_default(table, Some(EntryAction::Direct(set(5)).into()))
        .unwrap();
    tx.commit();
    assert_eq!(default(&store), Some(5));
    assert!(!store.view().default_entry(table).is_initial());
    let mut tx = store.transaction();
    tx.set_default(table, None).unwrap();
    tx.commit();
    assert_eq!(default(&store), None);
    assert!(store.view().default_entry(table).is_initial());
}

/// Returns the packet state of an entry.
fn state(entry: &Entry) -> &EntryState {
    entry.state().expect("the table keeps it")
}

#[test]
fn a_modified_entry_keeps_its_counter() {
    let store = store();
    let table = id(&store, "timed");
    let mut tx = store.transaction();
    tx.insert(table, entry(vec![exact(1)], 0, 1)).unwrap();
    tx.commit();
    let read = || store.view().entry(table, &[exact(1)], 0).unwrap();
    state(&read()).hit(100, 5);
    let mut tx = store.transaction();
    tx.modify(table, entry(vec![exact(1)], 0, 2)).unwrap();
    tx.commit();
    assert_eq!(state(&read()).counter().get(), (1, 100));
    assert_eq!(look_up(&store, "timed", &[0, 1], 0), Some(2));
}

#[test]
fn an_idle_entry_is_reported_once_each_timeout() {
    let store = store();
    let table = id(&store, "timed");
    let mut tx = store.transaction();
    let mut spec = entry(vec![exact(1)], 0, 1);
    spec.idle_timeout_ns = 1_000_000_000;
    tx.insert(table, spec).unwrap();
    tx.insert(table, entry(vec![exact(2)], 0, 1)).unwrap();
    tx.commit();
    let read = || store.view().entry(table, &[exact(1)], 0).unwrap();
    let start = state(&read()).last_hit_us();
    assert!(store.expired(start + 999_999).entries.is_empty());
    assert_eq!(store.expired(start + 1_000_000).entries.len(), 1);
    assert!(store.expired(start + 1_500_000).entries.is_empty());
    state(&read()).hit(1, start + 1_800_000);
    assert!(store.expired(start + 2_700_000).entries.is_empty());
    assert_eq!(store.expired(start + 2_800_000).entries.len(), 1);
}

#[test]
fn entries_are_read_in_order_of_key_regardless_of_insertion_order() {
    let store = store();
    let table = id(&store, "exact");
    for keys in [[3u32, 1, 2], [2, 3, 1]] {
        let mut tx = store.transaction();
        for key in keys {
            tx.insert(table, entry(vec![exact(key), exact(0)], 0, key as u8))
                .unwrap();
        }
        tx.commit();
        let view = store.view();
        let read = view.entries(table).into_iter();
        let order: Vec<_> = read
            .map(|entry| {
                entry
                    .spec(store.program(), store.program().table(table))
                    .key[0]
                    .clone()
            })
            .collect();
        assert_eq!(order, [1u8, 2, 3].map(|key| KeyField::Exact(vec![key])));
        drop(view);
        let mut tx = store.transaction();
        for key in keys {
            tx.delete(table, &[exact(key), exact(0)], 0).unwrap();
        }
        tx.commit();
    }
}

#[test]
fn a_prefix_field_wider_than_128_bits_still_takes_the_longest() {
    let store = store();
    let table = id(&store, "wide");
    let prefix = |bits: u32| {
        let mut value = vec![0; 20];
        (0..bits as usize).for_each(|bit| value[bit / 8] |= 0x80 >> (bit % 8));
        KeyField::Lpm {
            value,
            prefix_len: bits,
        }
    };
    let mut tx = store.transaction();
    for bits in [8, 150, 20] {
        tx.insert(table, entry(vec![prefix(bits)], 0, bits as u8))
            .unwrap();
    }
    tx.commit();
    let mut key = vec![0xff; 20];
    assert_eq!(look_up(&store, "wide", &key, 0), Some(150));
    key[10] = 0;
    assert_eq!(look_up(&store, "wide", &key, 0), Some(20));
    key[0] = 0;
    assert_eq!(look_up(&store, "wide", &key, 0), None);
}
