// SPDX-License-Identifier: Apache-2.0
//! Numbers the targets of entries. Entries with equal targets share a number, their *class*. A table of a million
//! routes has few next hops, so the numbers are small, and small numbers make lookup structures small.
//!
//! The row of a class has the format of the row of an entry's record: the head, then the parameters. A one-shot group
//! belongs to one entry, so the head of its class names the slot of that entry.
//!
//! Each replica has its own rows of the classes ([`ClassRows`]). A number whose last entry was removed is reused only
//! after both replicas have been updated.

use std::hash::BuildHasher;
use std::sync::atomic::AtomicU64;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::row::Row;
use crate::slab::Record;

/// The classes of a table; see the module.
#[derive(Debug)]
pub(super) struct Classes {
    hasher: DefaultHashBuilder,
    /// Hash table that finds the number of a row.
    numbers: HashTable<u32>,
    /// Number of 64-bit words in a row.
    words: usize,
    /// The rows, one after the other.
    rows: Vec<u64>,
    /// Number of entries of each class; 0 if its number is in `free` or `idle`.
    entries: Vec<u32>,
    free: Vec<u32>,
    /// Numbers that were allocated after the last update of both replicas. Their rows must still be copied to the
    /// replicas.
    fresh: Vec<u32>,
    /// Numbers whose last entry was removed after the last update of both replicas. A replica may still use them.
    idle: Vec<u32>,
    /// Scratch memory for the row that is looked up.
    wanted: Vec<u64>,
}

impl Classes {
    /// Creates an empty structure for rows of `words` words.
    pub(super) fn new(words: usize) -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            numbers: HashTable::new(),
            words,
            rows: Vec::new(),
            entries: Vec::new(),
            free: Vec::new(),
            fresh: Vec::new(),
            idle: Vec::new(),
            wanted: Vec::with_capacity(words),
        }
    }

    /// Returns the class of an entry's target, and increments the class's number of entries.
    pub(super) fn add(&mut self, entry: &Record<'_>) -> u32 {
        let Self {
            hasher,
            numbers,
            words,
            rows,
            entries,
            free,
            fresh,
            wanted,
            ..
        } = self;
        entry.class(wanted);
        let hash = hasher.hash_one(&*wanted);
        let row = |rows: &[u64], number: u32| {
            let start = number as usize * *words;
            start..(start + *words).min(rows.len())
        };
        let same = |number: &u32| rows[row(rows, *number)] == wanted[..];
        if let Some(number) = numbers.find(hash, same).copied() {
            entries[number as usize] += 1;
            return number;
        }
        let number = free.pop().unwrap_or_else(|| {
            rows.resize(rows.len() + *words, 0);
            entries.push(0);
            u32::try_from(entries.len() - 1).expect("a table has fewer than 2^32 entries")
        });
        let range = row(rows, number);
        rows[range].copy_from_slice(wanted);
        entries[number as usize] = 1;
        fresh.push(number);
        numbers.insert_unique(hash, number, |number| {
            hasher.hash_one(&rows[row(rows, *number)])
        });
        number
    }

    /// Decrements a class's number of entries.
    pub(super) fn release(&mut self, number: u32) {
        let entries = &mut self.entries[number as usize];
        *entries -= 1;
        if *entries == 0 {
            self.idle.push(number);
        }
    }

    /// Frees idle numbers. Order: both replicas must have been updated before.
    pub(super) fn clear_changes(&mut self) {
        self.fresh.clear();
        while let Some(number) = self.idle.pop() {
            if self.entries[number as usize] > 0 {
                continue;
            }
            let hash = self.hasher.hash_one(self.row(number));
            // A number that became idle twice is in the list twice. The first occurrence has then removed it already.
            if let Ok(found) = self.numbers.find_entry(hash, |known| *known == number) {
                found.remove();
                self.free.push(number);
            }
        }
    }

    fn row(&self, number: u32) -> &[u64] {
        let start = number as usize * self.words;
        &self.rows[start..start + self.words]
    }

    /// Returns an empty set of rows, for a replica.
    pub(super) fn empty_rows(&self) -> ClassRows {
        ClassRows {
            words: self.words,
            rows: Vec::new(),
        }
    }

    /// Copies the rows of newly allocated numbers to a replica.
    pub(super) fn copy_fresh_rows(&self, rows: &mut ClassRows) {
        for number in &self.fresh {
            rows.set(*number, self.row(*number));
        }
    }
}

/// The rows of the classes in one replica.
#[derive(Debug)]
pub(super) struct ClassRows {
    /// Number of 64-bit words in a row.
    words: usize,
    /// The rows, one after the other. Atomic like the words of records, because both are read as a [`Row`].
    rows: Vec<AtomicU64>,
}

impl ClassRows {
    /// Returns the words of a class that has entries.
    #[inline]
    pub(super) fn words(&self, number: u32) -> &[AtomicU64] {
        let start = number as usize * self.words;
        &self.rows[start..start + self.words]
    }

    /// Returns all words of a row of a class. The row must have been made from the result of [`words`](Self::words).
    pub(super) fn words_of(&self, row: Row<'_>) -> &[AtomicU64] {
        let bytes = row.as_ptr().addr() - self.rows.as_ptr().addr();
        let start = bytes / size_of::<u64>();
        &self.rows[start..start + self.words]
    }

    fn set(&mut self, number: u32, row: &[u64]) {
        let start = number as usize * self.words;
        let end = start + self.words;
        if self.rows.len() < end {
            self.rows.resize_with(end, AtomicU64::default);
        }
        for (word, new) in self.rows[start..end].iter_mut().zip(row) {
            *word.get_mut() = *new;
        }
    }
}
