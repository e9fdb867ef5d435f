// SPDX-License-Identifier: Apache-2.0
//! Exact match: a hash table over the key's bytes.

use sluice_exact::Exact as Index;
use sluice_program::Table;

use super::few::FewKeys;
use crate::slab::Record;
use crate::wait::Wait;

#[derive(Debug)]
pub(crate) struct Exact {
    /// A second copy of the keys, used for lookups while there are few keys.
    few: FewKeys,
    index: Index,
}

impl Exact {
    pub(super) fn new(table: &Table) -> Self {
        Self {
            few: FewKeys::new(table.key_bytes),
            index: Index::new(table.key_bytes),
        }
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        self.few.insert(entry.value(), entry.slot());
        self.index.insert(entry.value(), entry.slot());
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        self.index.remove(entry.value());
        self.few.remove(entry.value(), self.index.len());
    }

    /// Prefetches the cache lines of a key's bucket.
    pub(super) fn prefetch(&self, key: &[u8]) {
        self.index.prefetch(self.index.hash(key));
    }

    /// Like [`lookup`](Self::lookup), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub(crate) fn lookup_waiting(&self, key: &[u8], wait: &impl Wait) -> Option<u32> {
        let (prefetch, yield_now) = (|line| wait.prefetch(line), || wait.yield_now());
        self.index.get_waiting(key, prefetch, yield_now)
    }

    /// Returns the result of [`lookup`](Self::lookup) in a table with few keys. Returns `None` for other tables. `key`
    /// holds the key's bytes in memory order, at most eight, followed by zeros.
    #[inline(always)]
    pub(crate) fn lookup_few(&self, key: u64) -> Option<Option<u32>> {
        self.few.lookup(key).ok()
    }

    /// Like [`lookup`](Self::lookup), but with fewer instructions, because it does not prefetch. Faster if the table
    /// is in the CPU caches.
    #[inline(always)]
    pub(crate) fn lookup_cached(&self, key: &[u8]) -> Option<u32> {
        self.index.get_cached(key)
    }

    /// Like [`lookup_cached`](Self::lookup_cached), for a key that machine code has just stored as whole words. The
    /// last word is padded with zeros.
    #[inline(always)]
    pub(crate) fn lookup_stored<const W: usize>(&self, words: &[[u8; 8]; W]) -> Option<u32> {
        self.index.get_stored(words)
    }

    /// Like [`lookup_stored`](Self::lookup_stored), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub(crate) fn lookup_stored_waiting<const W: usize>(
        &self,
        words: &[[u8; 8]; W],
        wait: &impl Wait,
    ) -> Option<u32> {
        let (prefetch, yield_now) = (|line| wait.prefetch(line), || wait.yield_now());
        self.index.get_stored_waiting(words, prefetch, yield_now)
    }

    #[inline(always)]
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<u32> {
        self.index.get(key)
    }
}
