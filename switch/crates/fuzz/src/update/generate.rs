// SPDX-License-Identifier: Apache-2.0
//! Generates updates from P4Info and choices. Each update alone is well formed. The updates use few different values,
//! so that they refer to each other's entries.

use sluice_p4runtime::proto::v1::entity::Entity as EntityKind;
use sluice_p4runtime::proto::v1::*;

use super::info::{Array, Info, Profile, Table};
use super::model::Model;
use super::name::Name;
use super::values::{field_match, matches, value};
use crate::choices::Choices;

/// Number of the last port. The ports begin with 0.
pub(super) const LAST_PORT: u8 = 7;
const IDS: usize = 6;

/// Generates updates.
pub(super) struct Generator<'a> {
    pub(super) info: &'a Info,
    pub(super) model: &'a Model,
}

impl Generator<'_> {
    /// Generates an update.
    pub(super) fn update(&self, choices: &mut Choices<'_>) -> Update {
        let (operation, kind) = self.operation(choices);
        Update {
            r#type: operation.into(),
            entity: Some(Entity { entity: Some(kind) }),
        }
    }

    /// Generates an entity and an operation on it. If the operation is a modification or a deletion, the entity exists
    /// in most cases.
    fn operation(&self, choices: &mut Choices<'_>) -> (update::Type, EntityKind) {
        let operation = *choices.pick(&[
            update::Type::Insert,
            update::Type::Insert,
            update::Type::Modify,
            update::Type::Delete,
        ]);
        let mut kind = self.entity(choices);
        match kind {
            EntityKind::CounterEntry(_)
            | EntityKind::MeterEntry(_)
            | EntityKind::RegisterEntry(_)
            | EntityKind::ValueSetEntry(_)
            | EntityKind::DirectCounterEntry(_)
            | EntityKind::DirectMeterEntry(_) => return (update::Type::Modify, kind),
            EntityKind::TableEntry(ref entry) if entry.is_default_action => {
                return (update::Type::Modify, kind);
            }
            _ => {}
        }
        if operation != update::Type::Insert && !choices.one_in(8) {
            self.adopt(choices, &mut kind);
        }
        (operation, kind)
    }

    /// Replaces the entity's name by the name of an existing entity of the same kind.
    fn adopt(&self, choices: &mut Choices<'_>, kind: &mut EntityKind) {
        let wanted = Name::of(kind);
        let alike: Vec<_> = self
            .model
            .entities()
            .filter(|(name, _)| name.is_kin_of(&wanted))
            .collect();
        if alike.is_empty() {
            return;
        }
        let (_, existing) = *choices.pick(&alike);
        match (kind, existing) {
            (EntityKind::TableEntry(entry), EntityKind::TableEntry(other)) => {
                entry.r#match.clone_from(&other.r#match);
                entry.priority = other.priority;
            }
            (EntityKind::ActionProfileMember(member), EntityKind::ActionProfileMember(other)) => {
                member.member_id = other.member_id;
            }
            (EntityKind::ActionProfileGroup(group), EntityKind::ActionProfileGroup(other)) => {
                group.group_id = other.group_id;
                group.max_size = other.max_size;
            }
            _ => {}
        }
    }

    fn entity(&self, choices: &mut Choices<'_>) -> EntityKind {
        let info = self.info;
        let made = match choices.below(16) {
            8 | 9 => self.member(choices),
            10 => self.group(choices),
            11 => Some(replication(choices)),
            12 => match choices.below(3) {
                0 => array(choices, &info.counters, counter),
                1 => array(choices, &info.meters, meter),
                _ => array(choices, &info.registers, register),
            },
            13 => value_set(choices, info),
            14 => digest(choices, info),
            15 => self.direct(choices),
            _ => None,
        };
        made.unwrap_or_else(|| EntityKind::TableEntry(self.table_entry(choices)))
    }

    fn table<'b>(&'b self, choices: &mut Choices<'_>) -> &'b Table {
        let tables: Vec<&Table> = self.info.tables.values().collect();
        tables[choices.below(tables.len())]
    }

    fn table_entry(&self, choices: &mut Choices<'_>) -> TableEntry {
        let table = self.table(choices);
        let mut entry = TableEntry {
            table_id: table.id,
            controller_metadata: u64::from(choices.byte() % 2),
            metadata: vec![7; choices.below(2)],
            ..TableEntry::default()
        };
        if table.fields.is_empty() || choices.one_in(16) {
            entry.is_default_action = true;
            entry.controller_metadata = 0;
            entry.metadata.clear();
            if !table.defaults.is_empty() && choices.one_in(2) {
                let call = self.call(choices, &table.defaults);
                entry.action = Some(direct(call));
            }
        } else {
            entry.r#match = matches(choices, &table.fields);
            entry.priority = if table.needs_priority() {
                1 + choices.below(3) as i32
            } else {
                0
            };
            entry.action = Some(self.table_action(choices, table));
            if table.idle_timeout && choices.one_in(2) {
                entry.idle_timeout_ns = 1 << 40;
            }
        }
        if table.counter && choices.one_in(4) {
            entry.counter_data = Some(counter_data(choices));
        }
        if table.meter && choices.one_in(4) {
            entry.meter_config = Some(meter_config(choices));
        }
        entry
    }

    fn table_action(&self, choices: &mut Choices<'_>, table: &Table) -> TableAction {
        let Some(profile) = table.profile.and_then(|id| self.info.profiles.get(&id)) else {
            return direct(self.call(choices, &table.actions));
        };
        let id = 1 + choices.below(IDS) as u32;
        let kind = match choices.below(3) {
            1 if profile.selector => table_action::Type::ActionProfileGroupId(id),
            2 if profile.selector => {
                table_action::Type::ActionProfileActionSet(self.one_shot(choices, profile))
            }
            _ => table_action::Type::ActionProfileMemberId(id),
        };
        TableAction { r#type: Some(kind) }
    }

    fn one_shot(&self, choices: &mut Choices<'_>, profile: &Profile) -> ActionProfileActionSet {
        let member = |choices: &mut Choices<'_>| ActionProfileAction {
            action: Some(self.call(choices, &profile.actions)),
            weight: 1 + choices.below(3) as i32,
            watch_kind: port(choices).map(action_profile_action::WatchKind::WatchPort),
        };
        ActionProfileActionSet {
            action_profile_actions: (0..choices.below(4)).map(|_| member(choices)).collect(),
            ..ActionProfileActionSet::default()
        }
    }

    fn call(&self, choices: &mut Choices<'_>, actions: &[u32]) -> Action {
        let action_id = *choices.pick(actions);
        let params = self.info.actions.get(&action_id);
        let params = params.into_iter().flatten();
        Action {
            action_id,
            params: params
                .map(|(param_id, width)| action::Param {
                    param_id: *param_id,
                    value: value(choices, *width),
                })
                .collect(),
        }
    }

    fn profile<'b>(&'b self, choices: &mut Choices<'_>) -> Option<&'b Profile> {
        let profiles = self.info.profiles.values();
        let usable: Vec<_> = profiles.filter(|p| !p.actions.is_empty()).collect();
        let chosen = choices.below(usable.len());
        usable.get(chosen).copied()
    }

    fn member(&self, choices: &mut Choices<'_>) -> Option<EntityKind> {
        let profile = self.profile(choices)?;
        Some(EntityKind::ActionProfileMember(ActionProfileMember {
            action_profile_id: profile.id,
            member_id: 1 + choices.below(IDS) as u32,
            action: Some(self.call(choices, &profile.actions)),
        }))
    }

    fn group(&self, choices: &mut Choices<'_>) -> Option<EntityKind> {
        let profile = self.profile(choices).filter(|profile| profile.selector)?;
        let mut members = Vec::new();
        for member_id in 1..=IDS as u32 {
            if choices.one_in(4) {
                members.push(action_profile_group::Member {
                    member_id,
                    weight: 1 + choices.below(3) as i32,
                    watch_kind: port(choices)
                        .map(action_profile_group::member::WatchKind::WatchPort),
                });
            }
        }
        Some(EntityKind::ActionProfileGroup(ActionProfileGroup {
            action_profile_id: profile.id,
            group_id: 1 + choices.below(IDS) as u32,
            members,
            max_size: choices.below(2) as i32 * profile.max_group_size as i32,
        }))
    }

    /// Generates a direct counter or meter of an entry. The entry exists in most cases.
    fn direct(&self, choices: &mut Choices<'_>) -> Option<EntityKind> {
        let mut kind = EntityKind::TableEntry(self.table_entry(choices));
        self.adopt(choices, &mut kind);
        let EntityKind::TableEntry(entry) = kind else {
            return None;
        };
        let table = self.info.tables.get(&entry.table_id)?;
        let named = TableEntry {
            table_id: entry.table_id,
            r#match: entry.r#match,
            priority: entry.priority,
            is_default_action: entry.is_default_action,
            ..TableEntry::default()
        };
        if table.counter && choices.one_in(2) {
            return Some(EntityKind::DirectCounterEntry(DirectCounterEntry {
                table_entry: Some(named),
                data: choices.one_in(2).then(|| counter_data(choices)),
            }));
        }
        table.meter.then(|| {
            EntityKind::DirectMeterEntry(DirectMeterEntry {
                table_entry: Some(named),
                config: choices.one_in(2).then(|| meter_config(choices)),
                counter_data: None,
            })
        })
    }
}

