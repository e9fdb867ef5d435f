// SPDX-License-Identifier: Apache-2.0
//! Lookup structures of tables. There is one kind of structure for each shape of key.

mod direct;
mod exact;
mod few;
mod found;
mod linear;
mod lpm;
mod ordered;

use std::sync::Arc;
use std::time::Instant;

use sluice_program::Table;

use crate::key::KeyShape;
use crate::row::Row;
use crate::slab::{Record, Slab};

pub(crate) use direct::Direct;
pub(crate) use found::Found;
pub use lpm::FibDetail;
pub(crate) use lpm::{LpmTable, Routes, SharedRoutes};

/// Lookup structure of one table.
#[derive(Debug)]
pub(crate) enum Structure {
    Direct(Direct),
    Exact(Box<exact::Exact>),
    Lpm(lpm::LpmTable),
    Ordered(ordered::Ordered),
}

impl Structure {
    /// Creates an empty structure. `routes` is `None` unless the table is a longest-prefix table.
    pub(crate) fn new(table: &Table, slab: &Arc<Slab>, routes: Option<&SharedRoutes>) -> Self {
        if let Some(routes) = routes {
            return Self::Lpm(lpm::LpmTable::new(routes));
        }
        match KeyShape::of(table) {
            KeyShape::Exact => match Direct::bits(table) {
                Some(bits) => Self::Direct(Direct::new(table, bits)),
                None => Self::Exact(Box::new(exact::Exact::new(table))),
            },
            KeyShape::Lpm(_) | KeyShape::Ordered => {
                Self::Ordered(ordered::Ordered::new(table, slab))
            }
        }
    }

    /// Adds an entry, or replaces the entry with an equal key and priority.
    pub(crate) fn insert(&mut self, entry: Record<'_>) {
        match self {
            Self::Direct(table) => table.insert(entry),
            Self::Exact(table) => table.insert(entry),
            // Nothing to do: `settle` copies the change from the shared routes.
            Self::Lpm(_) => {}
            Self::Ordered(table) => table.insert(entry),
        }
    }

    /// Removes the entry that has the key and priority of `entry`.
    pub(crate) fn remove(&mut self, entry: Record<'_>) {
        match self {
            Self::Direct(table) => table.remove(entry),
            Self::Exact(table) => table.remove(entry),
            Self::Lpm(_) => {}
            Self::Ordered(table) => table.remove(entry),
        }
    }

    /// Returns the entry that a packet's key matches.
    #[inline]
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<Found<'_>> {
        match self {
            Self::Direct(table) => table.lookup(key).map(Found::Slot),
            Self::Exact(table) => table.lookup(key).map(Found::Slot),
            Self::Lpm(table) => table.lookup(key),
            Self::Ordered(table) => table.lookup(key).map(Found::Slot),
        }
    }

    /// Returns the row of the entry that a packet's key matches.
    #[inline]
    pub(crate) fn row<'a>(&'a self, slab: &'a Slab, key: &[u8]) -> Option<Row<'a>> {
        match self {
            Self::Direct(table) => table.lookup(key).map(|slot| slab.row(slot)),
            Self::Exact(table) => table.lookup(key).map(|slot| slab.row(slot)),
            Self::Lpm(table) => table.row(slab, key),
            Self::Ordered(table) => table.lookup(key).map(|slot| slab.row(slot)),
        }
    }

    /// Returns what the entry of a row runs. The row must have been found in this table.
    pub(crate) fn at<'a>(&'a self, slab: &Slab, row: Row<'a>) -> Found<'a> {
        match self {
            Self::Lpm(table) => table.at(slab, row),
            _ => Found::Slot(slab.slot_of(row)),
        }
    }

    /// Returns the slot of the entry with this key, in an exact-match table.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        match self {
            Self::Direct(table) => table.lookup(key),
            Self::Exact(table) => table.lookup(key),
            Self::Lpm(_) | Self::Ordered(_) => None,
        }
    }

    /// Returns the length of the longest prefix that a packet's key matches. Returns 0 for tables without prefixes.
    pub(crate) fn prefix_len(&self, key: &[u8]) -> u32 {
        match self {
            Self::Lpm(table) => table.prefix_len(key).unwrap_or(0),
            _ => 0,
        }
    }

    /// Prefetches the first cache lines that a change of a key's entry will read.
    pub(crate) fn prefetch(&self, key: &[u8]) {
        if let Self::Exact(table) = self {
            table.prefetch(key);
        }
    }

    /// Brings the structure up to date after a batch of changes, and runs rebuilds that are due. Also called
    /// periodically, because a rebuild can become due when there are no changes.
    pub(crate) fn settle(&mut self, now: Instant) {
        if let Self::Lpm(table) = self {
            table.settle(now);
        }
    }
}
