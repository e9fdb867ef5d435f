// SPDX-License-Identifier: Apache-2.0
//! Finds the entities that a read request selects.

use std::collections::BTreeMap;

use sluice_tables::{Entry, EntryAction, EntrySpec, TableError, View};

use super::entity_ref::EntityRef;
use crate::entity::requested::RequestedFields;
use crate::entity::stored_entry::StoredEntry;
use crate::entity::{array, key, profile, replication, value_set};
use crate::error::{UpdateError, UpdateResult};
use crate::pipeline::Pipeline;
use crate::proto::v1::entity::Entity as EntityKind;
use crate::proto::v1::packet_replication_engine_entry::Type as Replication;
use crate::proto::v1::{
    ActionProfileGroup, ActionProfileMember, CounterEntry, DigestEntry, DirectCounterEntry,
    DirectMeterEntry, Index, MeterEntry, PacketReplicationEngineEntry, RegisterEntry, TableEntry,
    ValueSetEntry, table_action,
};
use crate::schema::{ArraySchema, Schema, TableSchema, unknown};

/// Returns the objects that an id selects: one object, or all objects if the id is 0.
fn select<'a, T>(
    kind: &str,
    objects: &'a BTreeMap<u32, T>,
    id: u32,
) -> UpdateResult<Vec<(u32, &'a T)>> {
    if id == 0 {
        return Ok(objects.iter().map(|(id, object)| (*id, object)).collect());
    }
    match objects.get(&id) {
        Some(object) => Ok(vec![(id, object)]),
        None => Err(unknown(kind, id)),
    }
}

/// Collects the entities of one batch of read requests, from one view of the tables.
pub(super) struct EntityCollector<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) view: View<'a>,
    pub(super) items: Vec<EntityRef>,
}

