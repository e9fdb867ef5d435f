// SPDX-License-Identifier: Apache-2.0
//! Generates random contents of a program's tables, groups, sessions and value sets.
//!
//! Contents that the store refuses are left out. The target `update` tests such refusals.

use sluice_program::{
    ActionId, MatchKind, MeterId, ProfileId, Program, Table, TableId, ValueSetId,
};
use sluice_tables::{
    ActionCall, BackupReplica, CloneSession, EntryAction, EntrySpec, GroupMember, GroupSpec,
    KeyField, MemberSpec, MeterConfig, OneShotMember, Replica, Store, Transaction, Value,
};

use crate::frames::{CPU_PORT, VALUES};
use crate::random::Random;

const ENTRIES: usize = 24;
const MEMBERS: u32 = 6;
const GROUPS: u32 = 3;
const SESSIONS: u32 = 4;
/// Number of cells of a meter array that may be configured. Frames rarely use later cells.
const METERS: usize = 64;

/// Fills the store with random contents.
pub fn populate(store: &Store, random: &mut Random) {
    let program = store.program();
    let mut transaction = store.transaction();
    for index in 0..program.profiles.len() {
        profile(&mut transaction, program, ProfileId(index as u32), random);
    }
    for (index, table) in program.tables.iter().enumerate() {
        let id = TableId(index as u32);
        for _ in 0..random.below(ENTRIES) {
            let _ = transaction.insert(id, entry(program, table, random));
        }
        if random.one_in(4) {
            let _ = transaction.set_default(id, Some(action(program, table, random).into()));
        }
    }
    for id in 1..=SESSIONS {
        let _ = transaction.multicast_insert(id, replicas(random));
        let session = CloneSession {
            replicas: replicas(random),
            class_of_service: 0,
            packet_length: if random.one_in(2) {
                0
            } else {
                random.below(200) as u32
            },
        };
        let _ = transaction.clone_session_insert(id, session);
    }
    for (index, set) in program.value_sets.iter().enumerate() {
        let member = |random: &mut Random| {
            let widths = set.components.iter();
            widths
                .map(|width| KeyField::Exact(value(random, *width)))
                .collect()
        };
        let members = (0..random.below(4)).map(|_| member(random)).collect();
        let _ = transaction.value_set_modify(ValueSetId(index as u32), members);
    }
    for index in 0..program.profiles.len() {
        write_groups_again(&mut transaction, ProfileId(index as u32), random);
    }
    transaction.commit();
}

/// Configures some meters. Their rates are so low that a few packets get all colours. So the result of a packet depends
/// on the packets before it.
pub fn set_meters(store: &Store, random: &mut Random) {
    let (program, externs) = (store.program(), store.externs());
    for number in 0..program.meters.len() {
        let id = MeterId(number as u32);
        for index in 0..externs.meter_size(id).min(METERS) {
            if let Some(meter) = externs.meter(id, index).filter(|_| random.one_in(2)) {
                meter.set_config(Some(rates(random)));
            }
        }
    }
    let view = store.view();
    for table in tables_with_meters(program) {
        for entry in view.entries(table) {
            if let Some(meter) = entry.meter().filter(|_| random.one_in(2)) {
                meter.set_config(Some(rates(random)));
            }
        }
    }
}

fn tables_with_meters(program: &Program) -> impl Iterator<Item = TableId> {
    let tables = program.tables.iter().enumerate();
    let metered = tables.filter(|(_, table)| table.meter.is_some());
    metered.map(|(index, _)| TableId(index as u32))
}

fn rates(random: &mut Random) -> MeterConfig {
    let cir = random.below(2_000) as u64;
    MeterConfig {
        cir,
        cburst: random.below(500) as u64,
        pir: cir * 2,
        pburst: random.below(1_000) as u64,
        excess: random.one_in(3).then(|| random.below(500) as u64),
    }
}

fn profile(
    transaction: &mut Transaction<'_>,
    program: &Program,
    id: ProfileId,
    random: &mut Random,
) {
    let user = program.tables.iter().find(|t| t.profile == Some(id));
    let Some(table) = user.filter(|table| !table.actions.is_empty()) else {
        return;
    };
    for member in 1..=MEMBERS {
        let call = call(program, table, random);
        let _ = transaction.member_insert(id, &MemberSpec { id: member, call });
    }
    for group in 1..=GROUPS {
        let _ = transaction.group_insert(id, &group_of(group, random));
    }
}

/// Writes groups a second time, because the result of writing a group depends on its old content.
fn write_groups_again(transaction: &mut Transaction<'_>, id: ProfileId, random: &mut Random) {
    for _ in 0..random.below(8) {
        let group = 1 + random.below(GROUPS as usize) as u32;
        let _ = transaction.group_modify(id, &group_of(group, random));
    }
}

fn group_of(id: u32, random: &mut Random) -> GroupSpec {
    let mut members = Vec::new();
    for member in (1..=MEMBERS).step_by(1 + random.below(3)) {
        members.push(GroupMember {
            member,
            weight: 1 + random.below(3) as u32,
            watch_port: watch(random),
        });
    }
    GroupSpec {
        id,
        max_size: 0,
        members,
    }
}

fn watch(random: &mut Random) -> Option<u32> {
    random.one_in(4).then(|| random.below(5) as u32)
}

fn entry(program: &Program, table: &Table, random: &mut Random) -> EntrySpec {
    let key = table.key.iter();
    let key = key
        .map(|key| field(random, key.kind, key.width))
        .collect::<Vec<_>>();
    EntrySpec {
        key,
        priority: if table.needs_priority() {
            1 + random.below(8) as i32
        } else {
            0
        },
        action: action(program, table, random),
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Vec::new(),
    }
}

