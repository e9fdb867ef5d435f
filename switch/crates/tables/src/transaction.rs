// SPDX-License-Identifier: Apache-2.0
//! Transactions: series of changes that become visible to packets together.

mod profiles;
mod replication;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;
use sluice_program::{Program, Table, TableId};

use crate::action::ActionEntry;
use crate::binding::{Binding, BindingRef};
use crate::change::{Change, EntrySwap};
use crate::control::Control;
use crate::default_entry::DefaultEntry;
use crate::entry::{CompiledEntry, Entry};
use crate::error::{Result, TableError, invalid};
use crate::group::Group;
use crate::key::{KeyRef, KeyShape, compile_entry_key};
use crate::model::{ActionCall, DefaultSpec, EntryAction, EntrySpec, KeyField, Limits};
use crate::slab::NewRecord;
use crate::truth::TableTruth;
use profiles::{check_slots, check_weight};

/// Prefetch distance, in changes. It is about the number of cache misses that a core can overlap.
pub const AHEAD: usize = 16;

/// A point to which a transaction can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(usize);

/// A series of operations. Packets see none of them before [`commit`](Self::commit), and all of them afterwards. Each
/// operation sees the results of earlier operations. If the transaction is dropped without a commit, it is rolled back.
pub struct Transaction<'a> {
    program: &'a Program,
    limits: &'a Limits,
    control: MutexGuard<'a, Control>,
    log: Vec<Change>,
    /// Start time in microseconds.
    now_us: u64,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(
        program: &'a Program,
        limits: &'a Limits,
        control: MutexGuard<'a, Control>,
        now_us: u64,
    ) -> Self {
        Self {
            program,
            limits,
            control,
            log: Vec::new(),
            now_us,
        }
    }

    fn table(&self, id: TableId) -> Result<&'a Table> {
        let table = self.program.tables.get(id.index());
        table.map_or_else(|| invalid("there is no such table"), Ok)
    }

    fn make(&mut self, change: Change) {
        self.control.truth.apply(&change);
        self.control.sides.change(|side| side.apply(&change));
        self.log.push(change);
    }

    /// Returns a savepoint. Operations after the savepoint can be rolled back without rolling back earlier operations.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.log.len())
    }

    /// Rolls back all operations after the savepoint.
    pub fn rollback(&mut self, to: Savepoint) {
        while self.log.len() > to.0
            && let Some(change) = self.log.pop()
        {
            let inverse = change.inverse();
            self.control.truth.apply(&inverse);
            self.control.sides.change(|side| side.apply(&inverse));
            // No packet has seen the version that the change added, so its slot can be freed.
            if let Change::Entry(
                id,
                EntrySwap {
                    before: Some(slot), ..
                },
            ) = inverse
            {
                self.control.truth.tables[id.index()].release(slot);
            }
        }
    }

    /// Makes the changes visible to packets. When this function returns, no packet uses the old version any more.
    pub fn commit(mut self) {
        if !self.log.is_empty() {
            self.settle();
            self.control.sides.flip();
            self.catch_up();
        }
    }

    /// Commits like [`commit`](Self::commit), and runs `cells` while no packet is being processed. So writes of `cells`
    /// to counters, meters and registers become visible together with the changes. Packets wait until `cells` returns.
    pub fn commit_with(mut self, cells: impl FnOnce()) {
        self.settle();
        self.control.sides.flip_while_empty(cells);
        self.catch_up();
    }

    /// Applies the changes to the side that packets have left.
    fn catch_up(&mut self) {
        let log = std::mem::take(&mut self.log);
        self.control.sides.change(|side| {
            for (index, change) in log.iter().enumerate() {
                if let Some(later) = log.get(index + AHEAD) {
                    side.prefetch(later);
                }
                side.apply(change);
            }
        });
        // Neither side uses the old versions any more, so their slots can be freed.
        let tables = &mut self.control.truth.tables;
        for change in &log {
            if let Change::Entry(id, swap) = change {
                tables[id.index()].settle(*swap);
            }
        }
        tables.iter_mut().for_each(TableTruth::look_at_parked);
        self.settle();
        self.control.truth.forget();
    }

    /// Completes the changes of the inactive side, and runs builds that are due.
    fn settle(&mut self) {
        let now = Instant::now();
        let Control { truth, sides, .. } = &mut *self.control;
        truth.prepare();
        let shared = sides.readers() > 1;
        sides.change(|side| {
            side.settle(now);
            side.shared = shared;
        });
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `AlreadyExists`, `ResourceExhausted` (table full), `PermissionDenied` (constant table),
    /// `NotFound` (unknown member or group), `InvalidArgument`, `OutOfRange`.
    pub fn insert(&mut self, id: TableId, spec: EntrySpec) -> Result<()> {
        let table = self.writable(id)?;
        let (key, rank) = compile_entry_key(table, &spec.key, spec.priority)?;
        let key = key.as_ref();
        self.vacant(id, table, key, rank)?;
        let binding = self.checked(table, &spec, None)?;
        let sequence = self.next_sequence();
        let record = new_record(key, rank, sequence, binding.as_ref(), spec);
        self.write(id, table, None, record)
    }

    /// Adds a compiled entry.
    ///
    /// # Errors
    /// The same as for [`insert`](Self::insert). `InvalidArgument` if the entry was not compiled for this table.
    pub fn insert_compiled(&mut self, id: TableId, entry: &CompiledEntry<'_>) -> Result<()> {
        let (table, key) = self.compiled(id, entry)?;
        self.callable(table, entry)?;
        self.vacant(id, table, key, 0)?;
        let record = compiled_record(key, self.next_sequence(), entry);
        self.write(id, table, None, record)
    }

    /// Replaces the action and the timeout of an entry by those of a compiled entry.
    ///
    /// # Errors
    /// The same as for [`modify`](Self::modify). `InvalidArgument` if the entry was not compiled for this table.
    pub fn modify_compiled(&mut self, id: TableId, entry: &CompiledEntry<'_>) -> Result<()> {
        let (table, key) = self.compiled(id, entry)?;
        self.callable(table, entry)?;
        let before = self.existing(id, table, key, 0)?;
        let sequence = self.sequence_of(id, before);
        let record = compiled_record(key, sequence, entry);
        self.write(id, table, Some(before), record)
    }

    /// Removes the entry with the key of a compiled entry.
    ///
    /// # Errors
    /// The same as for [`delete`](Self::delete). `InvalidArgument` if the entry was not compiled for this table.
    pub fn delete_compiled(&mut self, id: TableId, entry: &CompiledEntry<'_>) -> Result<()> {
        let (table, key) = self.compiled(id, entry)?;
        let before = self.existing(id, table, key, 0)?;
        self.remove(id, before);
        Ok(())
    }

    /// Prefetches the first cache lines that writes of compiled entries will read. Must be called a few updates ahead.
    /// `entries` are at most [`AHEAD`] entries of one table; further entries are ignored.
    pub fn prefetch<'e>(&self, id: TableId, entries: impl Iterator<Item = CompiledEntry<'e>>) {
        let mut keys = [KeyRef::new(&[], 0); AHEAD];
        let mut count = 0;
        for entry in entries {
            if let (Ok((_, key)), Some(place)) = (self.compiled(id, &entry), keys.get_mut(count)) {
                *place = key;
                count += 1;
            }
        }
        let (tables, sides) = (&self.control.truth.tables, &self.control.sides);
        if let Some(truth) = tables.get(id.index()) {
            truth.prefetch(&sides.inactive().tables[id.index()], &keys[..count]);
        }
    }

    /// Returns the key of a compiled entry, if it is valid for the table.
    fn compiled<'e>(
        &self,
        id: TableId,
        entry: &CompiledEntry<'e>,
    ) -> Result<(&'a Table, KeyRef<'e>)> {
        let table = self.writable(id)?;
        let longest = match KeyShape::of(table) {
            KeyShape::Exact => 0,
            KeyShape::Lpm(field) => table.key[field].width,
            KeyShape::Ordered => return not_compiled(table),
        };
        if entry.key.len() != table.key_bytes || entry.prefix_len > longest {
            return not_compiled(table);
        }
        Ok((table, KeyRef::new(entry.key, entry.prefix_len)))
    }

    /// Checks that a compiled entry's action is valid for the table.
    fn callable(&self, table: &Table, entry: &CompiledEntry<'_>) -> Result<()> {
        let call = entry.action;
        let fits = table.profile.is_none()
            && table.actions.contains(&call.action)
            && call.params.len() == self.program.action(call.action).param_words
            && (entry.idle_timeout_ns == 0 || table.support_timeout);
        if fits { Ok(()) } else { not_compiled(table) }
    }

    fn next_sequence(&mut self) -> u64 {
        self.control.sequence += 1;
        self.control.sequence
    }

    fn sequence_of(&self, id: TableId, slot: u32) -> u64 {
        let slab = &self.control.truth.tables[id.index()].slab;
        slab.record(slot).sequence()
    }

    /// Checks that the table has room for an entry, and has no entry with this key.
    fn vacant(&self, id: TableId, table: &Table, key: KeyRef<'_>, rank: i32) -> Result<()> {
        if self.control.find(id, key, rank).is_some() {
            return Err(TableError::AlreadyExists(format!(
                "the entry in table {}",
                table.name
            )));
        }
        if self.control.truth.tables[id.index()].len() >= table.max_size {
            return full(table);
        }
        Ok(())
    }

    /// Replaces an entry's action and attributes. Keeps its counter, meter and time of the last hit.
    ///
    /// # Errors
    /// `NotFound`, and the errors of [`insert`](Self::insert).
    pub fn modify(&mut self, id: TableId, spec: EntrySpec) -> Result<()> {
        let table = self.writable(id)?;
        let (key, rank) = compile_entry_key(table, &spec.key, spec.priority)?;
        let key = key.as_ref();
        let before = self.existing(id, table, key, rank)?;
        let slab = &self.control.truth.tables[id.index()].slab;
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

    fn remove(&mut self, id: TableId, slot: u32) {
        let swap = EntrySwap {
            before: Some(slot),
            after: None,
        };
        self.make(Change::Entry(id, swap));
    }

    /// Writes a version of an entry. If there is a version `before`, replaces it.
    fn write(
        &mut self,
        id: TableId,
        table: &Table,
        before: Option<u32>,
        record: NewRecord<'_>,
    ) -> Result<()> {
        let now_us = self.now_us;
        let truth = &mut self.control.truth.tables[id.index()];
        let Some(slot) = truth.allocate() else {
            return full(table);
        };
        let holder = before.map(|before| truth.slab.record(before).holder());
        truth.slab.fill(slot, record, holder, now_us);
        let after = Some(slot);
        self.make(Change::Entry(id, EntrySwap { before, after }));
        Ok(())
    }

    /// Sets the default action, which applies on a miss. `None` restores the program's default.
    ///
    /// # Errors
    /// `PermissionDenied` if the program declares the default as constant, and the errors for the action of an entry.
    pub fn set_default(&mut self, id: TableId, spec: Option<DefaultSpec>) -> Result<()> {
        let table = self.table(id)?;
        let truth = &self.control.truth.tables[id.index()];
        let (before, initial) = (
            Arc::clone(&truth.default),
            Arc::clone(&truth.initial_default),
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
                let kept = Arc::clone(&before.kept);
                Arc::new(DefaultEntry {
                    binding: Some(binding),
                    controller_metadata: spec.controller_metadata,
                    metadata: spec.metadata.into_boxed_slice(),
                    kept,
                    initial: false,
                })
            }
        };
        self.make(Change::Default(id, before, after));
        Ok(())
    }

    /// Returns an entry. Includes the changes of this transaction.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`, `OutOfRange`.
    pub fn entry(&self, id: TableId, key: &[KeyField], priority: i32) -> Result<Entry> {
        let table = self.table(id)?;
        let (key, rank) = compile_entry_key(table, key, priority)?;
        let slot = self.existing(id, table, key.as_ref(), rank)?;
        Ok(self.control.hold(id, slot))
    }

    /// Returns a table's default entry. Includes the changes of this transaction.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such table.
    pub fn default_entry(&self, id: TableId) -> Result<Arc<DefaultEntry>> {
        self.table(id)?;
        Ok(Arc::clone(&self.control.truth.tables[id.index()].default))
    }

    fn writable(&self, id: TableId) -> Result<&'a Table> {
        let table = self.table(id)?;
        if table.const_entries {
            let message = format!("the entries of table {} are constant", table.name);
            return Err(TableError::PermissionDenied(message));
        }
        if table.key.is_empty() {
            return invalid(format!("table {} has no key, so no entries", table.name));
        }
        Ok(table)
    }

    fn existing(&self, id: TableId, table: &Table, key: KeyRef<'_>, rank: i32) -> Result<u32> {
        let missing = || TableError::NotFound(format!("the entry in table {}", table.name));
        self.control.find(id, key, rank).ok_or_else(missing)
    }

    /// Checks an entry's whole specification and returns its binding. `before` is the one-shot group that the entry has
    /// so far.
    fn checked(&self, table: &Table, spec: &EntrySpec, before: Option<&Group>) -> Result<Binding> {
        if spec.idle_timeout_ns != 0 && !table.support_timeout {
            return invalid(format!(
                "table {} does not support idle timeouts",
                table.name
            ));
        }
        self.binding(table, &spec.action, before)
    }

    fn binding(
        &self,
        table: &Table,
        action: &EntryAction,
        before: Option<&Group>,
    ) -> Result<Binding> {
        let program = self.program;
        let call = |call: &ActionCall| {
            let Some(action) = program.action_for(table, call.action) else {
                return invalid(format!("that is not an action of table {}", table.name));
            };
            ActionEntry::compile(program, action, &call.params)
        };
        let Some(profile) = table.profile else {
            return match action {
                EntryAction::Direct(direct) => Ok(Binding::Direct(call(direct)?)),
                _ => invalid(format!("table {} takes actions, not members", table.name)),
            };
        };
        let truth = &self.control.truth.profiles[profile.index()];
        let selector = program.profile(profile).selector.is_some();
        match action {
            EntryAction::Direct(_) => invalid(format!(
                "table {} takes members or groups, not actions",
                table.name
            )),
            EntryAction::Group(_) | EntryAction::OneShot(_) if !selector => invalid(format!(
                "table {} has no selector, so takes members only",
                table.name
            )),
            EntryAction::Member(id) if truth.members.contains_key(id) => Ok(Binding::Member(*id)),
            EntryAction::Member(id) => Err(TableError::NotFound(format!("member {id}"))),
            EntryAction::Group(id) if truth.groups.contains_key(id) => Ok(Binding::Group(*id)),
            EntryAction::Group(id) => Err(TableError::NotFound(format!("group {id}"))),
            EntryAction::OneShot(_) if !truth.members.is_empty() || !truth.groups.is_empty() => {
                invalid(format!(
                    "the selector of table {} has members and groups, so takes no sets of actions",
                    table.name
                ))
            }
            EntryAction::OneShot(members) => {
                let mut slots = Vec::with_capacity(members.len());
                for member in members {
                    check_weight(member.weight)?;
                    slots.push((call(&member.call)?, member.weight, member.watch_port));
                }
                let limit = program.profile(profile).max_size as u64;
                check_slots(members.iter().map(|member| member.weight), limit)?;
                let group = Group::one_shot_group(slots.into_iter(), before);
                Ok(Binding::OneShot(Arc::new(group)))
            }
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.rollback(Savepoint(0));
    }
}

fn full<T>(table: &Table) -> Result<T> {
    Err(TableError::ResourceExhausted(format!(
        "table {} holds {} entries and is full",
        table.name, table.max_size
    )))
}

fn not_compiled<T>(table: &Table) -> Result<T> {
    invalid(format!(
        "the entry was not compiled for table {}",
        table.name
    ))
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

fn compiled_record<'a>(key: KeyRef<'a>, sequence: u64, entry: &CompiledEntry<'a>) -> NewRecord<'a> {
    NewRecord {
        key,
        rank: 0,
        sequence,
        binding: BindingRef::Direct(entry.action),
        idle_timeout_ns: entry.idle_timeout_ns,
        controller_metadata: 0,
        metadata: Vec::new(),
        is_const: false,
    }
}
