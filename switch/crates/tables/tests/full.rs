// SPDX-License-Identifier: Apache-2.0
//! Checks that full tables, groups and other objects refuse additions with `ResourceExhausted`. The refusal leaves
//! the content unchanged, for packets and for readers. After an entry is removed, another one can be added.

mod common;

use std::sync::Arc;
use std::time::Instant;

use common::{entry, exact, id, look_up, program, set, store, with};
use sluice_program::ProfileId;
use sluice_tables::{
    CloneSession, EntryAction, GroupMember, GroupSpec, Limits, MemberSpec, MulticastGroup,
    OneShotMember, Replica, Store, TableError, Transaction,
};

/// The selector of the test program, which has room for 8 members.
const SELECTOR: ProfileId = ProfileId(0);
/// The profile without a selector, which has room for 2 members.
const PROFILE: ProfileId = ProfileId(1);

type Result = std::result::Result<(), TableError>;

/// Runs `action` in its own transaction, which is rolled back if it fails.
fn write(store: &Store, action: impl FnOnce(&mut Transaction<'_>) -> Result) -> Result {
    let mut tx = store.transaction();
    action(&mut tx)?;
    tx.commit();
    Ok(())
}

fn is_full(result: Result) {
    assert!(
        matches!(result, Err(TableError::ResourceExhausted(_))),
        "{result:?}"
    );
}

fn member(id: u32) -> MemberSpec {
    MemberSpec {
        id,
        call: set(id as u8),
    }
}

fn group(id: u32, weights: &[u32]) -> GroupSpec {
    let member = |(index, weight): (usize, &u32)| GroupMember {
        member: index as u32 + 1,
        weight: *weight,
        watch_port: None,
    };
    GroupSpec {
        id,
        max_size: 0,
        members: weights.iter().enumerate().map(member).collect(),
    }
}

fn replicas(count: u32) -> Vec<Replica> {
    (1..=count).map(|port| Replica::new(port, 0)).collect()
}

fn multicast(count: u32) -> Arc<MulticastGroup> {
    Arc::new(replicas(count).into())
}

fn session(count: u32) -> CloneSession {
    CloneSession {
        replicas: replicas(count),
        class_of_service: 0,
        packet_length: 0,
    }
}

fn limited(multicast_groups: usize, clone_sessions: usize, replicas: usize) -> Store {
    let limits = Limits {
        multicast_groups,
        clone_sessions,
        replicas,
    };
    Store::with_limits(program(), Instant::now(), limits)
}

#[test]
fn a_full_table_refuses_entries() {
    let store = store();
    let small = id(&store, "small");
    let add = |key: u8| {
        let spec = entry(vec![exact(key.into())], 0, key);
        write(&store, |tx| tx.insert(small, spec))
    };
    (1..=2).for_each(|key| add(key).unwrap());
    is_full(add(3));
    for key in 1..=2 {
        assert_eq!(look_up(&store, "small", &[0, key], 0), Some(key.into()));
    }
    assert_eq!(look_up(&store, "small", &[0, 3], 0), None);
    assert_eq!(store.view().entry_count(small), 2);
    // A batch that does not fit changes nothing. Existing entries can be modified and replaced.
    let mut tx = store.transaction();
    tx.delete(small, &[exact(1)], 0).unwrap();
    tx.insert(small, entry(vec![exact(4)], 0, 4)).unwrap();
    is_full(tx.insert(small, entry(vec![exact(5)], 0, 5)));
    drop(tx);
    assert_eq!(look_up(&store, "small", &[0, 1], 0), Some(1));
    write(&store, |tx| tx.modify(small, entry(vec![exact(1)], 0, 9))).unwrap();
    assert_eq!(look_up(&store, "small", &[0, 1], 0), Some(9));
    write(&store, |tx| tx.delete(small, &[exact(2)], 0)).unwrap();
    add(3).unwrap();
}

#[test]
fn a_full_profile_refuses_members() {
    let store = store();
    let add = |id| write(&store, |tx| tx.member_insert(PROFILE, &member(id)));
    (1..=2).for_each(|id| add(id).unwrap());
    let table = id(&store, "member");
    let refer = with(vec![exact(1)], 0, EntryAction::Member(2));
    write(&store, |tx| tx.insert(table, refer)).unwrap();
    is_full(add(3));
    assert_eq!(store.view().members(PROFILE), [member(1), member(2)]);
    assert_eq!(look_up(&store, "member", &[0, 1], 0), Some(2));
    write(&store, |tx| tx.member_delete(PROFILE, 1)).unwrap();
    add(3).unwrap();
}

#[test]
fn a_group_refuses_weights_above_its_limit() {
    let store = store();
    (1..=8).for_each(|id| write(&store, |tx| tx.member_insert(SELECTOR, &member(id))).unwrap());
    is_full(write(&store, |tx| tx.member_insert(SELECTOR, &member(9))));
    write(&store, |tx| tx.group_insert(SELECTOR, &group(1, &[1, 1]))).unwrap();
    is_full(write(&store, |tx| {
        tx.group_modify(SELECTOR, &group(1, &[4, 5]))
    }));
    is_full(write(&store, |tx| {
        tx.group_insert(SELECTOR, &group(2, &[9]))
    }));
    assert_eq!(store.view().groups(SELECTOR), [group(1, &[1, 1])]);
}

#[test]
fn a_one_shot_group_refuses_weights_above_the_limit() {
    let store = store();
    let table = id(&store, "selected");
    let one_shot = |weights: &[u32]| {
        let member = |weight: &u32| OneShotMember {
            call: set(7),
            weight: *weight,
            watch_port: None,
        };
        with(
            vec![exact(1)],
            0,
            EntryAction::OneShot(weights.iter().map(member).collect()),
        )
    };
    write(&store, |tx| tx.insert(table, one_shot(&[4, 4]))).unwrap();
    is_full(write(&store, |tx| tx.modify(table, one_shot(&[4, 5]))));
    assert_eq!(look_up(&store, "selected", &[0, 1], 0), Some(7));
}

#[test]
fn a_selector_refuses_groups_above_its_limit() {
    let store = store();
    let size = store.program().table(id(&store, "selected")).max_size as u32;
    let add = |id| write(&store, |tx| tx.group_insert(SELECTOR, &group(id, &[])));
    (1..=size).for_each(|id| add(id).unwrap());
    is_full(add(size + 1));
    assert_eq!(store.view().profile_counts(SELECTOR), (0, size as usize));
    write(&store, |tx| tx.group_delete(SELECTOR, 1)).unwrap();
    add(size + 1).unwrap();
}

#[test]
fn multicast_groups_have_a_limit() {
    let store = limited(2, 2, 100);
    let add = |id| write(&store, |tx| tx.multicast_insert(id, replicas(1)));
    (1..=2).for_each(|id| add(id).unwrap());
    is_full(add(3));
    assert_eq!(
        store.view().multicast_groups(),
        [(1, multicast(1)), (2, multicast(1))]
    );
    assert_eq!(store.reader().pin().multicast(1), replicas(1));
    write(&store, |tx| tx.multicast_delete(1)).unwrap();
    add(3).unwrap();
}

#[test]
fn clone_sessions_have_a_limit() {
    let store = limited(2, 2, 100);
    let add = |id| write(&store, |tx| tx.clone_session_insert(id, session(1)));
    (1..=2).for_each(|id| add(id).unwrap());
    is_full(add(3));
    assert_eq!(
        store.view().clone_sessions(),
        [(1, session(1)), (2, session(1))]
    );
    write(&store, |tx| tx.clone_session_delete(2)).unwrap();
    add(3).unwrap();
}

#[test]
fn replicas_of_all_groups_and_sessions_have_one_limit() {
    let store = limited(9, 9, 5);
    write(&store, |tx| tx.multicast_insert(1, replicas(3))).unwrap();
    write(&store, |tx| tx.clone_session_insert(1, session(2))).unwrap();
    is_full(write(&store, |tx| tx.multicast_insert(2, replicas(1))));
    is_full(write(&store, |tx| tx.multicast_modify(1, replicas(4))));
    is_full(write(&store, |tx| tx.clone_session_insert(2, session(1))));
    is_full(write(&store, |tx| tx.clone_session_modify(1, session(3))));
    assert_eq!(store.view().multicast_groups(), [(1, multicast(3))]);
    assert_eq!(store.view().clone_sessions(), [(1, session(2))]);
    // Deleting and replacing in the same transaction frees room.
    let mut tx = store.transaction();
    tx.multicast_modify(1, replicas(1)).unwrap();
    tx.clone_session_modify(1, session(4)).unwrap();
    drop(tx);
    is_full(write(&store, |tx| tx.clone_session_modify(1, session(4))));
    write(&store, |tx| tx.multicast_modify(1, replicas(1))).unwrap();
    write(&store, |tx| tx.clone_session_modify(1, session(4))).unwrap();
}