fn direct(call: Action) -> TableAction {
    TableAction {
        r#type: Some(table_action::Type::Action(call)),
    }
}

fn port(choices: &mut Choices<'_>) -> Option<Vec<u8>> {
    choices
        .one_in(4)
        .then(|| vec![choices.byte() % (LAST_PORT + 1)])
}

fn replication(choices: &mut Choices<'_>) -> EntityKind {
    use packet_replication_engine_entry::Type;
    let mut replicas = Vec::new();
    for instance in 0..choices.below(4) as u32 {
        let port = vec![choices.byte() % (LAST_PORT + 1)];
        replicas.push(Replica {
            instance,
            backup_replicas: Vec::new(),
            port_kind: Some(replica::PortKind::Port(port)),
        });
    }
    let id = 1 + choices.below(IDS) as u32;
    let entry = if choices.one_in(2) {
        Type::MulticastGroupEntry(MulticastGroupEntry {
            multicast_group_id: id,
            replicas,
            metadata: Vec::new(),
        })
    } else {
        Type::CloneSessionEntry(CloneSessionEntry {
            session_id: id,
            replicas,
            class_of_service: 0,
            packet_length_bytes: choices.below(3) as i32 * 64,
        })
    };
    EntityKind::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
        r#type: Some(entry),
    })
}

