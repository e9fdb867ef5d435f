// SPDX-License-Identifier: Apache-2.0
//! A side: one of the two copies of all lookup structures, which packets read.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use hashbrown::HashMap;
use sluice_program::{ProfileId, Program, Table, TableId, ValueSetId};

use crate::action::ActionRef;
use crate::binding::Binding;
use crate::change::{Change, EntrySwap, Swap};
use crate::default_entry::DefaultEntry;
use crate::entry_state::EntryState;
use crate::group::{Chosen, Group};
use crate::handle::{TableHandle, TableHandles};
use crate::key;
use crate::lookup::{Found, LpmTable, SharedRoutes, Structure};
use crate::meter::Meter;
use crate::model::{CloneSession, KeyField, MulticastGroup, Replica};
use crate::ports::PortStatus;
use crate::profile::{Member, ProfileSide, row_words};
use crate::row::{ROW_HIT, Row};
use crate::shared_table::SharedTable;
use crate::slab::{Slab, Target, default_row};
use crate::value_set::ValueSetMembers;
use crate::wait::Wait;

#[derive(Debug)]
pub(crate) struct TableSide {
    pub(crate) structure: Structure,
    default: Arc<DefaultEntry>,
    /// Row of the default entry, for machine code.
    default_row: Box<[AtomicU64]>,
    entries: u64,
    slab: Arc<Slab>,
    /// Groups that belong to one entry, by the entry's slot.
    one_shots: HashMap<u32, Arc<Group>>,
    profile: usize,
    keeps_state: bool,
}

impl TableSide {
    fn new(
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
            keeps_state: EntryState::kept_by(table),
        }
    }

    /// Returns the table's handle for machine code. `profiles` must belong to the same side.
    fn handle(&self, profiles: &[ProfileSide]) -> TableHandle {
        let nothing = (std::ptr::null(), 0);
        let profile = profiles.get(self.profile);
        let (members, member_count) = profile.map_or(nothing, ProfileSide::rows);
        let (groups, group_count) = profile.map_or((std::ptr::null(), 0), ProfileSide::handles);
        TableHandle {
            entries: self.entries,
            places: match &self.structure {
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
    fn missed(&self) -> Row<'_> {
        Row::of(&self.default_row)
    }

    /// Prefetches the first cache lines that a change will read.
    pub(crate) fn prefetch(&self, swap: EntrySwap) {
        if let Some(slot) = swap.after.or(swap.before) {
            self.structure.prefetch(self.slab.record(slot).value());
        }
    }

    /// Replaces one version of an entry by another version.
    fn swap(&mut self, swap: EntrySwap) {
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
}

/// One version of all tables. Packets read it, and it does not change meanwhile.
#[derive(Debug)]
pub struct Side {
    pub(crate) tables: Vec<TableSide>,
    pub(crate) profiles: Vec<ProfileSide>,
    pub(crate) multicast: HashMap<u32, Arc<MulticastGroup>>,
    pub(crate) clones: HashMap<u32, Arc<CloneSession>>,
    pub(crate) value_sets: Vec<Arc<ValueSetMembers>>,
    ports: Arc<PortStatus>,
    /// Handles of the tables, in table order.
    handles: Box<[TableHandle]>,
    /// Whether readers other than the current one may hold this side.
    pub(crate) shared: bool,
}

/// An entry that a packet's key matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The entry's key.
    pub key: Vec<KeyField>,
    /// The entry's priority in a table that is matched by priority; else 0.
    pub priority: i32,
    /// The entry's target.
    pub leads_to: LeadsTo,
}

/// Kind of an entry's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadsTo {
    /// An action.
    Action,
    /// A member of the table's profile.
    Member(u32),
    /// A group of the table's profile.
    Group(u32),
    /// A group that belongs to this entry only.
    OneShot,
}

impl LeadsTo {
    fn of(target: &Target<'_>) -> Self {
        match target {
            Target::Direct(_) => Self::Action,
            Target::Member(id) => Self::Member(*id),
            Target::Group(id) => Self::Group(*id),
            Target::OneShot => Self::OneShot,
        }
    }
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// Whether an entry matched.
    pub hit: bool,
    /// The action to run. `None` if there is no default action, or if the group has no usable member.
    pub action: Option<ActionRef<'a>>,
    /// Packet state of the entry or default entry. `None` if the table has neither direct counters nor direct meters
    /// nor idle timeouts.
    pub state: Option<&'a EntryState>,
    /// The direct meter for the packet. Present on a hit in a table with direct meters.
    pub meter: Option<&'a Meter>,
}

