// SPDX-License-Identifier: Apache-2.0
//! Tests that transactions are atomic for packets, and that a rollback restores the exact state. Also tests members,
//! groups and sessions.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{entry, exact, id, look_up, set, store, with};
use sluice_program::ProfileId;
use sluice_tables::{
    CloneSession, EntryAction, GroupMember, GroupSpec, KeyField, MemberSpec, OneShotMember,
    Replica, Store, TableError,
};

const SELECTOR: ProfileId = ProfileId(0);
const PROFILE: ProfileId = ProfileId(1);

fn member(id: u32, value: u8) -> MemberSpec {
    MemberSpec {
        id,
        call: set(value),
    }
}

fn group(id: u32, members: &[(u32, u32)]) -> GroupSpec {
    let members = members
        .iter()
        .map(|(member, weight)| GroupMember {
            member: *member,
            weight: *weight,
            watch_port: None,
        })
        .collect();
    GroupSpec {
        id,
        max_size: 0,
        members,
    }
}

#[test]
fn a_rollback_undoes_only_the_changes_after_the_savepoint() {
    let store = store();
    let table = id(&store, "exact");
    let mut tx = store.transaction();
    tx.insert(table, entry(vec![exact(1), exact(0)], 0, 1))
        .unwrap();
    tx.insert(table, entry(vec![exact(2), exact(0)], 0, 2))
        .unwrap();
    let savepoint = tx.savepoint();
    tx.modify(table, entry(vec![exact(1), exact(0)], 0, 9))
        .unwrap();
    tx.delete(table, &[exact(2), exact(0)], 0).unwrap();
    tx.insert(table, entry(vec![exact(3), exact(0)], 0, 3))
        .unwrap();
    tx.member_insert(SELECTOR, &member(1, 1)).unwrap();
    tx.multicast_insert(5, vec![Replica::new(1, 0)]).unwrap();
    tx.rollback(savepoint);
    tx.commit();
    let get = |key: u8| look_up(&store, "exact", &[0, key, 0, 0, 0, 0], 0);
    assert_eq!([get(1), get(2), get(3)], [Some(1), Some(2), None]);
    assert!(store.view().members(SELECTOR).is_empty());
    assert!(store.view().multicast_groups().is_empty());
}

#[test]
fn both_replicas_end_up_equal() {
    let store = store();
    let table = id(&store, "lpm");
    for round in 0..5u8 {
        let mut tx = store.transaction();
        let key = vec![exact(u32::from(round)), KeyField::DontCare];
        tx.insert(table, entry(key, 0, round)).unwrap();
        tx.commit();
        for known in 0..=round {
            let key = [0, known, 1, 2, 3, 4];
            assert_eq!(look_up(&store, "lpm", &key, 0), Some(u64::from(known)));
        }
    }
}

#[test]
fn a_packet_never_sees_half_a_transaction() {
    let store = store();
    let (left, right) = (id(&store, "exact"), id(&store, "small"));
    let update = |value: u8, first: bool| {
        let mut tx = store.transaction();
        let specs = [
            (left, entry(vec![exact(1), exact(0)], 0, value)),
            (right, entry(vec![exact(1)], 0, value)),
        ];
        for (table, spec) in specs {
            if first {
                tx.insert(table, spec)
            } else {
                tx.modify(table, spec)
            }
            .unwrap();
        }
        tx.commit();
    };
    update(0, true);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = store.reader();
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let replica = reader.pin();
                    let value = |table, key: &[u8]| {
                        replica
                            .lookup(table, key, || 0)
                            .action
                            .map(|action| action.params[0])
                    };
                    assert_eq!(value(left, &[0, 1, 0, 0, 0, 0]), value(right, &[0, 1]));
                }
            });
        }
        (1..200).for_each(|value| update(value, false));
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_member_in_use_cannot_be_deleted_and_its_changes_reach_entries_and_groups() {
    let store = store();
    let (selected, direct) = (id(&store, "selected"), id(&store, "member"));
    let mut tx = store.transaction();
    let in_use = |result: Result<(), TableError>| {
        assert!(
            matches!(result, Err(TableError::FailedPrecondition(_))),
            "{result:?}"
        );
    };
    tx.member_insert(SELECTOR, &member(1, 11)).unwrap();
    tx.member_insert(SELECTOR, &member(2, 12)).unwrap();
    tx.group_insert(SELECTOR, &group(7, &[(1, 1), (2, 1)]))
        .unwrap();
    in_use(tx.member_delete(SELECTOR, 1));
    tx.insert(selected, with(vec![exact(1)], 0, EntryAction::Group(7)))
        .unwrap();
    in_use(tx.group_delete(SELECTOR, 7));
    tx.member_insert(PROFILE, &member(1, 21)).unwrap();
    tx.insert(direct, with(vec![exact(1)], 0, EntryAction::Member(1)))
        .unwrap();
    in_use(tx.member_delete(PROFILE, 1));
    tx.commit();
    assert_eq!(look_up(&store, "selected", &[0, 1], 0), Some(11));
    assert_eq!(look_up(&store, "selected", &[0, 1], 1), Some(12));
    assert_eq!(look_up(&store, "member", &[0, 1], 0), Some(21));
    let mut tx = store.transaction();
    tx.member_modify(SELECTOR, &member(1, 99)).unwrap();
    tx.group_modify(SELECTOR, &group(7, &[(1, 1)])).unwrap();
    tx.member_delete(SELECTOR, 2).unwrap();
    tx.delete(direct, &[exact(1)], 0).unwrap();
    tx.member_delete(PROFILE, 1).unwrap();
    tx.commit();
    assert_eq!(look_up(&store, "selected", &[0, 1], 1), Some(99));
    assert_eq!(store.view().groups(SELECTOR), [group(7, &[(1, 1)])]);
    assert_eq!(store.view().members(SELECTOR), [member(1, 99)]);
}

