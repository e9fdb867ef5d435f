// SPDX-License-Identifier: Apache-2.0
//! Tests longest-prefix tables: operator commands, and the entry that a lookup matched.

mod common;

use common::{entry, exact, id, look_up, lpm, store};
use sluice_tables::{FibDetail, KeyField, Store, TableError};

fn key(vrf: u16, address: u32) -> Vec<u8> {
    [&vrf.to_be_bytes()[..], &address.to_be_bytes()[..]].concat()
}

/// Inserts `count` routes of length /24 with few different values.
fn fill(store: &Store, vrf: u16, count: u32) {
    let mut tx = store.transaction();
    for index in 0..count {
        let fields = vec![exact(u32::from(vrf)), lpm(index << 8, 24)];
        tx.insert(id(store, "lpm"), entry(fields, 0, (index % 7) as u8))
            .expect("there is room");
    }
    tx.commit();
}

#[test]
fn every_vrf_has_an_algorithm_and_equal_actions_one_value() {
    let store = store();
    fill(&store, 1, 200);
    fill(&store, 2, 3);
    let fibs = store.fibs(FibDetail::Values);
    let seen: Vec<_> = fibs
        .iter()
        .map(|fib| {
            (
                fib.exact.clone(),
                fib.status.routes,
                fib.status.values,
                fib.status.algorithm,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [(vec![1], 200, 7, "rank16"), (vec![2], 3, 3, "ranges")]
    );
    assert_eq!(
        look_up(&store, "lpm", &key(1, 150 << 8 | 5), 0),
        Some(150 % 7)
    );
    assert_eq!(look_up(&store, "lpm", &key(2, 150 << 8), 0), None);
}

#[test]
fn an_algorithm_is_pinned_for_one_vrf_or_for_all_to_come() {
    let store = store();
    fill(&store, 1, 5);
    let table = id(&store, "lpm");
    store
        .pin_fib(table, Some(&[1]), Some("rank16"))
        .expect("five routes");
    fill(&store, 2, 5);
    let algorithms = || {
        store
            .fibs(FibDetail::Values)
            .into_iter()
            .map(|fib| fib.status.algorithm)
            .collect::<Vec<_>>()
    };
    assert_eq!(algorithms(), ["rank16", "ranges"]);
    assert_eq!(look_up(&store, "lpm", &key(1, 4 << 8), 0), Some(4));
    store
        .pin_fib(table, None, Some("rank32"))
        .expect("few routes");
    fill(&store, 3, 5);
    assert_eq!(algorithms(), ["rank32", "rank32", "rank32"]);
    store.pin_fib(table, None, None).expect("free again");
    assert_eq!(algorithms(), ["ranges", "ranges", "ranges"]);
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    let store = store();
    let table = id(&store, "lpm");
    let refused =
        |table, exact: Option<&[u128]>, name| store.pin_fib(id(&store, table), exact, name);
    assert!(matches!(
        refused("lpm", None, Some("nonsense")),
        Err(TableError::InvalidArgument(_))
    ));
    assert!(matches!(
        refused("exact", None, Some("ranges")),
        Err(TableError::InvalidArgument(_))
    ));
    assert!(matches!(
        refused("lpm", Some(&[9]), None),
        Err(TableError::NotFound(_))
    ));
    assert!(matches!(
        refused("lpm", Some(&[9, 9]), None),
        Err(TableError::InvalidArgument(_))
    ));
    assert!(matches!(
        refused("lpm", Some(&[70_000]), None),
        Err(TableError::OutOfRange(_))
    ));
    assert!(matches!(
        store.try_fib(table, &[9]),
        Err(TableError::NotFound(_))
    ));
}

#[test]
fn algorithms_are_tried_on_a_copy() {
    let store = store();
    fill(&store, 1, 100);
    let trials = store
        .try_fib(id(&store, "lpm"), &[1])
        .expect("there are routes");
    assert!(
        trials
            .iter()
            .any(|trial| trial.algorithm == "rank16" && trial.outcome.is_ok())
    );
    assert_eq!(store.fibs(FibDetail::Values)[0].status.algorithm, "rank16");
}

#[test]
fn the_entry_that_a_key_matches_is_found_although_lookups_return_only_its_class() {
    let store = store();
    let table = id(&store, "lpm");
    fill(&store, 1, 20);
    let mut reader = store.reader();
    let replica = reader.pin();
    // Entries 3 and 10 have equal actions.
    let program = store.program();
    let found = replica.find(program, table, &key(1, 10 << 8 | 77));
    let found = found.expect("it matches");
    let KeyField::Lpm { value, prefix_len } = &found.key[1] else {
        panic!("{:?} is no prefix", found.key[1]);
    };
    let number = value
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    assert_eq!((number, *prefix_len), (10 << 8, 24));
    assert!(replica.find(program, table, &key(1, 20 << 8)).is_none());
    drop(replica);
    let mut tx = store.transaction();
    let fields = vec![exact(1), lpm(10 << 8, 24)];
    tx.delete(table, &fields, 0).expect("it is there");
    tx.commit();
    assert!(
        reader
            .pin()
            .find(store.program(), table, &key(1, 10 << 8))
            .is_none()
    );
    assert_eq!(
        look_up(&store, "lpm", &key(1, 3 << 8), 0),
        Some(3),
        "its class is still in use"
    );
}
