// SPDX-License-Identifier: Apache-2.0
//! Models the server's content as a map from names to entities, and predicts the result of each update.
//!
//! The target applies acknowledged updates to the model. The content of the model then predicts the results of the next
//! update. The model follows the specification and P4Info, not the server's implementation.

use std::collections::{BTreeMap, BTreeSet};

use sluice_p4runtime::proto::v1::entity::Entity as EntityKind;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use super::canonical;
use super::info::{Array, Info, Table};
use super::name::{Name, field_names};

/// Codes for a selector that is used both with members and groups and with one-shot action sets. Section 9.2.3 forbids
/// this.
const MIXED: [Code; 2] = [Code::InvalidArgument, Code::FailedPrecondition];

/// Model of the server's content; see the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Model {
    initial: BTreeMap<Name, EntityKind>,
    entities: BTreeMap<Name, EntityKind>,
}

impl Model {
    /// Creates a model from the entities that a new server returned.
    pub(super) fn new(read: Vec<EntityKind>) -> Self {
        let entities = by_name(read);
        Self {
            initial: entities.clone(),
            entities,
        }
    }

    pub(super) fn entities(&self) -> impl Iterator<Item = (&Name, &EntityKind)> {
        self.entities.iter()
    }

    /// Compares the model with the entities that the server returned.
    ///
    /// # Panics
    /// If model and server differ.
    pub(super) fn check(&self, read: Vec<EntityKind>) {
        let read = by_name(read);
        for (name, expected) in &self.entities {
            let Some(found) = read.get(name) else {
                panic!("the server has lost {expected:?}");
            };
            assert_eq!(found, expected, "the server contains a different entity");
        }
        let extra = read.keys().find(|name| !self.entities.contains_key(name));
        assert_eq!(
            extra, None,
            "the server contains an entity that was not written"
        );
    }

    fn count(&self, kin: &Name) -> usize {
        self.entities.keys().filter(|n| n.is_kin_of(kin)).count()
    }

    /// Returns the codes with which a well-formed update must fail. Returns an empty list if it must succeed.
    pub(super) fn errors(&self, info: &Info, update: &Update) -> Vec<Code> {
        let Some(kind) = update.entity.as_ref().and_then(|e| e.entity.as_ref()) else {
            return vec![Code::InvalidArgument];
        };
        let operation = update.r#type();
        let name = Name::of(kind);
        let exists = self.entities.contains_key(&name);
        let mut errors = match kind {
            EntityKind::CounterEntry(_)
            | EntityKind::MeterEntry(_)
            | EntityKind::RegisterEntry(_) => return vec![],
            EntityKind::ValueSetEntry(set) => return value_set_errors(info, set),
            EntityKind::TableEntry(entry) => self.entry_errors(info, operation, entry, &name),
            EntityKind::ActionProfileMember(_) => self.member_errors(info, operation, &name),
            EntityKind::ActionProfileGroup(group) => {
                self.group_errors(info, operation, group, &name)
            }
            _ => Vec::new(),
        };
        match operation {
            update::Type::Insert if exists => errors.push(Code::AlreadyExists),
            update::Type::Modify | update::Type::Delete if !exists => errors.push(Code::NotFound),
            _ => {}
        }
        errors
    }

    fn entry_errors(
        &self,
        info: &Info,
        operation: update::Type,
        entry: &TableEntry,
        name: &Name,
    ) -> Vec<Code> {
        let Some(table) = info.tables.get(&entry.table_id) else {
            return vec![Code::InvalidArgument, Code::NotFound];
        };
        let mut errors = Vec::new();
        if entry.is_default_action {
            if table.constant_default {
                errors.push(Code::PermissionDenied);
            }
            if table.profile.is_some() && entry.action.is_some() {
                errors.extend([Code::Unimplemented, Code::InvalidArgument]);
            }
            return errors;
        }
        if table.constant {
            errors.push(Code::PermissionDenied);
        }
        if operation == update::Type::Insert && self.count(name) >= table.size {
            errors.push(Code::ResourceExhausted);
        }
        if operation != update::Type::Delete {
            errors.extend(self.action_errors(info, table, entry.action.as_ref()));
        }
        errors
    }

