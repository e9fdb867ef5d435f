// SPDX-License-Identifier: Apache-2.0
//! Provides short constructors for the entities of `program/suite.p4`. They encode numbers in the shortest form.

use sluice_p4runtime::proto::v1::packet_replication_engine_entry::Type as Replication;
use sluice_p4runtime::proto::v1::*;

use crate::program::id;

/// Encodes a number in the form that servers must return: big-endian, without leading zeros.
pub fn number(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros.min(bytes.len() - 1)..].to_vec()
}

fn field(field_id: u32, kind: field_match::FieldMatchType) -> FieldMatch {
    FieldMatch {
        field_id,
        field_match_type: Some(kind),
    }
}

/// Returns an exact match with these bytes, which need not be in the shortest form.
pub fn exact_bytes(id: u32, value: &[u8]) -> FieldMatch {
    let value = value.to_vec();
    field(
        id,
        field_match::FieldMatchType::Exact(field_match::Exact { value }),
    )
}

/// Returns an exact match.
pub fn exact(id: u32, value: u128) -> FieldMatch {
    exact_bytes(id, &number(value))
}

/// Returns a longest-prefix match.
pub fn lpm(id: u32, value: u128, prefix_len: i32) -> FieldMatch {
    let value = number(value);
    field(
        id,
        field_match::FieldMatchType::Lpm(field_match::Lpm { value, prefix_len }),
    )
}

/// Returns a ternary match: a value and a mask.
pub fn ternary(id: u32, value: u128, mask: u128) -> FieldMatch {
    let (value, mask) = (number(value), number(mask));
    field(
        id,
        field_match::FieldMatchType::Ternary(field_match::Ternary { value, mask }),
    )
}

/// Returns a range match with two bounds.
pub fn range(id: u32, low: u128, high: u128) -> FieldMatch {
    let (low, high) = (number(low), number(high));
    field(
        id,
        field_match::FieldMatchType::Range(field_match::Range { low, high }),
    )
}

/// Returns an optional match with a value.
pub fn optional(id: u32, value: u128) -> FieldMatch {
    let value = number(value);
    field(
        id,
        field_match::FieldMatchType::Optional(field_match::Optional { value }),
    )
}

/// Returns a match field whose match is not set.
pub fn no_match(field_id: u32) -> FieldMatch {
    FieldMatch {
        field_id,
        field_match_type: None,
    }
}

/// Returns an action with parameters, numbered from 1.
pub fn call(name: &str, params: &[u128]) -> Action {
    let param = |(index, value): (usize, &u128)| action::Param {
        param_id: index as u32 + 1,
        value: number(*value),
    };
    Action {
        action_id: id(name),
        params: params.iter().enumerate().map(param).collect(),
    }
}

/// Returns an action for an entry of a table without an action profile.
pub fn does(name: &str, params: &[u128]) -> Option<TableAction> {
    Some(TableAction {
        r#type: Some(table_action::Type::Action(call(name, params))),
    })
}

/// Returns the action that sets the mark.
pub fn mark(value: u128) -> Option<TableAction> {
    does("mark", &[value])
}

/// Returns an action for an entry of a table with an action profile: a member.
pub fn to_member(member: u32) -> Option<TableAction> {
    Some(TableAction {
        r#type: Some(table_action::Type::ActionProfileMemberId(member)),
    })
}

/// Returns an action for an entry of a table with an action selector: a group.
pub fn to_group(group: u32) -> Option<TableAction> {
    Some(TableAction {
        r#type: Some(table_action::Type::ActionProfileGroupId(group)),
    })
}

/// Returns an action for an entry of a table with an action selector: a one-shot set of marks with weights.
pub fn to_set(marks: &[(u128, i32)]) -> Option<TableAction> {
    let action = |&(value, weight): &(u128, i32)| ActionProfileAction {
        action: Some(call("mark", &[value])),
        weight,
        watch_kind: None,
    };
    let set = ActionProfileActionSet {
        action_profile_actions: marks.iter().map(action).collect(),
        ..Default::default()
    };
    Some(TableAction {
        r#type: Some(table_action::Type::ActionProfileActionSet(set)),
    })
}

