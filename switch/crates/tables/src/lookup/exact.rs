// SPDX-License-Identifier: Apache-2.0
//! Exact match: a hash table over the key's bytes.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use sluice_program::Table;

use crate::entry::Entry;

#[derive(Debug)]
pub(crate) struct Exact {
    key_bytes: usize,
    hasher: DefaultHashBuilder,
    entries: HashTable<Arc<Entry>>,
}

impl Exact {
    pub(super) fn new(table: &Table) -> Self {
        Self {
            key_bytes: table.key_bytes,
            hasher: DefaultHashBuilder::default(),
            entries: HashTable::new(),
        }
    }

    pub(super) fn insert(&mut self, entry: Arc<Entry>) {
        let Self {
            key_bytes,
            hasher,
            entries,
        } = self;
        let hash_of = |entry: &Arc<Entry>| hasher.hash_one(entry.key.value(*key_bytes));
        let found = entries.entry(
            hash_of(&entry),
            |known| known.key.value(*key_bytes) == entry.key.value(*key_bytes),
            hash_of,
        );
        match found {
            hashbrown::hash_table::Entry::Occupied(mut place) => *place.get_mut() = entry,
            hashbrown::hash_table::Entry::Vacant(place) => {
                place.insert(entry);
            }
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        let key = entry.key.value(self.key_bytes);
        let hash = self.hasher.hash_one(key);
        let key_bytes = self.key_bytes;
        let found = self
            .entries
            .find_entry(hash, |known| known.key.value(key_bytes) == key);
        if let Ok(place) = found {
            place.remove();
        }
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<&Entry> {
        if self.entries.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        self.entries
            .find(hash, |known| known.key.value(self.key_bytes) == key)
            .map(|arc| &**arc)
    }
}
