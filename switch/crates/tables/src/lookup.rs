// SPDX-License-Identifier: Apache-2.0
//! Look-up structures of tables: one for each shape of key.

mod classes;
mod exact;
mod lpm;
mod ordered;
mod wide;

use std::sync::Arc;
use std::time::Instant;

use sluice_program::Table;

use crate::key::KeyShape;
use crate::slab::{Record, Slab, Target};

pub(crate) use lpm::LpmTable;

/// What a look-up finds.
pub(crate) enum Found<'a> {
    /// The entry at this slot.
    Slot(u32),
    /// What the entry leads to, where packets leave nothing behind at the entry; with the slot of the
    /// entry that a group belongs to.
    Class(Target<'a>, u32),
}

/// The structure of one table.
#[derive(Debug)]
pub(crate) enum Structure {
    Exact(exact::Exact),
    Lpm(lpm::LpmTable),
    Ordered(ordered::Ordered),
}

impl Structure {
    pub(crate) fn new(table: &Table, slab: &Arc<Slab>) -> Self {
        match KeyShape::of(table) {
            KeyShape::Exact => Self::Exact(exact::Exact::new(table)),
            KeyShape::Lpm(field) => Self::Lpm(lpm::LpmTable::new(table, field)),
            KeyShape::Ordered => Self::Ordered(ordered::Ordered::new(table, slab)),
        }
    }

    /// Adds an entry, or puts it in the place of the one with an equal key and priority.
    pub(crate) fn insert(&mut self, entry: Record<'_>) {
        match self {
            Self::Exact(table) => table.insert(entry),
            Self::Lpm(table) => table.insert(entry),
            Self::Ordered(table) => table.insert(entry),
        }
    }

    /// Removes the entry with this one's key and priority.
    pub(crate) fn remove(&mut self, entry: Record<'_>) {
        match self {
            Self::Exact(table) => table.remove(entry),
            Self::Lpm(table) => table.remove(entry),
            Self::Ordered(table) => table.remove(entry),
        }
    }

    /// What a packet's key matches.
    #[inline]
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<Found<'_>> {
        match self {
            Self::Exact(table) => table.lookup(key).map(Found::Slot),
            Self::Lpm(table) => table.lookup(key),
            Self::Ordered(table) => table.lookup(key).map(Found::Slot),
        }
    }

    /// The slot of the entry that a packet's key matches.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        match self {
            Self::Exact(table) => table.lookup(key),
            Self::Lpm(table) => table.find(key),
            Self::Ordered(table) => table.lookup(key),
        }
    }

    /// Does what changes have left to be done; after a series of them, and now and then.
    pub(crate) fn settle(&mut self, now: Instant) {
        if let Self::Lpm(table) = self {
            table.settle(now);
        }
    }
}