/// Returns an entry.
pub fn entry(table: &str, matches: Vec<FieldMatch>, action: Option<TableAction>) -> TableEntry {
    TableEntry {
        table_id: id(table),
        r#match: matches,
        action,
        ..Default::default()
    }
}

/// Returns an entry with a priority.
pub fn ranked(
    table: &str,
    matches: Vec<FieldMatch>,
    priority: i32,
    action: Option<TableAction>,
) -> TableEntry {
    TableEntry {
        priority,
        ..entry(table, matches, action)
    }
}

/// Returns a request for all entries of a table. Other constructors start from this request and add fields, to
/// build an entry.
pub fn all_of(table: &str) -> TableEntry {
    entry(table, vec![], None)
}

/// Returns a table's default entry.
pub fn default_of(table: &str, action: Option<TableAction>) -> TableEntry {
    TableEntry {
        is_default_action: true,
        ..entry(table, vec![], action)
    }
}

/// Returns an entry of `exact_table` that sets a mark.
pub fn exact_entry(a: u128, value: u128) -> TableEntry {
    let action = does("mark_direct", &[value]);
    entry("exact_table", vec![exact(1, a), exact(2, 0)], action)
}

/// Returns the part of an entry that identifies it: table, key and priority.
pub fn key_of(entry: &TableEntry) -> TableEntry {
    TableEntry {
        table_id: entry.table_id,
        r#match: entry.r#match.clone(),
        priority: entry.priority,
        ..Default::default()
    }
}

/// Returns an entry of `lpm_table`.
pub fn lpm_entry(a: u128, prefix_len: i32, value: u128) -> TableEntry {
    entry("lpm_table", vec![lpm(1, a, prefix_len)], mark(value))
}

/// Returns a member that sets a mark.
pub fn member(profile: &str, member_id: u32, value: u128) -> ActionProfileMember {
    ActionProfileMember {
        action_profile_id: id(profile),
        member_id,
        action: Some(call("mark", &[value])),
    }
}

/// Returns a group of members with weights. The group's maximum size is 8.
pub fn group(group_id: u32, members: &[(u32, i32)]) -> ActionProfileGroup {
    let member = |&(member_id, weight): &(u32, i32)| action_profile_group::Member {
        member_id,
        weight,
        watch_kind: None,
    };
    ActionProfileGroup {
        action_profile_id: id("paths"),
        group_id,
        members: members.iter().map(member).collect(),
        max_size: 8,
    }
}

/// Returns a counter's packets and bytes.
pub fn counted(packet_count: i64, byte_count: i64) -> CounterData {
    CounterData {
        byte_count,
        packet_count,
    }
}

/// Returns a cell of a counter, or all cells if `index` is `None`.
pub fn counter(name: &str, index: Option<i64>, data: Option<CounterData>) -> CounterEntry {
    CounterEntry {
        counter_id: id(name),
        index: index.map(|index| Index { index }),
        data,
    }
}

/// Returns a cell of a meter, or all cells if `index` is `None`.
pub fn meter(name: &str, index: Option<i64>, config: Option<MeterConfig>) -> MeterEntry {
    MeterEntry {
        meter_id: id(name),
        index: index.map(|index| Index { index }),
        config,
        counter_data: None,
    }
}

/// Returns a meter configuration with two rates.
pub fn rates(cir: i64, cburst: i64, pir: i64, pburst: i64) -> MeterConfig {
    MeterConfig {
        cir,
        cburst,
        pir,
        pburst,
        eburst: 0,
    }
}

/// Returns a cell of a register, or all cells if `index` is `None`.
pub fn register(name: &str, index: Option<i64>, value: Option<u128>) -> RegisterEntry {
    let data = |value| P4Data {
        data: Some(p4_data::Data::Bitstring(number(value))),
    };
    RegisterEntry {
        register_id: id(name),
        index: index.map(|index| Index { index }),
        data: value.map(data),
    }
}

