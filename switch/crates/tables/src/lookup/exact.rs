// SPDX-License-Identifier: Apache-2.0
//! Exact match: a hash table over the key's bytes.

use sluice_exact::Exact as Index;
use sluice_program::Table;

use crate::slab::Record;

#[derive(Debug)]
pub(crate) struct Exact(Index);

impl Exact {
    pub(super) fn new(table: &Table) -> Self {
        Self(Index::new(table.key_bytes))
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        self.0.insert(entry.value(), entry.slot());
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        self.0.remove(entry.value());
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        // Most tables of a program have no key, and so no entries.
        if self.0.is_empty() {
            return None;
        }
        self.0.get(key)
    }
}
