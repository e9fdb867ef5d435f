// SPDX-License-Identifier: Apache-2.0
//! Transaction operations on entries and default entries.

use std::sync::Arc;

use sluice_program::{ProfileId, Table, TableId};

use super::Transaction;
use super::profiles::{check_total_weight, check_weight};
use crate::action::ActionEntry;
use crate::binding::{Binding, BindingRef};
use crate::change::{Change, EntrySwap};
use crate::default_entry::DefaultEntry;
use crate::entry::Entry;
use crate::error::{Result, TableError, invalid};
use crate::group::Group;
use crate::key::{KeyRef, compile_entry_key};
use crate::model::{ActionCall, DefaultSpec, EntryAction, EntrySpec, KeyField, OneShotMember};
use crate::slab::NewRecord;

impl<'a> Transaction<'a> {
    /// Adds an entry.
    ///
    /// # Errors
    /// `AlreadyExists`, `ResourceExhausted` (table full), `PermissionDenied` (constant table),
    /// `NotFound` (unknown member or group), `InvalidArgument`, `OutOfRange`.
    pub fn insert(&mut self, id: TableId, spec: EntrySpec) -> Result<()> {
        let table = self.writable(id)?;
        let (key, rank) = compile_entry_key(table, &spec.key, spec.priority)?;
        let key = key.as_ref();
        self.check_vacant(id, table, key, rank)?;
        let binding = self.checked(table, &spec, None)?;
        let sequence = self.next_sequence();
        let record = new_record(key, rank, sequence, binding.as_ref(), spec);
        self.write(id, table, None, record)
    }

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.control.sequence += 1;
        self.control.sequence
    }

    pub(super) fn sequence_of(&self, id: TableId, slot: u32) -> u64 {
        let slab = &self.control.authoritative.tables[id.index()].slab;
        slab.record(slot).sequence()
    }

    /// Checks that the table is not full, and has no entry with this key.
    pub(super) fn check_vacant(
        &self,
        id: TableId,
        table: &Table,
        key: KeyRef<'_>,
        rank: i32,
    ) -> Result<()> {
        if self.control.find(id, key, rank).is_some() {
            return Err(TableError::AlreadyExists(format!(
                "the entry in table {}",
                table.name
            )));
        }
        if self.control.authoritative.tables[id.index()].len() >= table.max_size {
            return full(table);
        }
        Ok(())
    }

    /// Replaces an entry's action and attributes. Keeps the entry's counter, meter and time of the last hit.
    ///
    /// # Errors
    /// `NotFound`, and the errors of [`insert`](Self::insert).
    pub fn modify(&mut self, id: TableId, spec: EntrySpec) -> Result<()> {
        let table = self.writable(id)?;
        let (key, rank) = compile_entry_key(table, &spec.key, spec.priority)?;
        let key = key.as_ref();
        let before = self.existing(id, table, key, rank)?;
        let slab = &self.control.authoritative.tables[id.index()].slab;
        let group = slab.record(before).one_shot();
        let binding = self.checked(table, &spec, group.as_deref())?;
        let sequence = self.sequence_of(id, before);
        let record = new_record(key, rank, sequence, binding.as_ref(), spec);
        self.write(id, table, Some(before), record)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` (constant table), `InvalidArgument`, `OutOfRange`.
    pub fn delete(&mut self, id: TableId, key: &[KeyField], priority: i32) -> Result<()> {
        let table = self.writable(id)?;
        let (key, rank) = compile_entry_key(table, key, priority)?;
        let before = self.existing(id, table, key.as_ref(), rank)?;
        self.remove(id, before);
        Ok(())
    }

    pub(super) fn remove(&mut self, id: TableId, slot: u32) {
        let swap = EntrySwap {
            before: Some(slot),
            after: None,
        };
        self.apply(Change::Entry(id, swap));
    }

    /// Writes a version of an entry. If `before` is given, the new version replaces that version.
    pub(super) fn write(
        &mut self,
        id: TableId,
        table: &Table,
        before: Option<u32>,
        record: NewRecord<'_>,
    ) -> Result<()> {
        let now_us = self.now_us;
        let entries = &mut self.control.authoritative.tables[id.index()];
        let Some(slot) = entries.allocate() else {
            return full(table);
        };
        let holder = before.map(|before| entries.slab.record(before).holder());
        entries.slab.fill(slot, record, holder, now_us);
        let after = Some(slot);
        self.apply(Change::Entry(id, EntrySwap { before, after }));
        Ok(())
    }

    /// Sets the default action, which applies on a miss. `None` restores the program's default.
    ///
    /// # Errors
    /// `PermissionDenied` if the program declares the default as constant, and the errors for the action of an entry.
    pub fn set_default(&mut self, id: TableId, spec: Option<DefaultSpec>) -> Result<()> {
        let table = self.table(id)?;
        let entries = &self.control.authoritative.tables[id.index()];
        let (before, initial) = (
            Arc::clone(&entries.default),
            Arc::clone(&entries.initial_default),
        );
        let after = match spec {
            None => initial,
            Some(spec) => {
                let group = match &before.binding {
                    Some(Binding::OneShot(group)) => Some(Arc::clone(group)),
                    _ => None,
                };
                let binding = self.binding(table, &spec.action, group.as_deref())?;
                if let Some(default) = &table.default {
                    let same_action =
                        matches!(&binding, Binding::Direct(new) if new.action == default.action);
                    let same = initial.binding.as_ref() == Some(&binding);
                    if default.const_entry && !same || default.const_action && !same_action {
                        let message = format!("the default action of {} is constant", table.name);
                        return Err(TableError::PermissionDenied(message));
                    }
                }
                let packet_state = Arc::clone(&before.packet_state);
                Arc::new(DefaultEntry {
                    binding: Some(binding),
                    controller_metadata: spec.controller_metadata,
                    metadata: spec.metadata.into_boxed_slice(),
                    packet_state,
                    initial: false,
                })
            }
        };
        self.apply(Change::Default(id, before, after));
        Ok(())
    }

    /// Returns an entry. Sees the uncommitted changes of this transaction.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`, `OutOfRange`.
    pub fn entry(&self, id: TableId, key: &[KeyField], priority: i32) -> Result<Entry> {
        let table = self.table(id)?;
        let (key, rank) = compile_entry_key(table, key, priority)?;
        let slot = self.existing(id, table, key.as_ref(), rank)?;
        Ok(self.control.hold(id, slot))
    }

    /// Returns a table's default entry. Sees the uncommitted changes of this transaction.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such table.
    pub fn default_entry(&self, id: TableId) -> Result<Arc<DefaultEntry>> {
        self.table(id)?;
        Ok(Arc::clone(
            &self.control.authoritative.tables[id.index()].default,
        ))
    }

    pub(super) fn writable(&self, id: TableId) -> Result<&'a Table> {
        let table = self.table(id)?;
        if table.const_entries {
            let message = format!("the entries of table {} are constant", table.name);
            return Err(TableError::PermissionDenied(message));
        }
        if table.key.is_empty() {
            return invalid(format!(
                "table {} has no key, so it cannot have entries",
                table.name
            ));
        }
        Ok(table)
    }

    pub(super) fn existing(
        &self,
        id: TableId,
        table: &Table,
        key: KeyRef<'_>,
        rank: i32,
    ) -> Result<u32> {
        let missing = || TableError::NotFound(format!("the entry in table {}", table.name));
        self.control.find(id, key, rank).ok_or_else(missing)
    }

    /// Checks an entry's whole specification and returns the entry's target. `before` is the one-shot group that the
    /// entry had before this operation.
    fn checked(&self, table: &Table, spec: &EntrySpec, before: Option<&Group>) -> Result<Binding> {
        if spec.idle_timeout_ns != 0 && !table.support_timeout {
            return invalid(format!(
                "table {} does not support idle timeouts",
                table.name
            ));
        }
        self.binding(table, &spec.action, before)
    }

    /// Checks an entry's action and returns the entry's target. `before` is the one-shot group that the entry had
    /// before this operation.
    fn binding(
        &self,
        table: &Table,
        action: &EntryAction,
        before: Option<&Group>,
    ) -> Result<Binding> {
        match (table.profile, action) {
            (Some(profile), _) => self.profile_binding(table, profile, action, before),
            (None, EntryAction::Direct(call)) => Ok(Binding::Direct(self.call(table, call)?)),
            (None, _) => invalid(format!("table {} takes actions, not members", table.name)),
        }
    }

    /// Compiles the call of one of the table's actions.
    fn call(&self, table: &Table, call: &ActionCall) -> Result<ActionEntry> {
        let Some(action) = self.program.action_for(table, call.action) else {
            return invalid(format!(
                "the action is not one of the actions of table {}",
                table.name
            ));
        };
        ActionEntry::compile(self.program, action, &call.params)
    }

    /// Like [`binding`](Self::binding), for a table with an action profile.
    fn profile_binding(
        &self,
        table: &Table,
        profile: ProfileId,
        action: &EntryAction,
        before: Option<&Group>,
    ) -> Result<Binding> {
        let state = &self.control.authoritative.profiles[profile.index()];
        let selector = self.program.profile(profile).selector.is_some();
        match action {
            EntryAction::Direct(_) => invalid(format!(
                "table {} takes members or groups, not actions",
                table.name
            )),
            EntryAction::Group(_) | EntryAction::OneShot(_) if !selector => invalid(format!(
                "table {} has no selector, so its entries need a member",
                table.name
            )),
            EntryAction::Member(id) if state.members.contains_key(id) => Ok(Binding::Member(*id)),
            EntryAction::Member(id) => Err(TableError::NotFound(format!("member {id}"))),
            EntryAction::Group(id) if state.groups.contains_key(id) => Ok(Binding::Group(*id)),
            EntryAction::Group(id) => Err(TableError::NotFound(format!("group {id}"))),
            EntryAction::OneShot(_) if !state.members.is_empty() || !state.groups.is_empty() => {
                invalid(format!(
                    "the selector of table {} has members and groups, so its entries cannot have sets of actions",
                    table.name
                ))
            }
            EntryAction::OneShot(members) => self.one_shot(table, profile, members, before),
        }
    }

    /// Checks the members of a one-shot group and builds the group.
    fn one_shot(
        &self,
        table: &Table,
        profile: ProfileId,
        members: &[OneShotMember],
        before: Option<&Group>,
    ) -> Result<Binding> {
        let mut actions = Vec::with_capacity(members.len());
        for member in members {
            check_weight(member.weight)?;
            let action = self.call(table, &member.call)?;
            actions.push((action, member.weight, member.watch_port));
        }
        let limit = self.program.profile(profile).max_size as u64;
        check_total_weight(members.iter().map(|member| member.weight), limit)?;
        let group = Group::one_shot_group(actions.into_iter(), before);
        Ok(Binding::OneShot(Arc::new(group)))
    }
}

fn full<T>(table: &Table) -> Result<T> {
    Err(TableError::ResourceExhausted(format!(
        "table {} holds {} entries and is full",
        table.name, table.max_size
    )))
}

fn new_record<'a>(
    key: KeyRef<'a>,
    rank: i32,
    sequence: u64,
    binding: BindingRef<'a>,
    spec: EntrySpec,
) -> NewRecord<'a> {
    NewRecord {
        key,
        rank,
        sequence,
        binding,
        idle_timeout_ns: spec.idle_timeout_ns,
        controller_metadata: spec.controller_metadata,
        metadata: spec.metadata,
        is_const: false,
    }
}