    fn action_errors(&self, info: &Info, table: &Table, action: Option<&TableAction>) -> Vec<Code> {
        let (Some(profile), Some(action)) = (table.profile, action) else {
            return Vec::new();
        };
        let missing = |name| match self.entities.contains_key(&name) {
            true => Vec::new(),
            false => vec![Code::NotFound],
        };
        match &action.r#type {
            Some(table_action::Type::ActionProfileMemberId(id)) => {
                missing(Name::Member(profile, *id))
            }
            Some(table_action::Type::ActionProfileGroupId(id)) => {
                missing(Name::Group(profile, *id))
            }
            Some(table_action::Type::ActionProfileActionSet(set)) => {
                let weights = set.action_profile_actions.iter().map(|a| a.weight);
                let mut errors = size_errors(info, profile, weights);
                if self.has_members(profile) {
                    errors.extend(MIXED);
                }
                errors
            }
            _ => Vec::new(),
        }
    }

    fn has_members(&self, profile: u32) -> bool {
        self.entities
            .keys()
            .any(|name| matches!(name, Name::Member(of, _) | Name::Group(of, _) if *of == profile))
    }

    fn member_errors(&self, info: &Info, operation: update::Type, name: &Name) -> Vec<Code> {
        let Name::Member(profile, member) = *name else {
            return Vec::new();
        };
        let size = info
            .profiles
            .get(&profile)
            .map_or(0, |profile| profile.size);
        match operation {
            update::Type::Insert => {
                let mut errors = Vec::new();
                if self.count(name) >= size {
                    errors.push(Code::ResourceExhausted);
                }
                if self.is_used(info, profile, is_one_shot) {
                    errors.extend(MIXED);
                }
                errors
            }
            update::Type::Delete
                if self.is_used(info, profile, |kind| uses_member(kind, member)) =>
            {
                vec![Code::FailedPrecondition]
            }
            _ => Vec::new(),
        }
    }

    fn group_errors(
        &self,
        info: &Info,
        operation: update::Type,
        group: &ActionProfileGroup,
        name: &Name,
    ) -> Vec<Code> {
        let profile = group.action_profile_id;
        if operation == update::Type::Delete {
            let used = self.is_used(info, profile, |kind| uses_group(kind, group.group_id));
            return if used {
                vec![Code::FailedPrecondition]
            } else {
                Vec::new()
            };
        }
        let mut errors = size_errors(info, profile, group.members.iter().map(|m| m.weight));
        if operation == update::Type::Insert && self.is_used(info, profile, is_one_shot) {
            errors.extend(MIXED);
        }
        let known = |id| self.entities.contains_key(&Name::Member(profile, id));
        if group.members.iter().any(|member| !known(member.member_id)) {
            errors.push(Code::NotFound);
        }
        if let Some(EntityKind::ActionProfileGroup(before)) = self.entities.get(name)
            && before.max_size != group.max_size
        {
            errors.push(Code::InvalidArgument);
        }
        errors
    }

    /// Returns whether an entry or group of the profile uses an object. `uses` tells this for a single entry or group.
    fn is_used(&self, info: &Info, profile: u32, uses: impl Fn(&EntityKind) -> bool) -> bool {
        let concerned = |name: &Name| match name {
            Name::Entry(table, ..) => {
                info.tables.get(table).and_then(|table| table.profile) == Some(profile)
            }
            Name::Group(of, _) => *of == profile,
            _ => false,
        };
        self.entities
            .iter()
            .any(|(name, kind)| concerned(name) && uses(kind))
    }

    /// Applies an acknowledged update.
    pub(super) fn apply(&mut self, info: &Info, update: &Update) {
        let Some(kind) = update.entity.as_ref().and_then(|e| e.entity.as_ref()) else {
            return;
        };
        let name = Name::of(kind);
        if update.r#type() == update::Type::Delete {
            self.entities.remove(&name);
            return;
        }
        match kind {
            EntityKind::TableEntry(entry) => self.write_entry(info, name, entry),
            EntityKind::DirectCounterEntry(entry) => {
                if let (Some(EntityKind::TableEntry(held)), Some(data)) =
                    (self.entities.get_mut(&name), entry.data)
                {
                    held.counter_data = Some(data);
                }
            }
            EntityKind::DirectMeterEntry(entry) => {
                if let Some(EntityKind::TableEntry(held)) = self.entities.get_mut(&name) {
                    held.meter_config = entry.config;
                }
            }
            EntityKind::CounterEntry(entry) => {
                if entry.data.is_some() {
                    self.write_cells(&info.counters, entry.counter_id, entry.index, kind);
                }
            }
            EntityKind::MeterEntry(entry) => {
                self.write_cells(&info.meters, entry.meter_id, entry.index, kind);
            }
            EntityKind::RegisterEntry(entry) => {
                self.write_cells(&info.registers, entry.register_id, entry.index, kind);
            }
            _ => drop(self.entities.insert(name, canonical::entity(info, kind))),
        }
    }

    fn write_entry(&mut self, info: &Info, name: Name, given: &TableEntry) {
        let Some(table) = info.tables.get(&given.table_id) else {
            return;
        };
        let EntityKind::TableEntry(mut entry) =
            canonical::entity(info, &EntityKind::TableEntry(given.clone()))
        else {
            return;
        };
        let before = match self.entities.get(&name) {
            Some(EntityKind::TableEntry(before)) => Some(before.clone()),
            _ => None,
        };
        if table.constant && !given.is_default_action {
            // The table is constant, so only the direct resources of its entries can be written.
            let Some(before) = before.clone() else { return };
            let (counter_data, meter_config) = (entry.counter_data, entry.meter_config);
            entry = TableEntry {
                counter_data,
                meter_config,
                ..before
            };
        } else if entry.action.is_none() {
            // If the update has no action, an entry keeps its action. A default entry then gets the action that the
            // program defines.
            let source = if given.is_default_action {
                self.initial.get(&name)
            } else {
                self.entities.get(&name)
            };
            if let Some(EntityKind::TableEntry(source)) = source {
                entry.action.clone_from(&source.action);
                if given.is_default_action {
                    entry.controller_metadata = source.controller_metadata;
                    entry.metadata.clone_from(&source.metadata);
                }
            }
        }
        if table.counter && entry.counter_data.is_none() {
            let held = before.and_then(|before| before.counter_data);
            entry.counter_data = Some(held.unwrap_or_default());
        }
        self.entities.insert(name, EntityKind::TableEntry(entry));
    }

    fn write_cells(&mut self, arrays: &[Array], id: u32, index: Option<Index>, kind: &EntityKind) {
        let Some(array) = arrays.iter().find(|array| array.id == id) else {
            return;
        };
        let cells = match index {
            Some(Index { index }) => index..index + 1,
            None => 0..array.size as i64,
        };
        for index in cells {
            let cell = canonical::cell(kind, index);
            self.entities.insert(Name::of(&cell), cell);
        }
    }
}

