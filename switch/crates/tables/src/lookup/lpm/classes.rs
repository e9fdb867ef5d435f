// SPDX-License-Identifier: Apache-2.0
//! What entries lead to, numbered: equal ones share a number. A table of a million routes has few
//! next hops, and small numbers make small look-up structures.
//!
//! What a number stands for is a row as entries' records begin with one: head, parameters. A
//! group of one entry's own is named by that entry's slot in the links.
//!
//! Each side has the rows that its numbers stand for ([`Rows`]). A number that no entry has any more is
//! given to something else only when both sides have been brought in line.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::slab::Record;

/// See the module.
#[derive(Debug)]
pub(super) struct Classes {
    hasher: DefaultHashBuilder,
    /// Numbers, by what they stand for.
    numbers: HashTable<u32>,
    /// Words of a row.
    words: usize,
    /// One after the other.
    rows: Vec<u64>,
    /// How many entries have each number; 0 where it is free or idle.
    entries: Vec<u32>,
    free: Vec<u32>,
    /// Numbers that were given out since both sides were in line, ...
    fresh: Vec<u32>,
    /// ... and those whose last entry has gone since.
    idle: Vec<u32>,
    /// The row that is looked for.
    wanted: Vec<u64>,
}

impl Classes {
    /// None yet; rows have so many words.
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

    /// The number of what an entry leads to, for one entry more.
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
        let place = row(rows, number);
        rows[place].copy_from_slice(wanted);
        entries[number as usize] = 1;
        fresh.push(number);
        numbers.insert_unique(hash, number, |number| {
            hasher.hash_one(&rows[row(rows, *number)])
        });
        number
    }

    /// One entry fewer has this number.
    pub(super) fn release(&mut self, number: u32) {
        let entries = &mut self.entries[number as usize];
        *entries -= 1;
        if *entries == 0 {
            self.idle.push(number);
        }
    }

    /// Both sides are in line: idle numbers are free.
    pub(super) fn forget(&mut self) {
        self.fresh.clear();
        while let Some(number) = self.idle.pop() {
            if self.entries[number as usize] > 0 {
                continue;
            }
            let hash = self.hasher.hash_one(self.row(number));
            // One that was idle twice is not there any more.
            if let Ok(place) = self.numbers.find_entry(hash, |known| *known == number) {
                place.remove();
                self.free.push(number);
            }
        }
    }

    fn row(&self, number: u32) -> &[u64] {
        let start = number as usize * self.words;
        &self.rows[start..start + self.words]
    }

    /// No rows yet, for a side.
    pub(super) fn none(&self) -> Rows {
        Rows {
            words: self.words,
            rows: Vec::new(),
        }
    }

    /// Brings a side's rows in line.
    pub(super) fn show(&self, rows: &mut Rows) {
        for number in &self.fresh {
            rows.set(*number, self.row(*number));
        }
    }
}

/// What numbers stand for, on a side.
#[derive(Debug)]
pub(super) struct Rows {
    words: usize,
    /// One after the other.
    rows: Vec<u64>,
}

impl Rows {
    /// Words of a row.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// The row of a number that entries have.
    #[inline]
    pub(super) fn row(&self, number: u32) -> &[u64] {
        let start = number as usize * self.words;
        &self.rows[start..start + self.words]
    }

    fn set(&mut self, number: u32, row: &[u64]) {
        let start = number as usize * self.words;
        let end = start + self.words;
        if self.rows.len() < end {
            self.rows.resize(end, 0);
        }
        self.rows[start..end].copy_from_slice(row);
    }
}
