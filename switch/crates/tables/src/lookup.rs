// SPDX-License-Identifier: Apache-2.0
//! Look-up structures of tables: one for each shape of key.

mod exact;
mod lpm;
mod ordered;
mod wide;

use std::sync::Arc;

use sluice_program::Table;

use crate::key::KeyShape;
use crate::slab::{Record, Slab};

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

    /// The slot of the entry that a packet's key matches.
    #[inline]
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<u32> {
        match self {
            Self::Exact(table) => table.lookup(key),
            Self::Lpm(table) => table.lookup(key),
            Self::Ordered(table) => table.lookup(key),
        }
    }
}