fn by_name(read: Vec<EntityKind>) -> BTreeMap<Name, EntityKind> {
    let count = read.len();
    let map: BTreeMap<_, _> = read
        .into_iter()
        .map(|kind| (Name::of(&kind), kind))
        .collect();
    assert_eq!(map.len(), count, "the server returns an entity twice");
    map
}

fn size_errors(info: &Info, profile: u32, weights: impl Iterator<Item = i32>) -> Vec<Code> {
    let Some(profile) = info.profiles.get(&profile) else {
        return Vec::new();
    };
    let size: i64 = weights
        .map(|weight| {
            if profile.sum_of_members {
                1
            } else {
                weight.into()
            }
        })
        .sum();
    if size > i64::from(profile.max_group_size) {
        return vec![Code::InvalidArgument, Code::ResourceExhausted];
    }
    Vec::new()
}

fn value_set_errors(info: &Info, set: &ValueSetEntry) -> Vec<Code> {
    let mut sets = info.value_sets.iter();
    let size = sets.find_map(|(id, _, size)| (*id == set.value_set_id).then_some(*size));
    let mut errors = Vec::new();
    if set.members.len() > size.unwrap_or(0) {
        errors.push(Code::ResourceExhausted);
    }
    let names = set
        .members
        .iter()
        .map(|member| field_names(&member.r#match));
    if names.collect::<BTreeSet<_>>().len() < set.members.len() {
        errors.extend([Code::AlreadyExists, Code::InvalidArgument]);
    }
    errors
}

fn is_one_shot(kind: &EntityKind) -> bool {
    matches!(
        kind,
        EntityKind::TableEntry(TableEntry {
            action: Some(TableAction {
                r#type: Some(table_action::Type::ActionProfileActionSet(_)),
            }),
            ..
        })
    )
}

fn uses_member(kind: &EntityKind, member: u32) -> bool {
    match kind {
        EntityKind::ActionProfileGroup(group) => {
            group.members.iter().any(|m| m.member_id == member)
        }
        EntityKind::TableEntry(entry) => matches!(
            entry.action.as_ref().and_then(|action| action.r#type.as_ref()),
            Some(table_action::Type::ActionProfileMemberId(id)) if *id == member
        ),
        _ => false,
    }
}

fn uses_group(kind: &EntityKind, group: u32) -> bool {
    matches!(
        kind,
        EntityKind::TableEntry(TableEntry { action: Some(TableAction {
            r#type: Some(table_action::Type::ActionProfileGroupId(id)),
        }), .. }) if *id == group
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: u32, length: i32) -> EntityKind {
        let session = CloneSessionEntry {
            session_id: id,
            packet_length_bytes: length,
            ..CloneSessionEntry::default()
        };
        EntityKind::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
            r#type: Some(packet_replication_engine_entry::Type::CloneSessionEntry(
                session,
            )),
        })
    }

    fn update(r#type: update::Type, kind: EntityKind) -> Update {
        Update {
            r#type: r#type.into(),
            entity: Some(Entity { entity: Some(kind) }),
        }
    }

    #[test]
    fn the_model_holds_what_was_acknowledged() {
        let info = Info::default();
        let mut model = Model::new(Vec::new());
        let insert = update(update::Type::Insert, session(1, 64));
        assert_eq!(model.errors(&info, &insert), []);
        model.apply(&info, &insert);
        assert_eq!(model.errors(&info, &insert), [Code::AlreadyExists]);
        model.check(vec![session(1, 64)]);
        model.apply(&info, &update(update::Type::Delete, session(1, 0)));
        model.check(Vec::new());
    }

    #[test]
    #[should_panic(expected = "the server has lost")]
    fn what_is_lost_is_noticed() {
        Model::new(vec![session(1, 64)]).check(Vec::new());
    }

    #[test]
    #[should_panic(expected = "the server contains a different entity")]
    fn what_is_changed_is_noticed() {
        Model::new(vec![session(1, 64)]).check(vec![session(1, 65)]);
    }

    #[test]
    #[should_panic(expected = "the server contains an entity that was not written")]
    fn what_is_added_is_noticed() {
        Model::new(Vec::new()).check(vec![session(2, 0)]);
    }
}
