// SPDX-License-Identifier: Apache-2.0
//! Computes the canonical form in which a server must return entities (P4Runtime 1.5, sections 8.4 and 9). In this
//! form, byte strings are as short as possible, and fields and parameters are in P4Info's order. Optional parts that
//! were not requested are left out.

use sluice_p4runtime::proto::v1::entity::Entity as EntityKind;
use sluice_p4runtime::proto::v1::*;

use super::info::Info;

/// Returns the shortest form of a number.
pub(super) fn bytes(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    if zeros == bytes.len() {
        return vec![0];
    }
    bytes[zeros..].to_vec()
}

fn shorten(value: &mut Vec<u8>) {
    *value = bytes(value);
}

/// Returns the entity in the form in which a server returns it.
pub(super) fn entity(info: &Info, kind: &EntityKind) -> EntityKind {
    let mut kind = kind.clone();
    match &mut kind {
        EntityKind::TableEntry(entry) => table_entry(info, entry),
        EntityKind::ActionProfileMember(member) => {
            member
                .action
                .iter_mut()
                .for_each(|action| call(info, action));
        }
        EntityKind::ActionProfileGroup(group) => group.members.iter_mut().for_each(group_member),
        EntityKind::PacketReplicationEngineEntry(entry) => match &mut entry.r#type {
            Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)) => {
                group.replicas.iter_mut().for_each(replica);
            }
            Some(packet_replication_engine_entry::Type::CloneSessionEntry(session)) => {
                session.replicas.iter_mut().for_each(replica);
            }
            None => {}
        },
        EntityKind::ValueSetEntry(set) => {
            let fields = info
                .value_sets
                .iter()
                .find(|(id, ..)| *id == set.value_set_id);
            let order: Vec<u32> = fields
                .into_iter()
                .flat_map(|(_, fields, _)| fields.iter().map(|field| field.id))
                .collect();
            for member in &mut set.members {
                key(&order, &mut member.r#match);
            }
        }
        _ => {}
    }
    kind
}

/// Converts the entity of a write to several cells to the entity that a server returns for one of these cells.
pub(super) fn cell(kind: &EntityKind, index: i64) -> EntityKind {
    let mut kind = kind.clone();
    let index = Some(Index { index });
    match &mut kind {
        EntityKind::CounterEntry(entry) => entry.index = index,
        EntityKind::MeterEntry(entry) => {
            entry.index = index;
            entry.counter_data = None;
        }
        EntityKind::RegisterEntry(entry) => {
            entry.index = index;
            if let Some(P4Data {
                data: Some(p4_data::Data::Bitstring(value)),
            }) = &mut entry.data
            {
                shorten(value);
            }
        }
        _ => {}
    }
    kind
}

fn table_entry(info: &Info, entry: &mut TableEntry) {
    let table = info.tables.get(&entry.table_id);
    let fields = table.into_iter().flat_map(|table| &table.fields);
    let order: Vec<u32> = fields.map(|field| field.id).collect();
    key(&order, &mut entry.r#match);
    entry.time_since_last_hit = None;
    entry.meter_counter_data = None;
    match entry
        .action
        .as_mut()
        .and_then(|action| action.r#type.as_mut())
    {
        Some(table_action::Type::Action(action)) => call(info, action),
        Some(table_action::Type::ActionProfileActionSet(set)) => {
            set.action_selection_mode = 0;
            set.size_semantics = 0;
            for member in &mut set.action_profile_actions {
                member
                    .action
                    .iter_mut()
                    .for_each(|action| call(info, action));
                if let Some(action_profile_action::WatchKind::WatchPort(port)) =
                    &mut member.watch_kind
                {
                    if port.is_empty() {
                        member.watch_kind = None;
                    } else {
                        shorten(port);
                    }
                }
            }
        }
        _ => {}
    }
}

fn key(order: &[u32], matches: &mut [FieldMatch]) {
    use field_match::FieldMatchType;
    matches.sort_by_key(|field| order.iter().position(|id| *id == field.field_id));
    for field in matches {
        match &mut field.field_match_type {
            Some(FieldMatchType::Exact(m)) => shorten(&mut m.value),
            Some(FieldMatchType::Optional(m)) => shorten(&mut m.value),
            Some(FieldMatchType::Lpm(m)) => shorten(&mut m.value),
            Some(FieldMatchType::Ternary(m)) => {
                shorten(&mut m.value);
                shorten(&mut m.mask);
            }
            Some(FieldMatchType::Range(m)) => {
                shorten(&mut m.low);
                shorten(&mut m.high);
            }
            _ => {}
        }
    }
}

fn call(info: &Info, action: &mut Action) {
    let params = info.actions.get(&action.action_id);
    let order: Vec<u32> = params.into_iter().flatten().map(|(id, _)| *id).collect();
    action
        .params
        .sort_by_key(|param| order.iter().position(|id| *id == param.param_id));
    action
        .params
        .iter_mut()
        .for_each(|param| shorten(&mut param.value));
}

fn group_member(member: &mut action_profile_group::Member) {
    if let Some(action_profile_group::member::WatchKind::WatchPort(port)) = &mut member.watch_kind {
        if port.is_empty() {
            member.watch_kind = None;
        } else {
            shorten(port);
        }
    }
}

fn replica(replica: &mut Replica) {
    let port = match &replica.port_kind {
        Some(replica::PortKind::Port(port)) => bytes(port),
        Some(replica::PortKind::EgressPort(port)) => bytes(&port.to_be_bytes()),
        None => return,
    };
    replica.port_kind = Some(replica::PortKind::Port(port));
    for backup in &mut replica.backup_replicas {
        shorten(&mut backup.port);
    }
}
