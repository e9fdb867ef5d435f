// SPDX-License-Identifier: Apache-2.0
//! Exact match: a hash table over the key's bytes.

use sluice_exact::Exact as Index;
use sluice_program::Table;

use crate::side::Wait;
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

    /// Asks for the memory where a key is, or belongs.
    pub(super) fn prefetch(&self, key: &[u8]) {
        self.0.prefetch(self.0.hash(key));
    }

    /// As [`lookup`](Self::lookup), with time for something else.
    #[inline(always)]
    pub(crate) fn lookup_waiting(&self, key: &[u8], wait: &impl Wait) -> Option<u32> {
        let (ask, pause) = (|line| wait.ask(line), || wait.pause());
        self.0.get_waiting(key, ask, pause)
    }

    /// As [`lookup`](Self::lookup), in fewer steps, where the table is in caches anyway.
    #[inline(always)]
    pub(crate) fn lookup_near(&self, key: &[u8]) -> Option<u32> {
        self.0.get_near(key)
    }

    #[inline(always)]
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<u32> {
        self.0.get(key)
    }
}
