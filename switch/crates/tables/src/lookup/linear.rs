// SPDX-License-Identifier: Apache-2.0
//! Match by priority for keys that are longer than the classifier supports, by a linear search over ordered rows.
//! Tables of real programs do not have such long keys. A program with such a table is slow but correct.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use crate::slab::{Record, Slab};

#[derive(Debug)]
pub(crate) struct LinearSearch {
    ranges: Vec<Range<usize>>,
    slab: Arc<Slab>,
    /// Slots of the entries, in order of priority and insertion.
    rows: Vec<u32>,
}

impl LinearSearch {
    pub(super) fn new(ranges: Vec<Range<usize>>, slab: &Arc<Slab>) -> Self {
        Self {
            ranges,
            slab: Arc::clone(slab),
            rows: Vec::new(),
        }
    }

    fn row(&self, slot: u32) -> Record<'_> {
        self.slab.record(slot)
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        self.remove(entry);
        let order = |row: Record<'_>| (Reverse(row.rank()), row.sequence());
        let before = |slot: &u32| order(self.row(*slot)) < order(entry);
        let position = self.rows.partition_point(before);
        self.rows.insert(position, entry.slot());
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        let same = |slot: &u32| {
            let row = self.row(*slot);
            row.rank() == entry.rank() && row.stored() == entry.stored()
        };
        if let Some(index) = self.rows.iter().position(same) {
            self.rows.remove(index);
        }
    }

    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        let matches = |slot: &u32| self.matches(self.row(*slot), key);
        self.rows.iter().copied().find(matches)
    }

    fn matches(&self, row: Record<'_>, key: &[u8]) -> bool {
        let (value, bounds) = (row.value(), row.second());
        let in_range = |at: usize| self.ranges.iter().any(|range| range.contains(&at));
        let masked =
            |(at, byte): (usize, &u8)| (byte ^ value[at]) & bounds[at] == 0 || in_range(at);
        key.iter().enumerate().all(masked)
            && self.ranges.iter().cloned().all(|range| {
                let number = &key[range.clone()];
                value[range.clone()] <= *number && *number <= bounds[range]
            })
    }
}
