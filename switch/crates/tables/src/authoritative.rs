// SPDX-License-Identifier: Apache-2.0
//! The authoritative copy of the state, for the control plane. It holds all objects, and counts the references between
//! them.

mod profile;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_program::{Program, TableId};

use crate::change::{Change, EntrySwap, Swap};
use crate::default_entry::DefaultEntry;
use crate::expiry::Expiry;
use crate::model::{CloneSession, MulticastGroup, count_destinations};
use crate::shared_table::SharedTable;
use crate::value_set::ValueSetMembers;

pub(crate) use profile::AuthoritativeProfile;
pub(crate) use table::AuthoritativeTable;

use profile::{Reference, put};

/// The authoritative copy of all state; see the module.
#[derive(Debug)]
pub(crate) struct AuthoritativeState {
    pub(crate) tables: Vec<AuthoritativeTable>,
    pub(crate) profiles: Vec<AuthoritativeProfile>,
    pub(crate) multicast: BTreeMap<u32, Arc<MulticastGroup>>,
    pub(crate) clones: BTreeMap<u32, Arc<CloneSession>>,
    pub(crate) value_sets: Vec<Arc<ValueSetMembers>>,
    pub(crate) expiry: Expiry,
    /// Number of packet copies that are configured: replicas and their backups, in all multicast groups and clone
    /// sessions.
    pub(crate) pre_replicas: usize,
}

impl AuthoritativeState {
    pub(crate) fn new(program: &Program, shared_tables: &[SharedTable]) -> Self {
        let tables = program.tables.iter().zip(shared_tables);
        Self {
            tables: tables
                .map(|(table, shared)| AuthoritativeTable::new(table, shared))
                .collect(),
            profiles: program
                .profiles
                .iter()
                .map(|_| AuthoritativeProfile::default())
                .collect(),
            multicast: BTreeMap::new(),
            clones: BTreeMap::new(),
            value_sets: program.value_sets.iter().map(|_| Arc::default()).collect(),
            expiry: Expiry::default(),
            pre_replicas: 0,
        }
    }

    /// Applies a change, and updates the reference counts.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Entry(id, swap) => self.apply_entry(*id, *swap),
            Change::Default(id, before, after) => self.apply_default(*id, before, after),
            Change::Member(profile, id, swap) => {
                put(&mut self.profiles[profile.index()].members, *id, swap);
            }
            Change::Group(profile, id, swap) => {
                let profile = &mut self.profiles[profile.index()];
                for (group, by) in [(&swap.before, -1), (&swap.after, 1)] {
                    if let Some(group) = group {
                        profile.refer_members(group, by);
                    }
                }
                put(&mut profile.groups, *id, swap);
            }
            Change::Multicast(id, swap) => {
                self.count_replicas(swap, |group| count_destinations(&group.replicas));
                set(&mut self.multicast, *id, swap);
            }
            Change::Clone(id, swap) => {
                self.count_replicas(swap, |session| count_destinations(&session.replicas));
                set(&mut self.clones, *id, swap);
            }
            Change::ValueSet(id, _, after) => self.value_sets[id.index()] = Arc::clone(after),
        }
    }

    fn apply_entry(&mut self, id: TableId, swap: EntrySwap) {
        let table = &mut self.tables[id.index()];
        table.apply(swap);
        self.expiry.apply(id, &table.slab, swap);
        let Some(profile) = table.profile else { return };
        let profile = &mut self.profiles[profile.index()];
        for (slot, by) in [(swap.before, -1), (swap.after, 1)] {
            if let Some(slot) = slot {
                profile.refer(Reference::of(table.slab.record(slot)), by);
            }
        }
    }

    fn apply_default(
        &mut self,
        id: TableId,
        before: &Arc<DefaultEntry>,
        after: &Arc<DefaultEntry>,
    ) {
        let table = &mut self.tables[id.index()];
        table.default = Arc::clone(after);
        let Some(profile) = table.profile else { return };
        let profile = &mut self.profiles[profile.index()];
        for (default, by) in [(before, -1), (after, 1)] {
            if let Some(binding) = &default.binding {
                profile.refer(Reference::to(binding), by);
            }
        }
    }

    /// Drops recorded changes of routes whose prefix is covered by another changed prefix, so that a replica updates
    /// no address twice. Order: must be called before a replica is updated with the changes of a transaction.
    pub(crate) fn compact_changes(&self) {
        self.tables
            .iter()
            .for_each(AuthoritativeTable::compact_changes);
    }

    /// Clears the recorded changes of the routes. Order: must be called after both replicas have been updated.
    pub(crate) fn clear_changes(&self) {
        self.tables
            .iter()
            .for_each(AuthoritativeTable::clear_changes);
    }

    fn count_replicas<T: ?Sized>(&mut self, swap: &Swap<T>, count: impl Fn(&T) -> usize) {
        let count = |object: &Option<Arc<T>>| object.as_deref().map_or(0, &count);
        self.pre_replicas = self.pre_replicas + count(&swap.after) - count(&swap.before);
    }
}

fn set<T: ?Sized>(map: &mut BTreeMap<u32, Arc<T>>, id: u32, swap: &Swap<T>) {
    match &swap.after {
        Some(after) => map.insert(id, Arc::clone(after)),
        None => map.remove(&id),
    };
}
