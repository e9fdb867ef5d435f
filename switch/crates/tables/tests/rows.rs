// SPDX-License-Identifier: Apache-2.0
//! Checks that the rows and arrays that machine code reads agree with the results of ordinary lookups. Also checks that
//! each packet is counted once, even if other threads count or reset at the same time.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{entry, exact, id, lpm, set, store, with};
use proptest::prelude::*;
use sluice_program::TableId;
use sluice_tables::{
    Access, EntryAction, KeyField, MemberSpec, NO_ACTION, ROW_HIT, RowShape, Store, TableHandle,
    TableReplica,
};

/// Looks up a row as machine code does.
fn row(store: &Store, replica: &TableReplica, table: TableId, key: &[u8]) -> *const u64 {
    let declared = &store.program().tables[table.index()];
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum: u128, b| sum << 8 | u128::from(*b))
    };
    // SAFETY: there is a handle for each table. Its fields are valid as long as the replica is held.
    let word = |offset: usize| unsafe {
        let handle = replica.handles().as_ptr().add(table.index()).cast::<u8>();
        handle.add(offset).cast::<*const u8>().read()
    };
    match Access::of(declared) {
        Access::Keyless => word(TableHandle::DEFAULT).cast(),
        Access::Direct(bits) => {
            let index = number(key) as usize;
            assert!(index < 1 << bits);
            let slots = word(TableHandle::DIRECT_SLOTS).cast::<u32>();
            // SAFETY: the array has an element for each key.
            match unsafe { *slots.add(index) } {
                0 => word(TableHandle::DEFAULT).cast(),
                slot => {
                    let stride = RowShape::of(store.program(), declared).stride;
                    let records = word(TableHandle::RECORDS);
                    records.wrapping_add((slot as usize - 1) * stride).cast()
                }
            }
        }
        Access::Prefix(field) => {
            let field = &declared.key[field];
            let (before, address) = key.split_at(field.offset);
            let (group, address) = (number(before) as u64, number(address));
            if field.width <= 32 {
                replica.row_narrow(table, group, address as u32).as_ptr()
            } else {
                replica.row_wide(table, group, address).as_ptr()
            }
        }
        Access::Exact => replica.row_exact(table, key).as_ptr(),
        Access::Bytes => replica.row(table, key).as_ptr(),
    }
}

/// Checks that a row agrees with a lookup, and returns the parameter of `set` on a hit.
fn check(store: &Store, replica: &TableReplica, name: &str, key: &[u8]) -> Option<u64> {
    let table = id(store, name);
    let declared = &store.program().tables[table.index()];
    let expected = replica.lookup(table, key, || 5);
    let row = row(store, replica, table, key);
    let found = replica.row(table, key);
    assert_eq!(found.as_ptr(), row, "{name} {key:?}");
    let (head, behind) = (found.head(), replica.lookup_at_row(table, found, || 5));
    assert_eq!(head & ROW_HIT != 0, expected.hit, "{name} {key:?}");
    assert_eq!((behind.hit, behind.action), (expected.hit, expected.action));
    let address = |state: Option<&sluice_tables::EntryState>| state.map(std::ptr::from_ref);
    assert_eq!(address(behind.state), address(expected.state));
    let Some(action) = expected.action else {
        assert_eq!(head as u32, NO_ACTION);
        return None;
    };
    if declared.profile.is_none() {
        assert_eq!(head as u32, action.action.0);
        let params = RowShape::of(store.program(), declared).params;
        for (index, word) in action.params.iter().enumerate() {
            // SAFETY: a row contains its action's parameters.
            let found = unsafe { row.byte_add(params).add(index).read() };
            assert_eq!(found, *word);
        }
    }
    expected.hit.then(|| action.params[0])
}

/// Returns a key for a table, as the fields that the control plane writes, the priority, and the bytes in packets.
fn key(name: &str, number: u8, length: u32) -> (Vec<KeyField>, i32, Vec<u8>) {
    let wide = u32::from(number) << 24;
    let two = |last: &[u8]| [&[0, number % 3], last].concat();
    let six = [&[number][..], &[0; 15]].concat();
    match name {
        "small" | "timed" => (vec![exact(number.into())], 0, vec![0, number]),
        "exact" => (
            vec![exact(u32::from(number) % 3), exact(wide)],
            0,
            two(&wide.to_be_bytes()),
        ),
        "lpm" => (
            vec![
                exact(u32::from(number) % 3),
                lpm(masked(wide, length), length),
            ],
            0,
            two(&wide.to_be_bytes()),
        ),
        "six" => {
            let value = [&masked(wide, length).to_be_bytes()[..], &[0; 12]].concat();
            let prefix = match length {
                0 => KeyField::DontCare,
                prefix_len => KeyField::Lpm { value, prefix_len },
            };
            (vec![exact(u32::from(number) % 3), prefix], 0, two(&six))
        }
        _ => {
            let optional = KeyField::Ternary {
                value: vec![number],
                mask: vec![0, 0xff],
            };
            (
                vec![optional, KeyField::DontCare],
                1 + length as i32,
                vec![0, number, 0, 0, 0, 0],
            )
        }
    }
}