#[test]
fn groups_are_checked() {
    let store = store();
    let mut tx = store.transaction();
    tx.member_insert(SELECTOR, &member(1, 1)).unwrap();
    let unknown = tx.group_insert(SELECTOR, &group(1, &[(9, 1)]));
    assert!(matches!(unknown, Err(TableError::NotFound(_))));
    let weight = tx.group_insert(SELECTOR, &group(1, &[(1, 0)]));
    assert!(matches!(weight, Err(TableError::InvalidArgument(_))));
    let twice = tx.group_insert(SELECTOR, &group(1, &[(1, 1), (1, 1)]));
    assert!(matches!(twice, Err(TableError::InvalidArgument(_))));
    let large = tx.group_insert(SELECTOR, &group(1, &[(1, 9)]));
    assert!(matches!(large, Err(TableError::ResourceExhausted(_))));
    let no_selector = tx.group_insert(PROFILE, &group(1, &[]));
    assert!(matches!(no_selector, Err(TableError::InvalidArgument(_))));
    tx.member_insert(PROFILE, &member(1, 1)).unwrap();
    tx.member_insert(PROFILE, &member(2, 1)).unwrap();
    let full = tx.member_insert(PROFILE, &member(3, 1));
    assert!(matches!(full, Err(TableError::ResourceExhausted(_))));
    let missing = tx.insert(
        id(&store, "selected"),
        with(vec![exact(1)], 0, EntryAction::Group(4)),
    );
    assert!(matches!(missing, Err(TableError::NotFound(_))));
}

/// Returns the values that 20,000 different hashes select.
fn chosen(store: &Store) -> Vec<Option<u64>> {
    let hashes = (0..20_000).map(|hash| hash * 0x1_0001);
    hashes
        .map(|hash| look_up(store, "selected", &[0, 1], hash))
        .collect()
}

/// Creates members 1 to 4 with values of 11 to 14, and a group of them to which an entry refers.
fn store_with_a_group(members: &[(u32, u32)]) -> Store {
    let store = store();
    let mut tx = store.transaction();
    for id in 1..=4 {
        let spec = member(id, 10 + id as u8);
        tx.member_insert(SELECTOR, &spec).unwrap();
    }
    tx.group_insert(SELECTOR, &group(7, members)).unwrap();
    let entry = with(vec![exact(1)], 0, EntryAction::Group(7));
    tx.insert(id(&store, "selected"), entry).unwrap();
    tx.commit();
    store
}

const WHOLE: [(u32, u32); 4] = [(1, 1), (2, 3), (3, 2), (4, 2)];
const PART: [(u32, u32); 3] = [(1, 1), (3, 2), (4, 2)];

/// Checks that the group keeps the same flows in both replicas. Each commit switches packets to the other replica.
#[test]
fn a_group_that_is_written_moves_only_flows_that_must_move_in_both_replicas() {
    let store = store_with_a_group(&WHOLE);
    let before = chosen(&store);
    let write = |members: &[(u32, u32)]| {
        let mut tx = store.transaction();
        tx.group_modify(SELECTOR, &group(7, members)).unwrap();
        tx.commit();
        let once = chosen(&store);
        assert_eq!(store.view().groups(SELECTOR), [group(7, members)]);
        let mut tx = store.transaction();
        tx.multicast_insert(9, vec![Replica::new(1, 0)]).unwrap();
        tx.multicast_delete(9).unwrap();
        tx.commit();
        assert!(once == chosen(&store), "the replicas differ");
        once
    };
    let after = write(&PART);
    let pairs = || before.iter().zip(&after);
    assert!(pairs().all(|(before, after)| before == after || *before == Some(12)));
    assert!(after.iter().all(|after| *after != Some(12)));
    assert!(write(&PART) == after);
    assert!(write(&WHOLE) == before);
}

