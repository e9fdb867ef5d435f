// SPDX-License-Identifier: Apache-2.0
//! One table of a replica.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hashbrown::HashMap;
use sluice_program::Table;

use crate::change::EntrySwap;
use crate::default_entry::DefaultEntry;
use crate::entry_state::EntryState;
use crate::group::Group;
use crate::handle::TableHandle;
use crate::lookup::{SharedRoutes, Structure};
use crate::profile::ProfileLookup;
use crate::row::Row;
use crate::slab::{Slab, Target, default_row};

/// One table in a replica: the lookup structure, and other data that lookups need.
#[derive(Debug)]
pub(crate) struct TableLookup {
    pub(crate) structure: Structure,
    pub(crate) default: Arc<DefaultEntry>,
    /// Row of the default entry, for machine code.
    default_row: Box<[AtomicU64]>,
    entries: u64,
    pub(crate) slab: Arc<Slab>,
    /// One-shot groups, by the slot of the entry that owns the group.
    pub(crate) one_shots: HashMap<u32, Arc<Group>>,
    pub(crate) profile: usize,
    pub(crate) keeps_state: bool,
}

impl TableLookup {
    pub(crate) fn new(
        table: &Table,
        slab: &Arc<Slab>,
        routes: Option<&SharedRoutes>,
        default: &Arc<DefaultEntry>,
    ) -> Self {
        Self {
            structure: Structure::new(table, slab, routes),
            default: Arc::clone(default),
            default_row: default_row(default.binding.as_ref()),
            entries: 0,
            slab: Arc::clone(slab),
            one_shots: HashMap::new(),
            profile: table.profile.map_or(usize::MAX, |id| id.index()),
            keeps_state: EntryState::is_kept_by(table),
        }
    }

    /// Returns the table's handle for machine code. `profiles` must belong to the same replica.
    pub(crate) fn handle(&self, profiles: &[ProfileLookup]) -> TableHandle {
        let nothing = (std::ptr::null(), 0);
        let profile = profiles.get(self.profile);
        let (members, member_count) = profile.map_or(nothing, ProfileLookup::rows);
        let (groups, group_count) = profile.map_or((std::ptr::null(), 0), ProfileLookup::handles);
        TableHandle {
            entries: self.entries,
            direct_slots: match &self.structure {
                Structure::Direct(direct) => direct.start(),
                _ => std::ptr::null(),
            },
            heads: match &self.structure {
                Structure::Direct(direct) => direct.heads(),
                _ => std::ptr::null(),
            },
            records: self.slab.start(),
            default: self.default_row.as_ptr(),
            default_state: self.default.state(),
            members,
            groups,
            member_count,
            group_count,
        }
    }

    /// Returns the row of the default entry.
    #[inline(always)]
    pub(crate) fn miss_row(&self) -> Row<'_> {
        Row::of(&self.default_row)
    }

    /// Prefetches the first cache lines that applying a change will read.
    pub(crate) fn prefetch(&self, swap: EntrySwap) {
        if let Some(slot) = swap.after.or(swap.before) {
            self.structure.prefetch(self.slab.record(slot).value());
        }
    }

    /// Replaces an old version of an entry by a new one, or adds or removes the entry if one
    /// version is missing.
    pub(crate) fn swap(&mut self, swap: EntrySwap) {
        self.entries += u64::from(swap.after.is_some());
        self.entries -= u64::from(swap.before.is_some());
        if let Some(slot) = swap.before {
            if !self.one_shots.is_empty() {
                self.one_shots.remove(&slot);
            }
            if swap.after.is_none() {
                self.structure.remove(self.slab.record(slot));
            }
        }
        if let Some(slot) = swap.after {
            let record = self.slab.record(slot);
            if matches!(record.target(), Target::OneShot)
                && let Some(group) = record.one_shot()
            {
                self.one_shots.insert(slot, group);
            }
            self.structure.insert(record);
        }
    }

    /// Replaces the default entry.
    pub(crate) fn set_default(&mut self, default: &Arc<DefaultEntry>) {
        self.default_row = default_row(default.binding.as_ref());
        self.default = Arc::clone(default);
    }
}
