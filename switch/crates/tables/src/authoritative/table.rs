// SPDX-License-Identifier: Apache-2.0
//! The authoritative copy of one table.

use std::sync::Arc;

use sluice_exact::Exact;
use sluice_program::{ProfileId, Table};

use crate::change::EntrySwap;
use crate::default_entry::DefaultEntry;
use crate::key::{KeyRef, KeyShape};
use crate::lookup::SharedRoutes;
use crate::shared_table::SharedTable;
use crate::slab::{Record, Slab};
use crate::table_lookup::TableLookup;

/// The entries of a table, and the slots of its slab. A slot is in use if it is below `next` and is neither in `free`
/// nor in `parked`.
#[derive(Debug)]
pub(crate) struct AuthoritativeTable {
    pub(crate) slab: Arc<Slab>,
    index: Index,
    len: usize,
    next: u32,
    free: Vec<u32>,
    /// Slots that only handles ([`Entry`](crate::Entry)) still refer to. [`retry_parked`](Self::retry_parked) frees
    /// them after the handles are dropped.
    parked: Vec<u32>,
    pub(crate) default: Arc<DefaultEntry>,
    pub(crate) initial_default: Arc<DefaultEntry>,
    pub(super) profile: Option<ProfileId>,
}

/// Index that finds an entry's slot by key and rank ([`compile_entry_key`](crate::key::compile_entry_key)).
#[derive(Debug)]
enum Index {
    /// In an exact-match table, the inactive replica's lookup structure is the index.
    Replica,
    /// In a longest-prefix table, the routes are the index.
    Routes(SharedRoutes),
    /// In a table that is matched by priority, a hash table of identities is the index.
    Own(Box<Exact>),
}

/// Calls `then` with an entry's identity. The identity is the bytes that are different for any two entries of a table:
/// key, prefix length and rank.
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

/// Like [`identity`], for the entry of a record.
fn of_record<R>(record: Record<'_>, then: impl FnOnce(&[u8]) -> R) -> R {
    identity(record.stored(), record.prefix_len(), record.rank(), then)
}

/// Number of bytes that prefix length and rank add to the key in an identity.
const IDENTITY_BYTES: usize = 6;

impl AuthoritativeTable {
    pub(super) fn new(table: &Table, shared: &SharedTable) -> Self {
        let index = match (KeyShape::of(table), &shared.routes) {
            (_, Some(routes)) => Index::Routes(Arc::clone(routes)),
            (KeyShape::Exact, None) => Index::Replica,
            _ => {
                let bytes = 2 * table.key_bytes + IDENTITY_BYTES;
                Index::Own(Box::new(Exact::new(bytes)))
            }
        };
        let default = &shared.default;
        Self {
            slab: Arc::clone(&shared.slab),
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

    /// Returns the slot of the entry with this key and rank. `lookup` must belong to a replica that has all entries of
    /// the authoritative copy.
    pub(crate) fn get(&self, lookup: &TableLookup, key: KeyRef<'_>, rank: i32) -> Option<u32> {
        match &self.index {
            Index::Replica => lookup.structure.find(key.stored()),
            Index::Routes(routes) => routes.read().slot(key.stored(), key.prefix_len()),
            Index::Own(index) => identity(key.stored(), key.prefix_len(), rank, |identity| {
                index.get(identity)
            }),
        }
    }

    /// Prefetches the cache lines that [`get`](Self::get) reads for some keys.
    pub(crate) fn prefetch(&self, lookup: &TableLookup, keys: &[KeyRef<'_>]) {
        match &self.index {
            Index::Replica => {
                for key in keys {
                    lookup.structure.prefetch(key.stored());
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

    /// Releases a slot to which neither the authoritative copy nor a replica refers. If a handle still refers to it,
    /// parks the slot.
    pub(crate) fn release(&mut self, slot: u32) {
        if self.slab.release(slot) {
            self.free.push(slot);
        } else {
            self.parked.push(slot);
        }
    }

    /// Releases the slots that became unused when a change replaced or deleted an entry. Order: both replicas must
    /// have applied the change before.
    pub(crate) fn release_replaced(&mut self, swap: EntrySwap) {
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

    /// Drops recorded changes of routes whose prefix is covered by another changed prefix. Order: must be called
    /// before the replicas are updated.
    pub(super) fn compact_changes(&self) {
        if let Index::Routes(routes) = &self.index {
            routes.write().compact_changes();
        }
    }

    /// Clears the recorded changes of the routes. Order: must be called after both replicas have been updated.
    pub(super) fn clear_changes(&self) {
        if let Index::Routes(routes) = &self.index {
            routes.write().clear_changes();
        }
    }

    /// Frees up to 64 parked slots. Stops at the first slot to which a handle still refers.
    pub(crate) fn retry_parked(&mut self) {
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

    /// Replaces the version `before` of an entry by the version `after`. Either may be missing: the entry is then
    /// added or removed.
    pub(super) fn apply(&mut self, swap: EntrySwap) {
        let Self { slab, index, .. } = self;
        if let Some(before) = swap.before {
            let record = slab.record(before);
            record.set_live(false);
            self.len -= 1;
            if swap.after.is_none() {
                match index {
                    Index::Replica => {}
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
                Index::Replica => {}
                Index::Routes(routes) => routes.write().insert(record),
                Index::Own(index) => {
                    of_record(record, |identity| index.insert(identity, after));
                }
            }
        }
    }
}