impl Side {
    pub(crate) fn new(program: &Program, kept: &[SharedTable], ports: Arc<PortStatus>) -> Self {
        let tables = program.tables.iter().zip(kept);
        let side = |(table, kept): (&Table, &SharedTable)| {
            TableSide::new(table, &kept.slab, kept.routes.as_ref(), &kept.default)
        };
        let tables: Vec<_> = tables.map(side).collect();
        let profiles: Vec<_> = (0..program.profiles.len() as u32)
            .map(|id| ProfileSide::new(row_words(program, ProfileId(id))))
            .collect();
        let handles = tables.iter().map(|table| table.handle(&profiles));
        Self {
            handles: handles.collect(),
            shared: false,
            tables,
            profiles,
            multicast: HashMap::new(),
            clones: HashMap::new(),
            value_sets: program.value_sets.iter().map(|_| Arc::default()).collect(),
            ports,
        }
    }

    /// Prefetches the first cache lines that applying a change will read.
    pub(crate) fn prefetch(&self, change: &Change) {
        if let Change::Entry(table, swap) = change {
            self.tables[table.index()].prefetch(*swap);
        }
    }

    /// Applies a change to the lookup structures.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Entry(table, swap) => self.swap(*table, *swap),
            Change::Default(table, _, after) => self.set_default(*table, after),
            Change::Member(profile, id, swap) => {
                self.set_member(*profile, *id, swap.after.clone());
            }
            Change::Group(profile, id, swap) => {
                self.set_group(*profile, *id, swap.after.clone());
            }
            Change::Multicast(id, swap) => put(&mut self.multicast, *id, swap),
            Change::Clone(id, swap) => put(&mut self.clones, *id, swap),
            Change::ValueSet(id, _, after) => self.value_sets[id.index()] = Arc::clone(after),
        }
    }

    /// Completes earlier changes of all lookup structures, and runs builds that are due.
    pub(crate) fn settle(&mut self, now: Instant) {
        for table in &mut self.tables {
            table.structure.settle(now);
        }
    }

    /// Returns the lookup structure of a longest-prefix table, or `None` for other tables.
    pub(crate) fn lpm(&mut self, table: TableId) -> Option<&mut LpmTable> {
        match &mut self.tables[table.index()].structure {
            Structure::Lpm(lpm) => Some(lpm),
            _ => None,
        }
    }

    /// Replaces one version of an entry by another version.
    fn swap(&mut self, table: TableId, swap: EntrySwap) {
        self.tables[table.index()].swap(swap);
        self.renew_handle(table.index());
    }

    /// Replaces a table's default entry.
    fn set_default(&mut self, table: TableId, default: &Arc<DefaultEntry>) {
        let index = table.index();
        let table = &mut self.tables[index];
        table.default_row = default_row(default.binding.as_ref());
        table.default = Arc::clone(default);
        self.renew_handle(index);
    }

    fn renew_handle(&mut self, table: usize) {
        self.handles[table] = self.tables[table].handle(&self.profiles);
    }

    /// Replaces the member with this id. `None` removes the member.
    fn set_member(&mut self, profile: ProfileId, id: u32, member: Option<Arc<Member>>) {
        self.change_profile(profile, |profile| profile.set_member(id, member));
    }

    /// Replaces the group with this id. `None` removes the group.
    fn set_group(&mut self, profile: ProfileId, id: u32, group: Option<Arc<Group>>) {
        self.change_profile(profile, |profile| profile.set_group(id, group));
    }

    fn change_profile(&mut self, id: ProfileId, change: impl FnOnce(&mut ProfileSide)) {
        let profile = &mut self.profiles[id.index()];
        let before = (profile.rows(), profile.handles());
        change(profile);
        if (profile.rows(), profile.handles()) == before {
            return;
        }
        for table in 0..self.tables.len() {
            if self.tables[table].profile == id.index() {
                self.renew_handle(table);
            }
        }
    }

    /// Returns the handles for machine code, one per table, in table order.
    #[inline]
    pub fn handles(&self) -> TableHandles<'_> {
        TableHandles::of(&self.handles)
    }

    /// Returns whether readers other than the current one may hold this side. If not, the reader may write packet state
    /// without synchronization, because the control plane writes packet state only while no reader holds a side.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Looks up a key. `key` must have the table's `key_bytes`. `hash` is called only to choose a member of a group.
    #[inline]
    pub fn lookup(&self, table: TableId, key: &[u8], hash: impl FnOnce() -> u64) -> Lookup<'_> {
        let table = &self.tables[table.index()];
        match table.structure.lookup(key) {
            None => self.miss(table, hash),
            Some(found) => self.found(table, found, hash),
        }
    }

    fn found<'a>(
        &'a self,
        table: &'a TableSide,
        found: Found<'a>,
        hash: impl FnOnce() -> u64,
    ) -> Lookup<'a> {
        let slot = match found {
            Found::Slot(slot) => slot,
            Found::Class(target, slot) => {
                return Lookup {
                    hit: true,
                    action: self.choose(table, slot, target, hash),
                    state: None,
                    meter: None,
                };
            }
        };
        let record = table.slab.record(slot);
        let action = match record.target() {
            Target::Direct(action) => Some(action),
            other => self.choose(table, slot, other, hash),
        };
        Lookup {
            hit: true,
            action,
            state: record.state(),
            meter: record.meter(),
        }
    }

    /// Returns the row for a key, or the default entry's row on a miss. See [`TableHandle`]. `key` must have the
    /// table's `key_bytes`.
    #[inline]
    pub fn row(&self, table: TableId, key: &[u8]) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = table.structure.row(&table.slab, key);
        row.unwrap_or(table.missed())
    }

    /// Like [`row`](Self::row), but only for tables with [`Access::Exact`](crate::Access::Exact).
    #[inline(always)]
    pub fn row_exact(&self, table: TableId, key: &[u8]) -> Row<'_> {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_cached(key),
            _ => None,
        };
        match slot {
            Some(slot) => table.slab.row(slot),
            None => table.missed(),
        }
    }

    /// Like [`row_exact`](Self::row_exact) for a table with few entries. Returns `None` for other tables. `key` holds
    /// the key's bytes, at most eight, followed by zeros.
    #[inline(always)]
    pub fn row_of_few(&self, table: TableId, key: u64) -> Option<Row<'_>> {
        let table = &self.tables[table.index()];
        let Structure::Exact(exact) = &table.structure else {
            return None;
        };
        Some(match exact.lookup_few(key)? {
            Some(slot) => table.slab.row(slot),
            None => table.missed(),
        })
    }

    /// Like [`row`](Self::row). For an exact-match table, yields through `wait` while cache lines are fetched.
    #[inline]
    pub fn row_waiting(&self, table: TableId, key: &[u8], wait: &impl Wait) -> Row<'_> {
        match &self.tables[table.index()].structure {
            Structure::Exact(_) => self.row_exact_waiting(table, key, wait),
            _ => self.row(table, key),
        }
    }

    /// Like [`row_exact`](Self::row_exact), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub fn row_exact_waiting(&self, table: TableId, key: &[u8], wait: &impl Wait) -> Row<'_> {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_waiting(key, wait),
            _ => None,
        };
        let Some(slot) = slot else {
            return table.missed();
        };
        table.slab.ask(slot, |line| wait.ask(line));
        wait.pause();
        // If the entry was modified, its packet state is in another record: that of its first version.
        if let Some(state) = table.slab.state_elsewhere(slot) {
            wait.ask(state);
            wait.pause();
        }
        table.slab.row(slot)
    }

    /// Returns the number of entries of a table.
    #[inline]
    pub fn entries(&self, table: TableId) -> u64 {
        self.handles[table.index()].entries
    }

    /// Returns the number of entries of the largest table.
    pub fn most_entries(&self) -> u64 {
        let entries = self.handles.iter().map(|handle| handle.entries);
        entries.max().unwrap_or(0)
    }

    /// Returns the row for a left-aligned address of at most 32 bits. `exact` has the table's exact fields as one
    /// number ([`Access::Prefix`](crate::Access::Prefix)).
    #[inline]
    pub fn row_narrow(&self, table: TableId, exact: u64, address: u32) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_narrow(&table.slab, exact, address),
            _ => None,
        };
        row.unwrap_or(table.missed())
    }

    /// Like [`row_narrow`](Self::row_narrow), for an address of more than 32 bits.
    #[inline]
    pub fn row_wide(&self, table: TableId, exact: u64, address: u128) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_wide(&table.slab, exact, address),
            _ => None,
        };
        row.unwrap_or(table.missed())
    }

    /// Like [`row_narrow`](Self::row_narrow), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub fn row_narrow_waiting(
        &self,
        table: TableId,
        exact: u64,
        address: u32,
        wait: &impl Wait,
    ) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_narrow_waiting(&table.slab, exact, address, wait),
            _ => None,
        };
        row.unwrap_or(table.missed())
    }

    /// Like [`row_wide`](Self::row_wide), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub fn row_wide_waiting(
        &self,
        table: TableId,
        exact: u64,
        address: u128,
        wait: &impl Wait,
    ) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_wide_waiting(&table.slab, exact, address, wait),
            _ => None,
        };
        row.unwrap_or(table.missed())
    }

    /// Returns the result of [`lookup`](Self::lookup) that belongs to this row. This side must have returned the row
    /// for this table. With another table's row, the result is arbitrary, or the function panics.
    pub fn behind<'a>(
        &'a self,
        table: TableId,
        row: Row<'a>,
        hash: impl FnOnce() -> u64,
    ) -> Lookup<'a> {
        let table = &self.tables[table.index()];
        if row.head() & ROW_HIT == 0 {
            return self.miss(table, hash);
        }
        let found = table.structure.at(&table.slab, row);
        self.found(table, found, hash)
    }

    fn miss<'a>(&'a self, table: &'a TableSide, hash: impl FnOnce() -> u64) -> Lookup<'a> {
        let default = &table.default;
        let action = match &default.binding {
            None => None,
            Some(Binding::Direct(action)) => Some(action.as_ref()),
            Some(Binding::Member(id)) => self.choose(table, 0, Target::Member(*id), hash),
            Some(Binding::Group(id)) => self.choose(table, 0, Target::Group(*id), hash),
            Some(Binding::OneShot(group)) => self.one_of(table, group, hash),
        };
        Lookup {
            hit: false,
            action,
            state: table.keeps_state.then_some(default.state()),
            meter: None,
        }
    }

    /// Returns the action of a target. For a group, returns the action of the chosen member.
    #[inline]
    fn choose<'a>(
        &'a self,
        table: &'a TableSide,
        slot: u32,
        target: Target<'a>,
        hash: impl FnOnce() -> u64,
    ) -> Option<ActionRef<'a>> {
        let profile = || self.profiles.get(table.profile);
        match target {
            Target::Direct(action) => Some(action),
            Target::Member(id) => Some(profile()?.member(id)?.action.as_ref()),
            Target::Group(id) => self.one_of(table, profile()?.group(id)?, hash),
            Target::OneShot => self.one_of(table, table.one_shots.get(&slot)?, hash),
        }
    }

    #[inline]
    fn one_of<'a>(
        &'a self,
        table: &'a TableSide,
        group: &'a Group,
        hash: impl FnOnce() -> u64,
    ) -> Option<ActionRef<'a>> {
        match group.choose(hash, &self.ports)? {
            Chosen::Member(member) => {
                let profile = self.profiles.get(table.profile)?;
                Some(profile.member(member)?.action.as_ref())
            }
            Chosen::Action(action) => Some(action.as_ref()),
        }
    }

    /// Returns the entry that a packet's key matches, with the entry's key and priority. Slower than
    /// [`lookup`](Self::lookup).
    pub fn find(&self, program: &Program, id: TableId, key: &[u8]) -> Option<Match> {
        let (declared, table) = (program.table(id), &self.tables[id.index()]);
        let matched = match table.structure.lookup(key)? {
            Found::Slot(slot) => {
                let record = table.slab.record(slot);
                Match {
                    key: key::fields(declared, record.stored(), record.prefix_len()),
                    priority: if declared.needs_priority() {
                        record.rank()
                    } else {
                        0
                    },
                    leads_to: LeadsTo::of(&record.target()),
                }
            }
            // Prefix entries with equal targets share one class. So the entry that matched is found again, by the
            // packet's key.
            Found::Class(target, _) => {
                let length = table.structure.prefix_len(key);
                Match {
                    key: key::matched_fields(declared, key, length),
                    priority: 0,
                    leads_to: LeadsTo::of(&target),
                }
            }
        };
        Some(matched)
    }

    /// Returns the replicas of a multicast group. Returns no replicas for an unknown group.
    #[inline]
    pub fn multicast(&self, group: u32) -> &[Replica] {
        self.multicast
            .get(&group)
            .map_or(&[], |group| &group.replicas)
    }

    /// Returns a replica's current egress port and instance: the first of replica and backups whose port is up. If all
    /// ports are down, returns the replica's own port, which drops the packet.
    #[inline]
    pub fn place(&self, replica: &Replica) -> (u32, u16) {
        let own = (replica.port, replica.instance);
        if replica.backups.is_empty() {
            return own;
        }
        let mut places = replica.places();
        places
            .find(|(port, _)| self.ports.is_up(*port))
            .unwrap_or(own)
    }

    /// Returns a clone session.
    #[inline]
    pub fn clone_session(&self, session: u32) -> Option<&CloneSession> {
        self.clones.get(&session).map(|session| &**session)
    }

    /// Returns whether a value set contains a key. The key is given as its components, each padded to whole bytes. The
    /// mask, if there is one, applies to the key and to the members.
    pub fn value_set_contains(&self, set: ValueSetId, key: &[u8], mask: Option<&[u8]>) -> bool {
        self.value_sets[set.index()].contains(key, mask)
    }
}

fn put<T: ?Sized>(map: &mut HashMap<u32, Arc<T>>, id: u32, swap: &Swap<T>) {
    match &swap.after {
        Some(after) => map.insert(id, Arc::clone(after)),
        None => map.remove(&id),
    };
}
