// SPDX-License-Identifier: Apache-2.0
//! Match by priority: rows in descending priority, the first that matches wins. Among equal
//! priorities the one inserted first wins.
//!
//! Values and masks of a row lie side by side as 64-bit words, so that a row that does not match
//! usually costs one comparison. Ranges are compared afterwards, byte by byte.

use std::ops::Range;
use std::sync::Arc;

use sluice_program::{MatchKind, Table};

use crate::slab::{Record, Slab};

#[derive(Debug)]
pub(crate) struct Ordered {
    words: usize,
    ranges: Vec<Range<usize>>,
    slab: Arc<Slab>,
    /// Slots.
    rows: Vec<u32>,
    /// For each row: its value words, then its mask words.
    patterns: Vec<u64>,
}

impl Ordered {
    pub(super) fn new(table: &Table, slab: &Arc<Slab>) -> Self {
        let ranges = table.key.iter().filter(|key| key.kind == MatchKind::Range);
        Self {
            words: table.key_bytes.div_ceil(8),
            ranges: ranges
                .map(|key| key.offset..key.offset + key.bytes())
                .collect(),
            slab: Arc::clone(slab),
            rows: Vec::new(),
            patterns: Vec::new(),
        }
    }

    fn row(&self, slot: u32) -> Record<'_> {
        self.slab.record(slot)
    }

    /// Position of the entry with this key and rank, or where it belongs.
    fn position(&self, entry: Record<'_>) -> Result<usize, usize> {
        let first = self
            .rows
            .partition_point(|row| self.row(*row).rank() > entry.rank());
        let last = self
            .rows
            .partition_point(|row| self.row(*row).rank() >= entry.rank());
        match self.rows[first..last]
            .iter()
            .position(|row| same(self.row(*row), entry))
        {
            Some(offset) => Ok(first + offset),
            // Rolling a removal back must restore the order, so look at the sequence.
            None => Err(first
                + self.rows[first..last]
                    .partition_point(|row| self.row(*row).sequence() < entry.sequence())),
        }
    }

    fn pattern(&self, entry: Record<'_>) -> Vec<u64> {
        let mut value = entry.value().to_vec();
        let mut mask = entry.second().to_vec();
        for range in &self.ranges {
            value[range.clone()].fill(0);
            mask[range.clone()].fill(0);
        }
        (0..self.words)
            .map(|i| word(&value, i))
            .chain((0..self.words).map(|i| word(&mask, i)))
            .collect()
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        let stride = self.words * 2;
        let pattern = self.pattern(entry);
        match self.position(entry) {
            Ok(index) => self.rows[index] = entry.slot(),
            Err(index) => {
                self.rows.insert(index, entry.slot());
                self.patterns
                    .splice(index * stride..index * stride, pattern);
            }
        }
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        if let Ok(index) = self.position(entry) {
            let stride = self.words * 2;
            self.rows.remove(index);
            self.patterns.drain(index * stride..(index + 1) * stride);
        }
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        let row = match self.words {
            1 => self.scan::<1>(key),
            2 => self.scan::<2>(key),
            3 => self.scan::<3>(key),
            4 => self.scan::<4>(key),
            _ => self.scan_wide(key),
        };
        row.map(|index| self.rows[index])
    }

    /// The first row that matches a key of `W` words.
    #[inline]
    fn scan<const W: usize>(&self, key: &[u8]) -> Option<usize> {
        let key_words: [u64; W] = std::array::from_fn(|index| word(key, index));
        self.patterns
            .chunks_exact(2 * W)
            .enumerate()
            .position(|(row, pattern)| {
                let differs = (0..W).fold(0, |differs, i| {
                    differs | key_words[i] & pattern[W + i] ^ pattern[i]
                });
                differs == 0 && self.ranges_match(row, key)
            })
    }

    fn scan_wide(&self, key: &[u8]) -> Option<usize> {
        let stride = self.words * 2;
        (0..self.rows.len()).find(|row| {
            let (value, mask) =
                self.patterns[row * stride..(row + 1) * stride].split_at(self.words);
            let mut words = value.iter().zip(mask).enumerate();
            words.all(|(index, (value, mask))| word(key, index) & mask == *value)
                && self.ranges_match(*row, key)
        })
    }

    #[inline]
    fn ranges_match(&self, row: usize, key: &[u8]) -> bool {
        self.ranges
            .iter()
            .all(|range| in_range(self.row(self.rows[row]), key, range))
    }
}

fn same(a: Record<'_>, b: Record<'_>) -> bool {
    a.stored() == b.stored() && a.prefix_len() == b.prefix_len()
}

fn in_range(entry: Record<'_>, key: &[u8], range: &Range<usize>) -> bool {
    let value = &key[range.clone()];
    entry.value()[range.clone()] <= *value && *value <= entry.second()[range.clone()]
}

/// The n-th word of a key, zero-padded at the end.
#[inline]
fn word(bytes: &[u8], index: usize) -> u64 {
    let rest = &bytes[index * 8..];
    match rest.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(padded)
        }
    }
}