/// Generates a write of one cell of an array, or of all cells.
fn array(
    choices: &mut Choices<'_>,
    arrays: &[Array],
    make: fn(&mut Choices<'_>, &Array, Option<Index>) -> EntityKind,
) -> Option<EntityKind> {
    if arrays.is_empty() {
        return None;
    }
    let array = choices.pick(arrays);
    let cell = choices.below(array.size + 1);
    let index = (cell < array.size).then_some(Index { index: cell as i64 });
    Some(make(choices, array, index))
}

fn counter(choices: &mut Choices<'_>, array: &Array, index: Option<Index>) -> EntityKind {
    EntityKind::CounterEntry(CounterEntry {
        counter_id: array.id,
        index,
        data: choices.one_in(2).then(|| counter_data(choices)),
    })
}

fn meter(choices: &mut Choices<'_>, array: &Array, index: Option<Index>) -> EntityKind {
    EntityKind::MeterEntry(MeterEntry {
        meter_id: array.id,
        index,
        config: choices.one_in(2).then(|| meter_config(choices)),
        counter_data: None,
    })
}

fn register(choices: &mut Choices<'_>, array: &Array, index: Option<Index>) -> EntityKind {
    EntityKind::RegisterEntry(RegisterEntry {
        register_id: array.id,
        index,
        data: Some(P4Data {
            data: Some(p4_data::Data::Bitstring(value(choices, array.width))),
        }),
    })
}

fn counter_data(choices: &mut Choices<'_>) -> CounterData {
    CounterData {
        byte_count: i64::from(choices.u32()),
        packet_count: i64::from(choices.byte()),
    }
}

fn meter_config(choices: &mut Choices<'_>) -> MeterConfig {
    let (cir, cburst) = (i64::from(choices.byte()), i64::from(choices.byte()));
    MeterConfig {
        cir,
        cburst,
        pir: cir,
        pburst: cburst,
        eburst: 0,
    }
}

fn value_set(choices: &mut Choices<'_>, info: &Info) -> Option<EntityKind> {
    if info.value_sets.is_empty() {
        return None;
    }
    let (id, fields, size) = choices.pick(&info.value_sets);
    let count = choices.below(size + 2);
    let member = |choices: &mut Choices<'_>| ValueSetMember {
        r#match: fields
            .iter()
            .map(|field| FieldMatch {
                field_id: field.id,
                field_match_type: Some(field_match(choices, field)),
            })
            .collect(),
    };
    Some(EntityKind::ValueSetEntry(ValueSetEntry {
        value_set_id: *id,
        members: (0..count).map(|_| member(choices)).collect(),
    }))
}

fn digest(choices: &mut Choices<'_>, info: &Info) -> Option<EntityKind> {
    if info.digests.is_empty() {
        return None;
    }
    Some(EntityKind::DigestEntry(DigestEntry {
        digest_id: *choices.pick(&info.digests),
        config: Some(digest_entry::Config {
            max_timeout_ns: i64::from(choices.byte()),
            max_list_size: i32::from(choices.byte()),
            ack_timeout_ns: i64::from(choices.byte()),
        }),
    }))
}