impl EntityCollector<'_> {
    fn ready(&mut self, kind: EntityKind) {
        self.items.push(EntityRef::Ready(Box::new(kind)));
    }

    pub(super) fn read(&mut self, request: &EntityKind) -> UpdateResult {
        match request {
            EntityKind::TableEntry(entry) => self.table_entries(entry),
            EntityKind::ActionProfileMember(member) => self.members(member),
            EntityKind::ActionProfileGroup(group) => self.groups(group),
            EntityKind::CounterEntry(entry) => self.counters(entry),
            EntityKind::MeterEntry(entry) => self.meters(entry),
            EntityKind::RegisterEntry(entry) => self.registers(entry),
            EntityKind::DirectCounterEntry(entry) => self.direct_counters(entry),
            EntityKind::DirectMeterEntry(entry) => self.direct_meters(entry),
            EntityKind::PacketReplicationEngineEntry(entry) => self.replication(entry),
            EntityKind::ValueSetEntry(entry) => self.value_sets(entry),
            EntityKind::DigestEntry(entry) => self.digests(entry),
            // There are no architecture-specific externs, so a wildcard finds none.
            EntityKind::ExternEntry(entry) if entry.extern_type_id == 0 => Ok(()),
            EntityKind::ExternEntry(entry) => Err(unknown("extern type", entry.extern_type_id)),
        }
    }

    /// Returns the entries of one table that match a request.
    fn entries(&self, table: &TableSchema, filter: &TableEntry) -> UpdateResult<Vec<StoredEntry>> {
        if filter.is_default_action {
            if !filter.r#match.is_empty() || filter.priority != 0 {
                let message = "the default entry must have neither a match nor a priority";
                return Err(UpdateError::invalid(message));
            }
            return Ok(vec![StoredEntry::Default(
                self.view.default_entry(table.id),
            )]);
        }
        // A read must not assign numbers to strings that are new.
        if !key::knows(&table.fields, &filter.r#match) {
            return Ok(Vec::new());
        }
        let exact = !filter.r#match.is_empty() && (filter.priority != 0 || !table.needs_priority());
        if exact {
            let (key, priority) = key::decode_with_priority(table, filter)?;
            return match self.view.entry(table.id, &key, priority) {
                Ok(entry) => Ok(vec![StoredEntry::Entry(entry)]),
                // A filter that matches no entry is not an error.
                Err(TableError::NotFound(_)) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            };
        }
        let mut entries = self.view.entries(table.id);
        if filter.priority != 0 || !filter.r#match.is_empty() {
            let key = match filter.r#match.as_slice() {
                [] => None,
                matches => Some(key::decode(&table.fields, matches)?),
            };
            entries.retain(|entry| {
                let spec = self.spec(table, entry);
                (filter.priority == 0 || spec.priority == filter.priority)
                    && key.as_ref().is_none_or(|key| spec.key == *key)
            });
        }
        Ok(entries.into_iter().map(StoredEntry::Entry).collect())
    }

    fn spec(&self, table: &TableSchema, entry: &Entry) -> EntrySpec {
        let program = self.pipeline.store.program();
        entry.spec(program, program.table(table.id))
    }

    fn table_entries(&mut self, filter: &TableEntry) -> UpdateResult {
        if filter.table_id == 0 {
            let requested = RequestedFields::of(filter);
            let is_default_action = filter.is_default_action;
            let all = TableEntry {
                is_default_action,
                ..TableEntry::default()
            };
            for (id, table) in &self.pipeline.schema.tables {
                let entries = self.entries(table, &all)?;
                self.items.extend(
                    entries
                        .into_iter()
                        .map(|found| EntityRef::of_entry(*id, found, requested)),
                );
            }
            return Ok(());
        }
        let table = self.pipeline.schema.table(filter.table_id)?;
        let requested = RequestedFields::decode(table, filter)?;
        let action = filter_action(&self.pipeline.schema, table, filter)?;
        let mut entries = self.entries(table, filter)?;
        if action.is_some() || !filter.metadata.is_empty() || filter.controller_metadata != 0 {
            entries.retain(|found| self.passes(table, filter, action, found));
        }
        let items = entries
            .into_iter()
            .map(|found| EntityRef::of_entry(filter.table_id, found, requested));
        self.items.extend(items);
        Ok(())
    }

    /// Returns whether an entry passes the filters on its action and its metadata.
    fn passes(
        &self,
        table: &TableSchema,
        filter: &TableEntry,
        action: Option<&str>,
        found: &StoredEntry,
    ) -> bool {
        let program = self.pipeline.store.program();
        let is = |given: &EntryAction| {
            action.is_none_or(|name| match given {
                EntryAction::Direct(call) => program.action(call.action).name == name,
                _ => false,
            })
        };
        match found {
            StoredEntry::Entry(entry) => {
                let spec = self.spec(table, entry);
                (filter.metadata.is_empty() || spec.metadata == filter.metadata)
                    && (filter.controller_metadata == 0
                        || spec.controller_metadata == filter.controller_metadata)
                    && is(&spec.action)
            }
            StoredEntry::Default(entry) => {
                let given = entry.action(self.pipeline.store.program());
                (filter.metadata.is_empty() || entry.metadata() == filter.metadata)
                    && (filter.controller_metadata == 0
                        || entry.controller_metadata() == filter.controller_metadata)
                    && given.as_ref().is_some_and(is)
            }
        }
    }

    /// Returns the entries whose direct resources a request selects. If the request names an entry, the entry must
    /// exist.
    fn direct(
        &self,
        what: &str,
        entry: Option<&TableEntry>,
        has: impl Fn(&TableSchema) -> bool,
    ) -> UpdateResult<Vec<(u32, StoredEntry)>> {
        let all = TableEntry::default();
        let filter = entry.unwrap_or(&all);
        let mut found = Vec::new();
        for (id, table) in select("table", &self.pipeline.schema.tables, filter.table_id)? {
            if has(table) {
                found.extend(
                    self.entries(table, filter)?
                        .into_iter()
                        .map(|entry| (id, entry)),
                );
            } else if filter.table_id != 0 {
                return Err(UpdateError::invalid(format!(
                    "the table has no direct {what}"
                )));
            }
        }
        if found.is_empty() && !filter.r#match.is_empty() {
            return Err(UpdateError::not_found("the table has no such entry"));
        }
        Ok(found)
    }

    fn direct_counters(&mut self, entry: &DirectCounterEntry) -> UpdateResult {
        let found = self.direct("counter", entry.table_entry.as_ref(), |t| t.direct_counter)?;
        self.items.extend(
            found
                .into_iter()
                .map(|(id, entry)| EntityRef::DirectCounter(id, entry)),
        );
        Ok(())
    }

    fn direct_meters(&mut self, entry: &DirectMeterEntry) -> UpdateResult {
        let colors = entry.counter_data.is_some();
        let has_meter = |table: &TableSchema| table.direct_meter.is_some();
        let found = self.direct("meter", entry.table_entry.as_ref(), has_meter)?;
        self.items.extend(
            found
                .into_iter()
                .map(|(id, entry)| EntityRef::DirectMeter(id, entry, colors)),
        );
        Ok(())
    }

    fn members(&mut self, filter: &ActionProfileMember) -> UpdateResult {
        let schema = &self.pipeline.schema;
        let context = self.pipeline.context();
        let profiles = select("action profile", &schema.profiles, filter.action_profile_id)?;
        for (id, profile) in profiles {
            let members = self.view.members(profile.id).into_iter();
            let members = members.filter(|m| filter.member_id == 0 || m.id == filter.member_id);
            let messages =
                members.filter_map(|member| profile::encode_member(&context, id, profile, &member));
            let items =
                messages.map(|m| EntityRef::Ready(Box::new(EntityKind::ActionProfileMember(m))));
            self.items.extend(items);
        }
        Ok(())
    }

    fn groups(&mut self, filter: &ActionProfileGroup) -> UpdateResult {
        let context = self.pipeline.context();
        let profiles = &self.pipeline.schema.profiles;
        for (id, profile) in select("action profile", profiles, filter.action_profile_id)? {
            let groups = self.view.groups(profile.id).into_iter();
            let groups = groups.filter(|g| filter.group_id == 0 || g.id == filter.group_id);
            let messages = groups.map(|group| profile::encode_group(&context, id, profile, &group));
            let items =
                messages.map(|m| EntityRef::Ready(Box::new(EntityKind::ActionProfileGroup(m))));
            self.items.extend(items);
        }
        Ok(())
    }

    fn counters(&mut self, entry: &CounterEntry) -> UpdateResult {
        for (id, array) in select("counter", &self.pipeline.schema.counters, entry.counter_id)? {
            let cells = self.cells(array, entry.counter_id, entry.index.as_ref())?;
            self.items
                .extend(cells.map(|index| EntityRef::Counter(id, index)));
        }
        Ok(())
    }

    fn meters(&mut self, entry: &MeterEntry) -> UpdateResult {
        let colors = entry.counter_data.is_some();
        for (id, (array, _)) in select("meter", &self.pipeline.schema.meters, entry.meter_id)? {
            let cells = self.cells(array, entry.meter_id, entry.index.as_ref())?;
            self.items
                .extend(cells.map(|index| EntityRef::Meter(id, index, colors)));
        }
        Ok(())
    }

    fn registers(&mut self, entry: &RegisterEntry) -> UpdateResult {
        let registers = &self.pipeline.schema.registers;
        for (id, register) in select("register", registers, entry.register_id)? {
            let cells = self.cells(&register.array, entry.register_id, entry.index.as_ref())?;
            self.items
                .extend(cells.map(|index| EntityRef::Register(id, index)));
        }
        Ok(())
    }

    /// Returns the cells of an array that a request selects. If the request is for all arrays, ignores its index.
    fn cells<Id>(
        &self,
        array: &ArraySchema<Id>,
        id: u32,
        index: Option<&Index>,
    ) -> UpdateResult<std::ops::Range<usize>> {
        array::cells(array, index.filter(|_| id != 0))
    }

    fn replication(&mut self, entry: &PacketReplicationEngineEntry) -> UpdateResult {
        let (groups, sessions) = match &entry.r#type {
            Some(Replication::MulticastGroupEntry(g)) => (Some(g.multicast_group_id), None),
            Some(Replication::CloneSessionEntry(s)) => (None, Some(s.session_id)),
            None => (Some(0), Some(0)),
        };
        let ports = &self.pipeline.schema.ports;
        let mut found = Vec::new();
        if let Some(requested) = groups {
            let groups = self.view.multicast_groups().into_iter();
            let groups = groups.filter(|(id, _)| requested == 0 || *id == requested);
            found.extend(groups.map(|(id, group)| replication::encode_group(ports, id, &group)));
        }
        if let Some(requested) = sessions {
            let sessions = self.view.clone_sessions().into_iter();
            let sessions = sessions.filter(|(id, _)| requested == 0 || *id == requested);
            found.extend(sessions.map(|(id, s)| replication::encode_session(ports, id, &s)));
        }
        for r#type in found {
            let entry = PacketReplicationEngineEntry {
                r#type: Some(r#type),
            };
            self.ready(EntityKind::PacketReplicationEngineEntry(entry));
        }
        Ok(())
    }

    fn value_sets(&mut self, filter: &ValueSetEntry) -> UpdateResult {
        let sets = &self.pipeline.schema.value_sets;
        for (id, set) in select("value set", sets, filter.value_set_id)? {
            let entry = value_set::encode(id, set, &self.view.value_set(set.id));
            self.ready(EntityKind::ValueSetEntry(entry));
        }
        Ok(())
    }

    fn digests(&mut self, filter: &DigestEntry) -> UpdateResult {
        let selected = select("digest", &self.pipeline.schema.digests, filter.digest_id)?;
        for (id, config) in self.pipeline.digests.all() {
            if selected.iter().any(|(selected, _)| *selected == id) {
                self.ready(EntityKind::DigestEntry(DigestEntry {
                    digest_id: id,
                    config: Some(config),
                }));
            }
        }
        Ok(())
    }
}

/// Returns the name of the action by which the request filters entries, or `None` if the request does not filter by
/// action.
fn filter_action<'a>(
    schema: &'a Schema,
    table: &TableSchema,
    filter: &TableEntry,
) -> UpdateResult<Option<&'a str>> {
    match filter
        .action
        .as_ref()
        .and_then(|action| action.r#type.as_ref())
    {
        None => Ok(None),
        Some(table_action::Type::Action(action)) if action.action_id == 0 => Ok(None),
        Some(table_action::Type::Action(action)) => {
            if !table.actions.contains_key(&action.action_id) {
                return Err(UpdateError::invalid("the table has no such action"));
            }
            Ok(Some(&schema.action(action.action_id)?.name))
        }
        Some(_) => Err(UpdateError::unimplemented(
            "reads cannot be filtered by member, group or action set",
        )),
    }
}
