// SPDX-License-Identifier: Apache-2.0
//! What packets see: one of the two copies of all look-up structures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use sluice_program::{ProfileId, Program, Table, TableId, ValueSetId};

use crate::change::EntrySwap;
use crate::entry::{ActionRef, Binding, DefaultEntry, EntryState};
use crate::group::{Chosen, Group};
use crate::handle::{ROW_HIT, TableHandle};
use crate::key;
use crate::lookup::{Found, SharedRoutes, Structure};
use crate::meter::Meter;
use crate::model::{CloneSession, KeyField, MulticastGroup, Replica};
use crate::ports::PortStatus;
use crate::profile::{ProfileSide, row_words};
use crate::slab::{Slab, Target, default_row};
use crate::truth::{Kept, Member, ValueSetMembers};

#[derive(Debug)]
pub(crate) struct TableSide {
    pub(crate) structure: Structure,
    default: Arc<DefaultEntry>,
    /// What the default does, as machine code reads it.
    default_row: Box<[u64]>,
    entries: u64,
    slab: Arc<Slab>,
    /// Groups that belong to one entry, by its slot.
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

    /// `profiles` are those of the side that it belongs to.
    fn handle(&self, profiles: &[ProfileSide]) -> TableHandle {
        let nothing = (std::ptr::null(), 0);
        let profile = profiles.get(self.profile);
        let (members, member_count) = profile.map_or(nothing, ProfileSide::rows);
        let (groups, group_count) = profile.map_or((std::ptr::null(), 0), ProfileSide::handles);
        TableHandle {
            entries: self.entries,
            places: match &self.structure {
                Structure::Direct(direct) => direct.places().as_ptr(),
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

    /// Asks for the memory that a change begins with, and returns at once.
    pub(crate) fn prefetch(&self, swap: EntrySwap) {
        if let Some(slot) = swap.after.or(swap.before) {
            self.structure.prefetch(self.slab.record(slot).value());
        }
    }

    /// Puts one version of an entry in the place of another.
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

/// One version of all tables.
#[derive(Debug)]
pub struct Side {
    pub(crate) tables: Vec<TableSide>,
    pub(crate) profiles: Vec<ProfileSide>,
    pub(crate) multicast: HashMap<u32, Arc<MulticastGroup>>,
    pub(crate) clones: HashMap<u32, Arc<CloneSession>>,
    pub(crate) value_sets: Vec<Arc<ValueSetMembers>>,
    ports: Arc<PortStatus>,
    /// One for each table.
    handles: Box<[TableHandle]>,
    /// Whether there may be readers besides the one that holds it.
    pub(crate) shared: bool,
}

/// How a look-up waits for memory.
pub trait Wait {
    /// This line will be read after the next [`pause`](Self::pause).
    fn ask(&self, line: *const u8);

    /// Lets others go on until what was asked for has come.
    fn pause(&self);
}

/// An entry that a packet's key matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Its key.
    pub key: Vec<KeyField>,
    /// Its priority, in a table that is matched by priority; else 0.
    pub priority: i32,
    /// What it leads to.
    pub leads_to: LeadsTo,
}

/// What an entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadsTo {
    /// An action.
    Action,
    /// A member of the table's profile.
    Member(u32),
    /// A group of the table's profile.
    Group(u32),
    /// A group of its own.
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

/// What a look-up found.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// Whether an entry matched.
    pub hit: bool,
    /// What runs; `None` when there is no default action, or no member left in the group.
    pub action: Option<ActionRef<'a>>,
    /// Where the packet is counted: at the entry, or at the default entry. `None` where the table
    /// keeps none: it has neither direct counter nor direct meter nor idle timeouts.
    pub state: Option<&'a EntryState>,
    /// The direct meter that the packet is to be measured with: there is one on a hit of a table that
    /// has direct meters.
    pub meter: Option<&'a Meter>,
}

impl Side {
    pub(crate) fn new(program: &Program, kept: &[Kept], ports: Arc<PortStatus>) -> Self {
        let tables = program.tables.iter().zip(kept);
        let side = |(table, kept): (&Table, &Kept)| {
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

    /// Puts one version of an entry in the place of another.
    pub(crate) fn swap(&mut self, table: TableId, swap: EntrySwap) {
        self.tables[table.index()].swap(swap);
        self.renew_handle(table.index());
    }

    /// Changes what a table does on a miss.
    pub(crate) fn set_default(&mut self, table: TableId, default: &Arc<DefaultEntry>) {
        let index = table.index();
        let table = &mut self.tables[index];
        table.default_row = default_row(default.binding.as_ref());
        table.default = Arc::clone(default);
        self.renew_handle(index);
    }

    fn renew_handle(&mut self, table: usize) {
        self.handles[table] = self.tables[table].handle(&self.profiles);
    }

    /// Puts a member in the place of the one with this id; `None` takes it away.
    pub(crate) fn set_member(&mut self, profile: ProfileId, id: u32, member: Option<Arc<Member>>) {
        self.change_profile(profile, |profile| profile.set_member(id, member));
    }

    /// Likewise a group.
    pub(crate) fn set_group(&mut self, profile: ProfileId, id: u32, group: Option<Arc<Group>>) {
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

    /// What machine code knows of the tables: one handle for each, in their order.
    #[inline]
    pub fn handles(&self) -> *const TableHandle {
        self.handles.as_ptr()
    }

    /// Whether there may be readers besides the one that holds this. If not, what packets leave
    /// behind may be written without regard to others: the control plane writes it only while
    /// nobody holds a side.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Looks a key up. `key` has the table's `key_bytes`; `hash` is asked only when a member of a
    /// group must be chosen.
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

    /// The row that a key leads to, a miss included; see [`TableHandle`]. `key` has the table's
    /// `key_bytes`.
    #[inline]
    pub fn row(&self, table: TableId, key: &[u8]) -> *const u64 {
        let table = &self.tables[table.index()];
        let row = table.structure.row(&table.slab, key);
        row.unwrap_or(table.default_row.as_ptr())
    }

    /// As [`row`](Self::row), for a table that is matched exactly and is no array
    /// ([`Access::Exact`](crate::Access::Exact)).
    #[inline(always)]
    pub fn row_exact(&self, table: TableId, key: &[u8]) -> *const u64 {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_near(key),
            _ => None,
        };
        match slot {
            Some(slot) => table.slab.row(slot),
            None => table.default_row.as_ptr(),
        }
    }

    /// As [`row_exact`](Self::row_exact) in a table with few entries; nothing in another. `key` has the key's bytes,
    /// at most eight, and zeros behind them.
    #[inline(always)]
    pub fn row_of_few(&self, table: TableId, key: u64) -> Option<*const u64> {
        let table = &self.tables[table.index()];
        let Structure::Exact(exact) = &table.structure else {
            return None;
        };
        Some(match exact.lookup_few(key)? {
            Some(slot) => table.slab.row(slot),
            None => table.default_row.as_ptr(),
        })
    }

    /// As [`row`](Self::row), with time for something else while memory is waited for, in a table that is matched
    /// exactly.
    #[inline]
    pub fn row_waiting(&self, table: TableId, key: &[u8], wait: &impl Wait) -> *const u64 {
        match &self.tables[table.index()].structure {
            Structure::Exact(_) => self.row_exact_waiting(table, key, wait),
            _ => self.row(table, key),
        }
    }

    /// As [`row_exact`](Self::row_exact) likewise.
    #[inline(always)]
    pub fn row_exact_waiting(&self, table: TableId, key: &[u8], wait: &impl Wait) -> *const u64 {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_waiting(key, wait),
            _ => None,
        };
        let Some(slot) = slot else {
            return table.default_row.as_ptr();
        };
        table.slab.ask(slot, |line| wait.ask(line));
        wait.pause();
        // Where the entry was changed, what packets leave behind is still where it began.
        if let Some(state) = table.slab.state_elsewhere(slot) {
            wait.ask(state);
            wait.pause();
        }
        table.slab.row(slot)
    }

    /// Entries of a table.
    #[inline]
    pub fn entries(&self, table: TableId) -> u64 {
        self.handles[table.index()].entries
    }

    /// Entries of the table that has most.
    pub fn most_entries(&self) -> u64 {
        let entries = self.handles.iter().map(|handle| handle.entries);
        entries.max().unwrap_or(0)
    }

    /// The row for an address of at most 32 bits, left-aligned, in a table whose exact fields make
    /// the number `exact` ([`Access::Prefix`](crate::Access::Prefix)).
    #[inline]
    pub fn row_narrow(&self, table: TableId, exact: u64, address: u32) -> *const u64 {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_narrow(&table.slab, exact, address),
            _ => None,
        };
        row.unwrap_or(table.default_row.as_ptr())
    }

    /// As [`row_narrow`](Self::row_narrow), for an address of more bits.
    #[inline]
    pub fn row_wide(&self, table: TableId, exact: u64, address: u128) -> *const u64 {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_wide(&table.slab, exact, address),
            _ => None,
        };
        row.unwrap_or(table.default_row.as_ptr())
    }

    /// As [`row_narrow`](Self::row_narrow), with time for something else while memory is waited for.
    #[inline(always)]
    pub fn row_narrow_waiting(
        &self,
        table: TableId,
        exact: u64,
        address: u32,
        wait: &impl Wait,
    ) -> *const u64 {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_narrow_waiting(&table.slab, exact, address, wait),
            _ => None,
        };
        row.unwrap_or(table.default_row.as_ptr())
    }

