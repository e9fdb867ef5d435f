// SPDX-License-Identifier: Apache-2.0
//! The truth: the control plane's copy of the state. It holds all objects, and counts the references between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_exact::Exact;
use sluice_program::{ProfileId, Program, Table};

use crate::binding::Binding;
use crate::change::{Change, EntrySwap, Swap};
use crate::default_entry::DefaultEntry;
use crate::expiry::Expiry;
use crate::group::Group;
use crate::key::{KeyRef, KeyShape};
use crate::lookup::SharedRoutes;
use crate::model::{CloneSession, MulticastGroup, places};
use crate::profile::Member;
use crate::shared_table::SharedTable;
use crate::side::TableSide;
use crate::slab::{Record, Slab, Target};
use crate::value_set::ValueSetMembers;

/// An object with the number of references to it.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) value: Arc<T>,
    pub(crate) references: usize,
}

/// A table's entries. A slot is in use if it is below `next` and neither free nor parked.
#[derive(Debug)]
pub(crate) struct TableTruth {
    pub(crate) slab: Arc<Slab>,
    index: Index,
    len: usize,
    next: u32,
    free: Vec<u32>,
    /// Slots to which only handles still refer.
    parked: Vec<u32>,
    pub(crate) default: Arc<DefaultEntry>,
    pub(crate) initial_default: Arc<DefaultEntry>,
    profile: Option<ProfileId>,
}

/// Index that finds an entry's slot by key and rank.
#[derive(Debug)]
enum Index {
    /// The lookup structure of the sides, in an exact-match table.
    Sides,
    Routes(SharedRoutes),
    Own(Box<Exact>),
}