fn masked(value: u32, length: u32) -> u32 {
    value & u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

proptest! {
    #[test]
    fn rows_say_what_look_ups_say(
        steps in prop::collection::vec((any::<bool>(), 0u8..24, 0u32..9, 1u8..6), 1..60)
    ) {
        let store = store();
        for (insert, number, length, value) in steps {
            for name in ["small", "timed", "exact", "lpm", "six", "ternary"] {
                let (fields, priority, _) = key(name, number, length);
                let mut tx = store.transaction();
                let table = id(&store, name);
                // The entry may exist or not, and the table may have no room for it.
                let _ = if insert {
                    let spec = entry(fields, priority, value);
                    tx.insert(table, spec.clone()).or_else(|_| tx.modify(table, spec))
                } else {
                    tx.delete(table, &fields, priority)
                };
                tx.commit();
                let mut reader = store.reader();
                let replica = reader.pin();
                for number in 0..24 {
                    let (_, _, bytes) = key(name, number, length);
                    check(&store, &replica, name, &bytes);
                }
            }
        }
    }
}

#[test]
fn rows_lead_to_members_and_default_entries() {
    let store = store();
    let profile = store.program().tables[id(&store, "member").index()].profile;
    let profile = profile.expect("the table has one");
    let mut tx = store.transaction();
    let spec = MemberSpec {
        id: 7,
        call: set(3),
    };
    tx.member_insert(profile, &spec).expect("there is room");
    let member = with(vec![exact(9)], 0, EntryAction::Member(7));
    tx.insert(id(&store, "member"), member).expect("it is new");
    let default = EntryAction::Direct(set(8)).into();
    tx.set_default(id(&store, "small"), Some(default))
        .expect("it may change");
    tx.commit();
    let mut reader = store.reader();
    let replica = reader.pin();
    assert_eq!(check(&store, &replica, "member", &[0, 9]), Some(3));
    assert_eq!(check(&store, &replica, "member", &[0, 8]), None);
    assert_eq!(check(&store, &replica, "small", &[0, 8]), None);
    let missed = replica.lookup(id(&store, "small"), &[0, 8], || 0).action;
    assert_eq!(missed.map(|action| action.params[0]), Some(8));
}

/// Counts a packet as machine code does.
fn count(replica: &TableReplica, table: TableId) {
    let found = replica.lookup(table, &[0, 1], || 0);
    let state = found.state.expect("the table counts");
    if replica.is_shared() {
        state.hit(60, 1);
    } else {
        state.counter().count_alone(60);
    }
}

#[test]
fn every_packet_is_counted_once_whoever_counts_or_resets() {
    const PACKETS: u64 = if cfg!(miri) { 640 } else { 60_000 };
    let store = store();
    let table = id(&store, "timed");
    let mut tx = store.transaction();
    tx.insert(table, entry(vec![exact(1)], 0, 1))
        .expect("it is new");
    tx.commit();
    let entry = store.view().entry(table, &[exact(1)], 0);
    let entry = entry.expect("it was inserted");
    let counter = entry.state().expect("the table counts").counter();
    let (collected, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let worker = || {
        let mut reader = store.reader();
        for batch in 0..PACKETS / 32 {
            let replica = reader.pin();
            (0..32).for_each(|_| count(&replica, table));
            drop(replica);
            if batch % 64 == 0 {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        let resets = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.transaction().commit_with(|| {
                    collected.fetch_add(counter.get().0, Ordering::Relaxed);
                    counter.set(0, 0);
                });
                std::thread::yield_now();
            }
        });
        // Runs one worker alone at first, and then a second worker concurrently.
        worker();
        let both = [scope.spawn(worker), scope.spawn(worker)];
        both.into_iter()
            .for_each(|worker| worker.join().expect("it counts"));
        done.store(true, Ordering::Relaxed);
        resets.join().expect("it resets");
    });
    let counted = collected.into_inner() + counter.get().0;
    assert_eq!(counted, 3 * (PACKETS / 32) * 32);
}
