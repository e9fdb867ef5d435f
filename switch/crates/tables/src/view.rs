// SPDX-License-Identifier: Apache-2.0
//! Read access for the control plane. A view is a consistent snapshot. It returns objects in an order that depends
//! only on their content, not on the order in which they were written.

use std::sync::Arc;

use parking_lot::MutexGuard;
use sluice_program::{ProfileId, Program, TableId, ValueSetId};

use crate::action::ActionEntry;
use crate::control::Control;
use crate::default_entry::DefaultEntry;
use crate::entry::Entry;
use crate::error::{Result, TableError, invalid};
use crate::key::compile_entry_key;
use crate::model::{CloneSession, GroupSpec, KeyField, MemberSpec, MulticastGroup};

/// Snapshot of the state. Transactions wait while the view exists.
pub struct View<'a> {
    program: &'a Program,
    control: MutexGuard<'a, Control>,
}

impl<'a> View<'a> {
    pub(crate) fn new(program: &'a Program, control: MutexGuard<'a, Control>) -> Self {
        Self { program, control }
    }

    /// Returns the entries of a table, in order of key and descending priority.
    pub fn entries(&self, table: TableId) -> Vec<Entry> {
        let entries = &self.control.authoritative.tables[table.index()];
        let slab = &entries.slab;
        // Most keys differ in their first bytes, so most comparisons do not read the records.
        let with_leading = |slot| (leading(slab.record(slot).stored()), slot);
        let mut slots: Vec<(u64, u32)> = entries.slots().map(with_leading).collect();
        slots.sort_unstable_by(|(first_a, a), (first_b, b)| {
            first_a.cmp(first_b).then_with(|| {
                let (a, b) = (slab.record(*a), slab.record(*b));
                let by_key = a.stored().cmp(b.stored());
                let by_length = || a.prefix_len().cmp(&b.prefix_len());
                by_key
                    .then_with(by_length)
                    .then_with(|| b.rank().cmp(&a.rank()))
            })
        });
        slots
            .into_iter()
            .map(|(_, slot)| Entry::hold(slab, slot))
            .collect()
    }

    /// Returns the number of entries of a table.
    pub fn entry_count(&self, table: TableId) -> usize {
        self.control.authoritative.tables[table.index()].len()
    }

    /// Returns one entry.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`, `OutOfRange`.
    pub fn entry(&self, table: TableId, key: &[KeyField], priority: i32) -> Result<Entry> {
        let Some(declared) = self.program.tables.get(table.index()) else {
            return invalid("there is no such table");
        };
        let (key, rank) = compile_entry_key(declared, key, priority)?;
        let missing = || TableError::NotFound(format!("the entry in table {}", declared.name));
        let slot = self
            .control
            .find(table, key.as_ref(), rank)
            .ok_or_else(missing)?;
        Ok(self.control.hold(table, slot))
    }

    /// Returns a table's default entry, which applies on a miss.
    pub fn default_entry(&self, table: TableId) -> Arc<DefaultEntry> {
        Arc::clone(&self.control.authoritative.tables[table.index()].default)
    }

    /// Returns the numbers of members and groups of a profile.
    pub fn profile_counts(&self, profile: ProfileId) -> (usize, usize) {
        let profile = &self.control.authoritative.profiles[profile.index()];
        (profile.members.len(), profile.groups.len())
    }

    /// Returns the numbers of multicast groups and clone sessions.
    pub fn replication_counts(&self) -> (usize, usize) {
        let state = &self.control.authoritative;
        (state.multicast.len(), state.clones.len())
    }

    /// Returns the members of a profile, in order of id.
    pub fn members(&self, profile: ProfileId) -> Vec<MemberSpec> {
        let members = self.control.authoritative.profiles[profile.index()]
            .members
            .values();
        let spec = |id, action: &ActionEntry| MemberSpec {
            id,
            call: action.call(self.program),
        };
        members
            .map(|member| spec(member.value.id, &member.value.action))
            .collect()
    }

    /// Returns the groups of a profile, in order of id.
    pub fn groups(&self, profile: ProfileId) -> Vec<GroupSpec> {
        let groups = self.control.authoritative.profiles[profile.index()]
            .groups
            .values();
        groups.map(|group| group.value.spec()).collect()
    }

    /// Returns the multicast groups, in order of id.
    pub fn multicast_groups(&self) -> Vec<(u32, Arc<MulticastGroup>)> {
        let groups = self.control.authoritative.multicast.iter();
        groups.map(|(id, group)| (*id, Arc::clone(group))).collect()
    }

    /// Returns the clone sessions, in order of id.
    pub fn clone_sessions(&self) -> Vec<(u32, CloneSession)> {
        let sessions = self.control.authoritative.clones.iter();
        sessions
            .map(|(id, session)| (*id, (**session).clone()))
            .collect()
    }

    /// Returns the members of a value set, in the order in which they were written.
    pub fn value_set(&self, set: ValueSetId) -> Vec<Vec<KeyField>> {
        self.control.authoritative.value_sets[set.index()]
            .specs
            .clone()
    }
}

/// Returns the first eight bytes of a key as a number. For two keys of one table, these numbers compare like the
/// bytes.
fn leading(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = key.len().min(first.len());
    first[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(first)
}