/// Calls `then` with an entry's identity, the bytes by which the index distinguishes the entries of a table.
fn identity<R>(stored: &[u8], prefix_len: u32, rank: i32, then: impl FnOnce(&[u8]) -> R) -> R {
    let (length, rank) = ((prefix_len as u16).to_ne_bytes(), rank.to_ne_bytes());
    let parts = [stored, &length, &rank];
    let bytes = stored.len() + IDENTITY_BYTES;
    let mut short = [0; 64];
    let mut long = Vec::new();
    let buffer = match short.get_mut(..bytes) {
        Some(buffer) => buffer,
        None => {
            long.resize(bytes, 0);
            &mut long
        }
    };
    let mut at = 0;
    for part in parts {
        buffer[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    then(buffer)
}

fn of_record<R>(record: Record<'_>, then: impl FnOnce(&[u8]) -> R) -> R {
    identity(record.stored(), record.prefix_len(), record.rank(), then)
}

/// Number of bytes that an identity has in addition to the key, for prefix length and rank.
const IDENTITY_BYTES: usize = 6;

impl TableTruth {
    fn new(table: &Table, kept: &SharedTable) -> Self {
        let index = match (KeyShape::of(table), &kept.routes) {
            (_, Some(routes)) => Index::Routes(Arc::clone(routes)),
            (KeyShape::Exact, None) => Index::Sides,
            _ => {
                let bytes = 2 * table.key_bytes + IDENTITY_BYTES;
                Index::Own(Box::new(Exact::new(bytes)))
            }
        };
        let default = &kept.default;
        Self {
            slab: Arc::clone(&kept.slab),
            index,
            len: 0,
            next: 0,
            free: Vec::new(),
            parked: Vec::new(),
            default: Arc::clone(default),
            initial_default: Arc::clone(default),
            profile: table.profile,
        }
    }

    /// Returns the slot of the entry with this key and rank. `side` must have all entries of the truth.
    pub(crate) fn get(&self, side: &TableSide, key: KeyRef<'_>, rank: i32) -> Option<u32> {
        match &self.index {
            Index::Sides => side.structure.find(key.stored()),
            Index::Routes(routes) => routes.read().slot(key.stored(), key.prefix_len()),
            Index::Own(index) => identity(key.stored(), key.prefix_len(), rank, |identity| {
                index.get(identity)
            }),
        }
    }

    /// Prefetches the cache lines that [`get`](Self::get) reads for some keys.
    pub(crate) fn prefetch(&self, side: &TableSide, keys: &[KeyRef<'_>]) {
        match &self.index {
            Index::Sides => {
                for key in keys {
                    side.structure.prefetch(key.stored());
                }
            }
            Index::Routes(routes) => routes.read().prefetch(&self.slab, keys),
            Index::Own(index) => {
                for key in keys {
                    identity(key.stored(), key.prefix_len(), 0, |identity| {
                        index.prefetch(index.hash(identity));
                    });
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the slots of all entries.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.next).filter(|slot| self.slab.record(*slot).is_live())
    }

    /// Returns a free slot, or `None` if no slot is free.
    pub(crate) fn allocate(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.next;
        if slot == self.slab.slots() {
            return None;
        }
        self.next += 1;
        Some(slot)
    }

    /// Releases a slot to which neither the truth nor a side refers. If a handle still refers to it, parks the slot.
    pub(crate) fn release(&mut self, slot: u32) {
        if self.slab.release(slot) {
            self.free.push(slot);
        } else {
            self.parked.push(slot);
        }
    }

    /// Releases the slots that a change has made unused. Order: both sides must have applied the change before.
    pub(crate) fn settle(&mut self, swap: EntrySwap) {
        let Some(before) = swap.before else { return };
        let is_holder = self.slab.is_holder(before);
        let holder = self.slab.record(before).holder();
        if swap.after.is_none() && !is_holder && self.slab.is_holder(holder) {
            self.release(holder);
        }
        if swap.after.is_none() || !is_holder {
            self.release(before);
        }
    }

    /// Prepares the routes. Order: must be called before the sides are updated.
    fn prepare(&self) {
        if let Index::Routes(routes) = &self.index {
            routes.write().prepare();
        }
    }

    /// Clears the recorded changes of the routes. Order: must be called after both sides have been updated.
    fn forget(&self) {
        if let Index::Routes(routes) = &self.index {
            routes.write().forget();
        }
    }

    /// Tries again to release some of the parked slots.
    pub(crate) fn look_at_parked(&mut self) {
        for _ in 0..self.parked.len().min(64) {
            if let Some(slot) = self.parked.pop() {
                if !self.slab.release(slot) {
                    self.parked.insert(0, slot);
                    return;
                }
                self.free.push(slot);
            }
        }
    }

    fn apply(&mut self, swap: EntrySwap) {
        let Self { slab, index, .. } = self;
        if let Some(before) = swap.before {
            let record = slab.record(before);
            record.set_live(false);
            self.len -= 1;
            if swap.after.is_none() {
                match index {
                    Index::Sides => {}
                    Index::Routes(routes) => routes.write().remove(record),
                    Index::Own(index) => {
                        of_record(record, |identity| index.remove(identity));
                    }
                }
            }
        }
        if let Some(after) = swap.after {
            let record = slab.record(after);
            record.set_live(true);
            self.len += 1;
            match index {
                Index::Sides => {}
                Index::Routes(routes) => routes.write().insert(record),
                Index::Own(index) => {
                    of_record(record, |identity| index.insert(identity, after));
                }
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ProfileTruth {
    pub(crate) members: BTreeMap<u32, Counted<Member>>,
    pub(crate) groups: BTreeMap<u32, Counted<Group>>,
    /// Number of entries with a one-shot group.
    pub(crate) one_shots: usize,
}

/// Reference from an entry to its table's profile.
enum Reference {
    None,
    Member(u32),
    Group(u32),
    OneShot,
}

impl Reference {
    fn to(binding: &Binding) -> Self {
        match binding {
            Binding::Direct(_) => Self::None,
            Binding::Member(id) => Self::Member(*id),
            Binding::Group(id) => Self::Group(*id),
            Binding::OneShot(_) => Self::OneShot,
        }
    }

    fn of(record: Record<'_>) -> Self {
        match record.target() {
            Target::Direct(_) => Self::None,
            Target::Member(id) => Self::Member(id),
            Target::Group(id) => Self::Group(id),
            Target::OneShot => Self::OneShot,
        }
    }
}

impl ProfileTruth {
    fn refer(&mut self, to: Reference, by: isize) {
        let references = match to {
            Reference::Member(id) => self.members.get_mut(&id).map(|m| &mut m.references),
            Reference::Group(id) => self.groups.get_mut(&id).map(|g| &mut g.references),
            Reference::OneShot => Some(&mut self.one_shots),
            Reference::None => None,
        };
        if let Some(references) = references {
            *references = references.saturating_add_signed(by);
        }
    }

    fn refer_members(&mut self, group: &Group, by: isize) {
        for id in group.member_ids() {
            self.refer(Reference::Member(id), by);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) tables: Vec<TableTruth>,
    pub(crate) profiles: Vec<ProfileTruth>,
    pub(crate) multicast: BTreeMap<u32, Arc<MulticastGroup>>,
    pub(crate) clones: BTreeMap<u32, Arc<CloneSession>>,
    pub(crate) value_sets: Vec<Arc<ValueSetMembers>>,
    pub(crate) expiry: Expiry,
    /// Number of replicas of all groups and sessions.
    pub(crate) replicas: usize,
}

impl Truth {
    pub(crate) fn new(program: &Program, kept: &[SharedTable]) -> Self {
        let tables = program.tables.iter().zip(kept);
        Self {
            tables: tables
                .map(|(table, kept)| TableTruth::new(table, kept))
                .collect(),
            profiles: program
                .profiles
                .iter()
                .map(|_| ProfileTruth::default())
                .collect(),
            multicast: BTreeMap::new(),
            clones: BTreeMap::new(),
            value_sets: program.value_sets.iter().map(|_| Arc::default()).collect(),
            expiry: Expiry::default(),
            replicas: 0,
        }
    }

    /// Applies a change, and updates the reference counts.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Entry(id, swap) => {
                let table = &mut self.tables[id.index()];
                table.apply(*swap);
                self.expiry.apply(*id, &table.slab, *swap);
                if let Some(profile) = table.profile {
                    let profile = &mut self.profiles[profile.index()];
                    for (slot, by) in [(swap.before, -1), (swap.after, 1)] {
                        if let Some(slot) = slot {
                            profile.refer(Reference::of(table.slab.record(slot)), by);
                        }
                    }
                }
            }
            Change::Default(id, before, after) => {
                let table = &mut self.tables[id.index()];
                table.default = Arc::clone(after);
                if let Some(profile) = table.profile {
                    let profile = &mut self.profiles[profile.index()];
                    for (default, by) in [(before, -1), (after, 1)] {
                        if let Some(binding) = &default.binding {
                            profile.refer(Reference::to(binding), by);
                        }
                    }
                }
            }
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
                self.count_replicas(swap, |group| places(&group.replicas));
                set(&mut self.multicast, *id, swap);
            }
            Change::Clone(id, swap) => {
                self.count_replicas(swap, |session| places(&session.replicas));
                set(&mut self.clones, *id, swap);
            }
            Change::ValueSet(id, _, after) => self.value_sets[id.index()] = Arc::clone(after),
        }
    }
}

impl Truth {
    /// Prepares the routes. Order: must be called before a side is updated with the changes of a transaction.
    pub(crate) fn prepare(&self) {
        self.tables.iter().for_each(TableTruth::prepare);
    }

    /// Clears the recorded changes of the routes. Order: must be called after both sides have been updated.
    pub(crate) fn forget(&self) {
        self.tables.iter().for_each(TableTruth::forget);
    }

    fn count_replicas<T: ?Sized>(&mut self, swap: &Swap<T>, count: impl Fn(&T) -> usize) {
        let count = |side: &Option<Arc<T>>| side.as_deref().map_or(0, &count);
        self.replicas = self.replicas + count(&swap.after) - count(&swap.before);
    }
}

fn put<T>(map: &mut BTreeMap<u32, Counted<T>>, id: u32, swap: &Swap<T>) {
    let Some(after) = &swap.after else {
        map.remove(&id);
        return;
    };
    let references = map.get(&id).map_or(0, |known| known.references);
    map.insert(
        id,
        Counted {
            value: Arc::clone(after),
            references,
        },
    );
}

fn set<T: ?Sized>(map: &mut BTreeMap<u32, Arc<T>>, id: u32, swap: &Swap<T>) {
    match &swap.after {
        Some(after) => map.insert(id, Arc::clone(after)),
        None => map.remove(&id),
    };
}