/// Returns an entity that sets the members of the program's value set.
pub fn kinds(values: &[u128]) -> ValueSetEntry {
    let member = |value: &u128| ValueSetMember {
        r#match: vec![exact(1, *value)],
    };
    ValueSetEntry {
        value_set_id: id("kinds"),
        members: values.iter().map(member).collect(),
    }
}

/// Returns settings of the digest.
pub fn digest(max_timeout_ns: i64, max_list_size: i32, ack_timeout_ns: i64) -> DigestEntry {
    DigestEntry {
        digest_id: id("learned_t"),
        config: Some(digest_entry::Config {
            max_timeout_ns,
            max_list_size,
            ack_timeout_ns,
        }),
    }
}

/// Returns a replica.
pub fn replica(port: u128, instance: u32) -> Replica {
    Replica {
        port_kind: Some(replica::PortKind::Port(number(port))),
        instance,
        backup_replicas: vec![],
    }
}

/// Returns a replica with backups.
pub fn backed(port: u128, instance: u32, backups: &[(u128, u32)]) -> Replica {
    let backup = |&(port, instance): &(u128, u32)| BackupReplica {
        port: number(port),
        instance,
    };
    Replica {
        backup_replicas: backups.iter().map(backup).collect(),
        ..replica(port, instance)
    }
}

/// Returns a multicast group with metadata.
pub fn multicast_with(
    multicast_group_id: u32,
    replicas: Vec<Replica>,
    metadata: &[u8],
) -> PacketReplicationEngineEntry {
    let group = MulticastGroupEntry {
        multicast_group_id,
        replicas,
        metadata: metadata.to_vec(),
    };
    PacketReplicationEngineEntry {
        r#type: Some(Replication::MulticastGroupEntry(group)),
    }
}

/// Returns a multicast group.
pub fn multicast(id: u32, replicas: Vec<Replica>) -> PacketReplicationEngineEntry {
    multicast_with(id, replicas, b"")
}

/// Returns a clone session.
pub fn session(
    session_id: u32,
    replicas: Vec<Replica>,
    packet_length_bytes: i32,
) -> PacketReplicationEngineEntry {
    let session = CloneSessionEntry {
        session_id,
        replicas,
        class_of_service: 0,
        packet_length_bytes,
    };
    PacketReplicationEngineEntry {
        r#type: Some(Replication::CloneSessionEntry(session)),
    }
}

macro_rules! into_entity {
    ($($name:ident),*) => {$(
        impl IntoEntity for $name {
            fn into_entity(self) -> Entity {
                Entity { entity: Some(entity::Entity::$name(self)) }
            }
        }
    )*};
}

/// Converts a P4Runtime message of any entity type to an [`Entity`].
pub trait IntoEntity {
    /// Wraps the value as an entity.
    fn into_entity(self) -> Entity;
}

into_entity!(
    TableEntry,
    ActionProfileMember,
    ActionProfileGroup,
    CounterEntry,
    MeterEntry,
    RegisterEntry,
    DirectCounterEntry,
    DirectMeterEntry,
    PacketReplicationEngineEntry,
    ValueSetEntry,
    DigestEntry,
    ExternEntry
);

impl IntoEntity for Entity {
    fn into_entity(self) -> Entity {
        self
    }
}

fn update(kind: update::Type, entity: impl IntoEntity) -> Update {
    Update {
        r#type: kind.into(),
        entity: Some(entity.into_entity()),
    }
}

/// Returns an INSERT.
pub fn insert(entity: impl IntoEntity) -> Update {
    update(update::Type::Insert, entity)
}

/// Returns a MODIFY.
pub fn modify(entity: impl IntoEntity) -> Update {
    update(update::Type::Modify, entity)
}

/// Returns a DELETE.
pub fn delete(entity: impl IntoEntity) -> Update {
    update(update::Type::Delete, entity)
}
