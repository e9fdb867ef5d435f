// SPDX-License-Identifier: Apache-2.0
//! Mutates updates as a malicious client could. The mutations include those of common switch fuzzers.
//!
//! Each mutation damages an update in one way. A list gives the codes with which a server may refuse the damaged update
//! (P4Runtime 1.5, section 9): all those that the specification allows.

use sluice_p4runtime::proto::v1::entity::Entity as EntityKind;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use super::damage::{
    bits_outside, damage_bytes, group_damage, index, meter, other_type, replication, set_value,
};
use super::info::{Info, MatchType};
use super::model::Model;
use super::mutation_kind::{BAD_VALUE, Damage, INVALID, Mutation, NO_SUCH_REFERENCE, UNKNOWN_ID};
use super::name::Name;
use crate::choices::Choices;

const NO_SUCH_ID: u32 = 0x02ff_fff7;

/// Context of mutations: the program's P4Info, and the model of the server.
pub(super) struct Mutator<'a> {
    pub(super) info: &'a Info,
    pub(super) model: &'a Model,
}

impl Mutator<'_> {
    /// Damages the update. Returns `None` if this mutation cannot be applied to the update.
    pub(super) fn apply(
        &self,
        choices: &mut Choices<'_>,
        mutation: Mutation,
        update: &mut Update,
    ) -> Option<Damage> {
        match mutation {
            Mutation::UpdateType => {
                update.r#type = [0, 4, -1, 77][choices.below(4)];
                return Some(INVALID);
            }
            Mutation::NoEntity => {
                update.entity = choices.one_in(2).then(Entity::default);
                return Some(INVALID);
            }
            Mutation::Extern => {
                let kind = EntityKind::ExternEntry(ExternEntry::default());
                update.entity = Some(Entity { entity: Some(kind) });
                return Some(Damage::Refused(&[
                    Code::Unimplemented,
                    Code::InvalidArgument,
                ]));
            }
            Mutation::Bytes => return damage_bytes(choices, update),
            Mutation::DuplicateInsert => return self.duplicate_insert(choices, update),
            _ => {}
        }
        let operation = update.r#type();
        let kind = update.entity.as_mut()?.entity.as_mut()?;
        let whole = operation != update::Type::Delete;
        match kind {
            EntityKind::TableEntry(entry) => self.entry(choices, mutation, operation, entry),
            EntityKind::ActionProfileMember(member) if whole => {
                self.member(choices, mutation, member)
            }
            EntityKind::ActionProfileGroup(group) if whole => {
                group_damage(choices, mutation, group)
            }
            EntityKind::PacketReplicationEngineEntry(entry) if whole => {
                replication(mutation, entry)
            }
            EntityKind::CounterEntry(entry) => match mutation {
                Mutation::CellIndex => index(choices, &mut entry.index),
                Mutation::NegativeCounter => {
                    entry.data.as_mut()?.packet_count = -1;
                    Some(INVALID)
                }
                _ => None,
            },
            EntityKind::MeterEntry(entry) => match mutation {
                Mutation::CellIndex => index(choices, &mut entry.index),
                Mutation::ReversedMeter => meter(entry.config.as_mut()?),
                _ => None,
            },
            EntityKind::RegisterEntry(entry) => match mutation {
                Mutation::CellIndex => index(choices, &mut entry.index),
                Mutation::EmptyValue => {
                    let data = Some(p4_data::Data::Bitstring(Vec::new()));
                    entry.data = Some(P4Data { data });
                    Some(BAD_VALUE)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn duplicate_insert(&self, choices: &mut Choices<'_>, update: &mut Update) -> Option<Damage> {
        let existing: Vec<_> = self.model.entities().filter(|(n, _)| inserted(n)).collect();
        if existing.is_empty() {
            return None;
        }
        let (_, kind) = *choices.pick(&existing);
        let mut kind = kind.clone();
        if let EntityKind::TableEntry(entry) = &mut kind {
            entry.is_const = false;
        }
        *update = Update {
            r#type: update::Type::Insert.into(),
            entity: Some(Entity { entity: Some(kind) }),
        };
        Some(Damage::Foreseen)
    }

    fn entry(
        &self,
        choices: &mut Choices<'_>,
        mutation: Mutation,
        operation: update::Type,
        entry: &mut TableEntry,
    ) -> Option<Damage> {
        let table = self.info.tables.get(&entry.table_id)?;
        let whole = operation != update::Type::Delete;
        match mutation {
            Mutation::TableId => {
                entry.table_id = [NO_SUCH_ID, 0, u32::MAX][choices.below(3)];
                Some(UNKNOWN_ID)
            }
            Mutation::NonexistingDelete if operation == update::Type::Delete => {
                let absent = EntityKind::TableEntry(entry.clone());
                let held = self.model.entities().any(|(n, _)| *n == Name::of(&absent));
                (!held).then_some(Damage::Foreseen)
            }
            Mutation::Priority if !entry.is_default_action => {
                entry.priority = if table.needs_priority() {
                    [0, -1, i32::MIN][choices.below(3)]
                } else {
                    [1, -1, i32::MAX][choices.below(3)]
                };
                Some(INVALID)
            }
            Mutation::Priority => {
                entry.priority = 1;
                Some(INVALID)
            }
            Mutation::IsConst if whole => {
                entry.is_const = true;
                Some(INVALID)
            }
            Mutation::Timeout if whole => {
                entry.idle_timeout_ns = if table.idle_timeout && !entry.is_default_action {
                    -1
                } else {
                    1
                };
                Some(INVALID)
            }
            Mutation::NegativeCounter if whole => {
                entry.counter_data.as_mut()?.byte_count = i64::MIN;
                Some(INVALID)
            }
            Mutation::ReversedMeter if whole => meter(entry.meter_config.as_mut()?),
            _ if entry.is_default_action => {
                let action = entry.action.as_mut()?;
                self.action(choices, mutation, &table.defaults, action)
            }
            _ => self.key(choices, mutation, entry).or_else(|| {
                let action = entry.action.as_mut().filter(|_| whole)?;
                self.action(choices, mutation, &table.actions, action)
            }),
        }
    }

    fn key(
        &self,
        choices: &mut Choices<'_>,
        mutation: Mutation,
        entry: &mut TableEntry,
    ) -> Option<Damage> {
        let table = self.info.tables.get(&entry.table_id)?;
        if entry.r#match.is_empty() {
            return None;
        }
        let chosen = choices.below(entry.r#match.len());
        let id = entry.r#match[chosen].field_id;
        let field = table.fields.iter().find(|field| field.id == id)?;
        let given = entry.r#match[chosen].field_match_type.as_mut()?;
        match mutation {
            Mutation::MatchFieldId => entry.r#match[chosen].field_id = NO_SUCH_ID,
            Mutation::MissingMatchField if field.kind == MatchType::Exact => {
                entry.r#match.remove(chosen);
            }
            Mutation::DuplicateMatchField => {
                let again = entry.r#match[chosen].clone();
                entry.r#match.push(again);
            }
            Mutation::MatchFieldType => *given = other_type(given),
            Mutation::WideValue | Mutation::EmptyValue => {
                let wide = [vec![1], vec![0; field.width.div_ceil(8)]].concat();
                let empty = mutation == Mutation::EmptyValue;
                set_value(given, if empty { Vec::new() } else { wide });
                return Some(BAD_VALUE);
            }
            Mutation::BitsOutsideMask if field.width > 1 => bits_outside(given)?,
            Mutation::PrefixLength => match given {
                field_match::FieldMatchType::Lpm(lpm) => {
                    let wrong = [0, -1, field.width as i32 + 1, i32::MAX];
                    lpm.prefix_len = wrong[choices.below(4)];
                }
                _ => return None,
            },
            Mutation::ReversedRange => match given {
                field_match::FieldMatchType::Range(range) => {
                    (range.low, range.high) = (vec![1], vec![0]);
                }
                _ => return None,
            },
            _ => return None,
        }
        Some(INVALID)
    }

    fn action(
        &self,
        choices: &mut Choices<'_>,
        mutation: Mutation,
        allowed: &[u32],
        action: &mut TableAction,
    ) -> Option<Damage> {
        use table_action::Type;
        match (mutation, action.r#type.as_mut()?) {
            (Mutation::TableImplementation, kind) => {
                *kind = match kind {
                    Type::Action(_) if choices.one_in(2) => {
                        Type::ActionProfileActionSet(ActionProfileActionSet::default())
                    }
                    Type::Action(_) => Type::ActionProfileMemberId(1),
                    _ => Type::Action(Action {
                        action_id: *choices.pick(allowed),
                        params: Vec::new(),
                    }),
                };
                Some(INVALID)
            }
            (Mutation::ReferredMember, Type::ActionProfileMemberId(id))
            | (Mutation::ReferredGroup, Type::ActionProfileGroupId(id)) => {
                *id = NO_SUCH_REFERENCE;
                Some(Damage::Refused(&[Code::NotFound, Code::InvalidArgument]))
            }
            (_, Type::Action(call)) => self.call(choices, mutation, allowed, call),
            (_, Type::ActionProfileActionSet(set)) => {
                let count = set.action_profile_actions.len();
                let one = set.action_profile_actions.get_mut(choices.below(count))?;
                match mutation {
                    Mutation::SelectorWeight => {
                        one.weight = [0, -1, i32::MIN][choices.below(3)];
                        Some(INVALID)
                    }
                    Mutation::Port => {
                        let port = action_profile_action::WatchKind::WatchPort(vec![2, 0]);
                        one.watch_kind = Some(port);
                        Some(UNKNOWN_ID)
                    }
                    _ => self.call(choices, mutation, allowed, one.action.as_mut()?),
                }
            }
            _ => None,
        }
    }

    fn member(
        &self,
        choices: &mut Choices<'_>,
        mutation: Mutation,
        member: &mut ActionProfileMember,
    ) -> Option<Damage> {
        if mutation == Mutation::ZeroId {
            member.member_id = 0;
            return Some(INVALID);
        }
        let profile = self.info.profiles.get(&member.action_profile_id)?;
        self.call(choices, mutation, &profile.actions, member.action.as_mut()?)
    }

    fn call(
        &self,
        choices: &mut Choices<'_>,
        mutation: Mutation,
        allowed: &[u32],
        call: &mut Action,
    ) -> Option<Damage> {
        match mutation {
            Mutation::ActionId => {
                call.action_id = [NO_SUCH_ID, 0, u32::MAX][choices.below(3)];
                return Some(UNKNOWN_ID);
            }
            Mutation::ForeignAction => {
                let mut all = self.info.actions.keys();
                call.action_id = *all.find(|id| !allowed.contains(id))?;
                return Some(Damage::Refused(&[
                    Code::InvalidArgument,
                    Code::PermissionDenied,
                    Code::NotFound,
                ]));
            }
            _ => {}
        }
        let last = call.params.last_mut()?;
        match mutation {
            Mutation::MissingParameter => drop(call.params.pop()),
            Mutation::DuplicateParameter => {
                let again = last.clone();
                call.params.push(again);
            }
            Mutation::ParameterId => last.param_id = NO_SUCH_ID,
            Mutation::EmptyValue => {
                last.value.clear();
                return Some(BAD_VALUE);
            }
            Mutation::WideValue => {
                last.value = vec![0xff; 300];
                return Some(BAD_VALUE);
            }
            _ => return None,
        }
        Some(INVALID)
    }
}

/// Returns whether INSERT creates the entities with this kind of name.
fn inserted(name: &Name) -> bool {
    matches!(
        name,
        Name::Entry(..)
            | Name::Member(..)
            | Name::Group(..)
            | Name::Multicast(_)
            | Name::Clone(_)
            | Name::Digest(_)
    )
}
