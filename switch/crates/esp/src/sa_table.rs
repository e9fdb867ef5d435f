// SPDX-License-Identifier: Apache-2.0
//! Stores SAs by key. A lookup returns the SA's index. With this index, the caller first prefetches the SA, and later
//! serves it.

use std::hash::Hash;

use hashbrown::HashMap;

use crate::prefetch::prefetch;

/// Index of an SA in its table, valid until the SA is removed.
pub(crate) type SaIndex = u32;

/// Table of SAs. Each SA has its own allocation, so no SA moves when others are added or removed.
pub(crate) struct SaTable<K, S> {
    indices: HashMap<K, SaIndex>,
    sas: Vec<Option<Box<S>>>,
    free: Vec<SaIndex>,
}

impl<K, S> Default for SaTable<K, S> {
    fn default() -> Self {
        Self {
            indices: HashMap::new(),
            sas: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<K: Hash + Eq, S> SaTable<K, S> {
    /// Returns the number of SAs.
    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Returns whether the table has an SA with this key.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.indices.contains_key(key)
    }

    /// Adds an SA, whose key must be new.
    pub(crate) fn insert(&mut self, key: K, sa: Box<S>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sas.push(None);
            (self.sas.len() - 1) as SaIndex
        });
        self.sas[index as usize] = Some(sa);
        let before = self.indices.insert(key, index);
        debug_assert!(before.is_none());
    }

    /// Removes and returns an SA.
    pub(crate) fn remove(&mut self, key: &K) -> Option<Box<S>> {
        let index = self.indices.remove(key)?;
        self.free.push(index);
        self.sas[index as usize].take()
    }

    /// Returns the index of an SA.
    #[inline]
    pub(crate) fn find(&self, key: &K) -> Option<SaIndex> {
        self.indices.get(key).copied()
    }

    /// Returns the SA at an index.
    #[inline]
    pub(crate) fn at(&mut self, index: SaIndex) -> Option<&mut S> {
        self.sas.get_mut(index as usize)?.as_deref_mut()
    }

    /// Returns the SA with this key.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut S> {
        self.at(self.find(key)?)
    }

    /// Prefetches the SA at an index.
    #[inline]
    pub(crate) fn prefetch(&self, index: SaIndex) {
        if let Some(sa) = self.peek(index) {
            prefetch(sa);
        }
    }

    /// Returns the SA at an index, read-only.
    #[inline]
    pub(crate) fn peek(&self, index: SaIndex) -> Option<&S> {
        self.sas.get(index as usize)?.as_deref()
    }

    /// Iterates over all SAs in unspecified order, read-only.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> {
        self.sas.iter().filter_map(Option::as_deref)
    }

    /// Iterates over all SAs in unspecified order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.sas.iter_mut().filter_map(Option::as_deref_mut)
    }
}
