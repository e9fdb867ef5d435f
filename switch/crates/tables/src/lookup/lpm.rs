// SPDX-License-Identifier: Apache-2.0
//! Longest prefix match with any number of exact fields beside it (a VRF, say): one trie for each
//! value of the exact fields.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};
use sluice_fib::{Address, Lpm, Prefix, TreeBitmap};
use sluice_program::Table;

use crate::slab::Record;

/// A trie of the narrower address type that holds the field.
#[derive(Debug)]
enum Trie {
    Narrow(TreeBitmap<u32>),
    Wide(TreeBitmap<u128>),
}

#[derive(Debug)]
struct Group {
    /// The exact fields' bytes, one after the other.
    exact: Box<[u8]>,
    trie: Trie,
}

#[derive(Debug)]
pub(crate) struct LpmTable {
    /// Where the exact fields are: before and after the prefix field.
    exact: [Range<usize>; 2],
    prefix: Range<usize>,
    width: u32,
    hasher: DefaultHashBuilder,
    groups: HashTable<Group>,
}

impl LpmTable {
    pub(super) fn new(table: &Table, field: usize) -> Self {
        let field = &table.key[field];
        let prefix = field.offset..field.offset + field.bytes();
        Self {
            exact: [0..prefix.start, prefix.end..table.key_bytes],
            prefix,
            width: u32::from(field.width),
            hasher: DefaultHashBuilder::default(),
            groups: HashTable::new(),
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for range in &self.exact {
            hasher.write(&key[range.clone()]);
        }
        hasher.finish()
    }

    #[inline]
    fn same_exact(&self, group: &Group, key: &[u8]) -> bool {
        let (before, after) = group.exact.split_at(self.exact[0].len());
        before == &key[self.exact[0].clone()] && after == &key[self.exact[1].clone()]
    }

    #[inline]
    fn group(&self, key: &[u8]) -> Option<&Group> {
        self.groups
            .find(self.hash(key), |group| self.same_exact(group, key))
    }

    /// The prefix field as a number.
    #[inline]
    fn number(&self, key: &[u8]) -> u128 {
        key[self.prefix.clone()]
            .iter()
            .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        let key = entry.value();
        let (number, width, length) = (self.number(key), self.width, entry.prefix_len());
        let hash = self.hash(key);
        if self.group(key).is_none() {
            let exact = [&key[self.exact[0].clone()], &key[self.exact[1].clone()]].concat();
            let trie = if width <= u32::BITS {
                Trie::Narrow(TreeBitmap::new())
            } else {
                Trie::Wide(TreeBitmap::new())
            };
            let group = Group {
                exact: exact.into_boxed_slice(),
                trie,
            };
            let (hasher, split) = (&self.hasher, self.exact[0].len());
            self.groups.insert_unique(hash, group, |group| {
                let (before, after) = group.exact.split_at(split);
                let mut hasher = hasher.build_hasher();
                hasher.write(before);
                hasher.write(after);
                hasher.finish()
            });
        }
        let (split, exact) = (self.exact[0].len(), self.exact.clone());
        let group = self.groups.find_mut(hash, |group| {
            let (before, after) = group.exact.split_at(split);
            before == &key[exact[0].clone()] && after == &key[exact[1].clone()]
        });
        let trie = &mut group.expect("the group was made above").trie;
        trie.insert(number, width, length, entry.slot());
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        let key = entry.value();
        let (number, width, length) = (self.number(key), self.width, entry.prefix_len());
        let (split, exact) = (self.exact[0].len(), self.exact.clone());
        let found = self.groups.find_entry(self.hash(key), |group| {
            let (before, after) = group.exact.split_at(split);
            before == &key[exact[0].clone()] && after == &key[exact[1].clone()]
        });
        let Ok(mut place) = found else { return };
        let trie = &mut place.get_mut().trie;
        trie.remove(number, width, length);
        if trie.is_empty() {
            place.remove();
        }
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        self.group(key)?.trie.lookup(self.number(key), self.width)
    }
}

/// A number of `width` bits as an address: left-aligned.
#[inline]
fn wide(number: u128, width: u32) -> u128 {
    number << (u128::BITS - width)
}

#[inline]
fn narrow(number: u128, width: u32) -> u32 {
    (number as u32) << (u32::BITS - width)
}

impl Trie {
    fn insert(&mut self, number: u128, width: u32, length: u32, value: u32) -> Option<u32> {
        match self {
            Self::Narrow(trie) => trie.insert(prefix(narrow(number, width), length), value),
            Self::Wide(trie) => trie.insert(prefix(wide(number, width), length), value),
        }
    }

    fn remove(&mut self, number: u128, width: u32, length: u32) -> Option<u32> {
        match self {
            Self::Narrow(trie) => trie.remove(prefix(narrow(number, width), length)),
            Self::Wide(trie) => trie.remove(prefix(wide(number, width), length)),
        }
    }

    #[inline]
    fn lookup(&self, number: u128, width: u32) -> Option<u32> {
        match self {
            Self::Narrow(trie) => trie.lookup(narrow(number, width)),
            Self::Wide(trie) => trie.lookup(wide(number, width)),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Narrow(trie) => trie.is_empty(),
            Self::Wide(trie) => trie.is_empty(),
        }
    }
}

fn prefix<A: Address>(address: A, length: u32) -> Prefix<A> {
    Prefix::new(address, length)
}