#[test]
fn a_write_that_is_rolled_back_leaves_a_groups_flows_as_they_were() {
    let store = store_with_a_group(&WHOLE);
    let mut tx = store.transaction();
    tx.group_modify(SELECTOR, &group(7, &PART)).unwrap();
    tx.commit();
    let degraded = chosen(&store);
    let mut tx = store.transaction();
    // The batch writes completely different content before it is rolled back. If the rollback did not restore the
    // group's assignment, the later writes would start from the different content.
    let savepoint = tx.savepoint();
    tx.group_modify(SELECTOR, &group(7, &[(2, 7), (3, 1)]))
        .unwrap();
    tx.group_modify(SELECTOR, &group(7, &[(1, 1), (2, 1)]))
        .unwrap();
    tx.rollback(savepoint);
    tx.commit();
    assert!(chosen(&store) == degraded);
    let mut tx = store.transaction();
    tx.group_modify(SELECTOR, &group(7, &[])).unwrap();
    drop(tx);
    assert!(chosen(&store) == degraded);
    let mut tx = store.transaction();
    tx.group_modify(SELECTOR, &group(7, &WHOLE)).unwrap();
    tx.commit();
    assert!(chosen(&store) == chosen(&store_with_a_group(&WHOLE)));
}

#[test]
fn a_one_shot_group_moves_only_flows_that_must_move() {
    let store = store();
    let table = id(&store, "selected");
    let own = |values: &[u8]| {
        let members = values.iter().map(|value| OneShotMember {
            call: set(*value),
            weight: 1,
            watch_port: None,
        });
        with(vec![exact(1)], 0, EntryAction::OneShot(members.collect()))
    };
    let mut tx = store.transaction();
    tx.insert(table, own(&[1, 2, 3])).unwrap();
    tx.commit();
    let before = chosen(&store);
    let write = |values: &[u8]| {
        let mut tx = store.transaction();
        tx.modify(table, own(values)).unwrap();
        tx.commit();
        chosen(&store)
    };
    let after = write(&[1, 3]);
    let mut pairs = before.iter().zip(&after);
    assert!(pairs.all(|(before, after)| before == after || *before == Some(2)));
    assert!(write(&[1, 2, 3]) == before);
}

#[test]
fn a_one_shot_group_belongs_to_its_entry() {
    let store = store();
    let table = id(&store, "selected");
    let members = [(31, 1), (32, 2)].map(|(value, weight)| OneShotMember {
        call: set(value),
        weight,
        watch_port: None,
    });
    let action = EntryAction::OneShot(members.to_vec());
    let mut tx = store.transaction();
    tx.insert(table, with(vec![exact(1)], 0, action.clone()))
        .unwrap();
    tx.commit();
    let chosen = (0..3_000).map(|hash| look_up(&store, "selected", &[0, 1], hash));
    let (first, others): (Vec<_>, Vec<_>) = chosen.partition(|chosen| *chosen == Some(31));
    assert!(others.iter().all(|chosen| *chosen == Some(32)));
    assert!((800..1_200).contains(&first.len()), "{}", first.len());
    let read = store.view().entry(table, &[exact(1)], 0).unwrap();
    assert_eq!(
        read.spec(store.program(), store.program().table(table))
            .action,
        action
    );
}

#[test]
fn sessions_and_multicast_groups_have_the_usual_errors() {
    let store = store();
    let replica = Replica::new(1, 2);
    let session = || CloneSession {
        replicas: vec![replica.clone()],
        class_of_service: 0,
        packet_length: 0,
    };
    let mut tx = store.transaction();
    assert!(matches!(
        tx.multicast_modify(1, vec![]),
        Err(TableError::NotFound(_))
    ));
    assert!(matches!(
        tx.multicast_insert(0, vec![]),
        Err(TableError::InvalidArgument(_))
    ));
    let twice = tx.multicast_insert(1, vec![replica.clone(), replica.clone()]);
    assert!(matches!(twice, Err(TableError::InvalidArgument(_))));
    tx.multicast_insert(1, vec![replica.clone()]).unwrap();
    assert!(matches!(
        tx.multicast_insert(1, vec![]),
        Err(TableError::AlreadyExists(_))
    ));
    let beyond = tx.clone_session_insert(0x8000, session());
    assert!(matches!(beyond, Err(TableError::OutOfRange(_))));
    tx.clone_session_insert(0x7fff, session()).unwrap();
    tx.commit();
    let mut reader = store.reader();
    let tables = reader.pin();
    assert_eq!(tables.multicast(1), std::slice::from_ref(&replica));
    assert!(tables.multicast(2).is_empty());
    assert_eq!(tables.clone_session(0x7fff), Some(&session()));
    drop(tables);
    let mut tx = store.transaction();
    tx.multicast_delete(1).unwrap();
    tx.clone_session_delete(0x7fff).unwrap();
    assert!(matches!(
        tx.clone_session_delete(1),
        Err(TableError::NotFound(_))
    ));
    tx.commit();
    assert!(reader.pin().multicast(1).is_empty());
}