    /// As [`row_wide`](Self::row_wide) likewise.
    #[inline(always)]
    pub fn row_wide_waiting(
        &self,
        table: TableId,
        exact: u64,
        address: u128,
        wait: &impl Wait,
    ) -> *const u64 {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_wide_waiting(&table.slab, exact, address, wait),
            _ => None,
        };
        row.unwrap_or(table.default_row.as_ptr())
    }

    /// What [`lookup`](Self::lookup) says of the key that led to this row.
    ///
    /// # Safety
    /// The row is one that this side gave for this table since it is held.
    pub unsafe fn behind(
        &self,
        table: TableId,
        row: *const u64,
        hash: impl FnOnce() -> u64,
    ) -> Lookup<'_> {
        let table = &self.tables[table.index()];
        // SAFETY: rows begin with a head, which is an atomic number in a record.
        let head = unsafe { (*row.cast::<AtomicU64>()).load(Ordering::Relaxed) };
        if head & ROW_HIT == 0 {
            return self.miss(table, hash);
        }
        // SAFETY: the caller's promise.
        let found = unsafe { table.structure.at(&table.slab, row) };
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

    /// What a member or a group leads to.
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

    /// The entry that a packet's key matches, for those who want to know more of it than
    /// [`lookup`](Self::lookup) says. Slower than that.
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
            // All entries with a prefix that lead to the same are alike here: the key tells which it is.
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

    /// Copies to make for a multicast group; none for an unknown one.
    #[inline]
    pub fn multicast(&self, group: u32) -> &[Replica] {
        self.multicast
            .get(&group)
            .map_or(&[], |group| &group.replicas)
    }

    /// Where a replica goes now, and as which instance: to the first of its places whose port is up;
    /// to its own port, which drops it, if all are down.
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

    /// A clone session.
    #[inline]
    pub fn clone_session(&self, session: u32) -> Option<&CloneSession> {
        self.clones.get(&session).map(|session| &**session)
    }

    /// Whether a key, one padded component after the other, is in a value set. A mask applies to
    /// both sides of the comparison.
    pub fn value_set_contains(&self, set: ValueSetId, key: &[u8], mask: Option<&[u8]>) -> bool {
        self.value_sets[set.index()].contains(key, mask)
    }
}