fn action(program: &Program, table: &Table, random: &mut Random) -> EntryAction {
    if table.profile.is_none() {
        return EntryAction::Direct(call(program, table, random));
    }
    match random.below(3) {
        0 => EntryAction::Member(1 + random.below(MEMBERS as usize) as u32),
        1 => EntryAction::Group(1 + random.below(GROUPS as usize) as u32),
        _ => {
            let member = |random: &mut Random| OneShotMember {
                call: call(program, table, random),
                weight: 1 + random.below(3) as u32,
                watch_port: watch(random),
            };
            EntryAction::OneShot((0..random.below(4)).map(|_| member(random)).collect())
        }
    }
}

fn call(program: &Program, table: &Table, random: &mut Random) -> ActionCall {
    let Some(action) = table.actions.get(random.below(table.actions.len())) else {
        return ActionCall {
            action: ActionId(0),
            params: Vec::new(),
        };
    };
    let params = program.action(*action).params.iter();
    ActionCall {
        action: *action,
        params: params
            .map(|param| value(random, param.slot.width))
            .collect(),
    }
}

fn replicas(random: &mut Random) -> Vec<Replica> {
    let place = |random: &mut Random| {
        let port = match random.below(8) {
            0 => CPU_PORT,
            1 => random.next_u64() as u32,
            _ => random.below(5) as u32,
        };
        (port, random.below(4) as u16)
    };
    let replica = |random: &mut Random| {
        let (port, instance) = place(random);
        let backup = |random: &mut Random| {
            let (port, instance) = place(random);
            BackupReplica { port, instance }
        };
        let backups = random.below(12).saturating_sub(9);
        Replica {
            backups: (0..backups).map(|_| backup(random)).collect(),
            ..Replica::new(port, instance)
        }
    };
    (0..random.below(5)).map(|_| replica(random)).collect()
}

fn field(random: &mut Random, kind: MatchKind, width: u16) -> KeyField {
    let anything = kind != MatchKind::Exact && random.one_in(3);
    let wanted = value(random, width);
    match kind {
        _ if anything => KeyField::DontCare,
        MatchKind::Exact => KeyField::Exact(wanted),
        MatchKind::Optional => KeyField::Optional(wanted),
        MatchKind::Range => {
            let other = value(random, width);
            let (low, high) = if wanted <= other {
                (wanted, other)
            } else {
                (other, wanted)
            };
            KeyField::Range { low, high }
        }
        MatchKind::Lpm => {
            let prefix_len = 1 + random.below(usize::from(width)) as u32;
            let value = under(&wanted, &prefix(width, prefix_len));
            KeyField::Lpm { value, prefix_len }
        }
        MatchKind::Ternary => {
            let mask = match random.below(3) {
                0 => value(random, width),
                1 => prefix(width, 1 + random.below(usize::from(width)) as u32),
                _ => prefix(width, u32::from(width)),
            };
            let value = under(&wanted, &mask);
            KeyField::Ternary { value, mask }
        }
    }
}

fn under(value: &[u8], mask: &[u8]) -> Value {
    value.iter().zip(mask).map(|(v, m)| v & m).collect()
}

/// Returns `width` bits in whole bytes: first `length` ones, then zeros.
fn prefix(width: u16, length: u32) -> Value {
    let bytes = usize::from(width).div_ceil(8);
    let spare = bytes * 8 - usize::from(width);
    let mut mask = vec![0; bytes];
    for bit in spare..spare + length as usize {
        mask[bit / 8] |= 0x80 >> (bit % 8);
    }
    mask
}

/// Returns a value of this width. The value is likely to occur in a frame or in another table.
fn value(random: &mut Random, width: u16) -> Value {
    let bytes = usize::from(width).div_ceil(8);
    let mut value = match random.below(8) {
        0 => random.bytes(bytes),
        1 | 2 => from_number(0, bytes),
        3 | 4 => from_number(*random.pick(&VALUES), bytes),
        _ => from_number(random.below(5) as u128, bytes),
    };
    let spare = bytes * 8 - usize::from(width);
    if let Some(first) = value.first_mut() {
        *first &= 0xff >> spare;
    }
    value
}

fn from_number(number: u128, bytes: usize) -> Value {
    let all = number.to_be_bytes();
    let mut value = vec![0; bytes.saturating_sub(all.len())];
    value.extend_from_slice(&all[all.len().saturating_sub(bytes)..]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_routers_tables_get_entries_of_every_kind() {
        let program =
            Program::from_json(&crate::programs::router().json).expect("the program loads");
        let store = Store::new(Arc::new(program));
        populate(&store, &mut Random::new(1));
        let view = store.view();
        let tables = store.program().tables.iter().enumerate();
        let writable = tables.filter(|(_, table)| !table.key.is_empty() && !table.const_entries);
        let (mut all, mut filled) = (0, 0);
        for (index, _) in writable {
            all += 1;
            filled += usize::from(view.entry_count(TableId(index as u32)) > 0);
        }
        assert!(filled * 4 > all * 3, "{filled} of {all}");
        assert!(!view.clone_sessions().is_empty());
    }

    #[test]
    fn prefixes_are_as_long_as_they_say() {
        assert_eq!(prefix(12, 3), [0x0e, 0x00]);
        assert_eq!(prefix(9, 9), [0x01, 0xff]);
        assert_eq!(prefix(16, 0), [0, 0]);
    }
}
