// SPDX-License-Identifier: Apache-2.0
//! Match by priority for keys that are longer than the classifier supports, by a linear search over the entries in
//! order of priority. Tables of real programs do not have such long keys. A program with such a table is slow but
//! correct.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use crate::slab::{Record, Slab};

#[derive(Debug)]
pub(crate) struct LinearSearch {
    ranges: Vec<Range<usize>>,
    slab: Arc<Slab>,
    /// Slots of the entries, in order of priority and insertion.
    slots: Vec<u32>,
}

impl LinearSearch {
    pub(super) fn new(ranges: Vec<Range<usize>>, slab: &Arc<Slab>) -> Self {
        Self {
            ranges,
            slab: Arc::clone(slab),
            slots: Vec::new(),
        }
    }

    fn record(&self, slot: u32) -> Record<'_> {
        self.slab.record(slot)
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        self.remove(entry);
        let order = |record: Record<'_>| (Reverse(record.rank()), record.sequence());
        let before = |slot: &u32| order(self.record(*slot)) < order(entry);
        let position = self.slots.partition_point(before);
        self.slots.insert(position, entry.slot());
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        let same = |slot: &u32| {
            let record = self.record(*slot);
            record.rank() == entry.rank() && record.stored() == entry.stored()
        };
        if let Some(index) = self.slots.iter().position(same) {
            self.slots.remove(index);
        }
    }

    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        let matches = |slot: &u32| self.matches(self.record(*slot), key);
        self.slots.iter().copied().find(matches)
    }

    fn matches(&self, record: Record<'_>, key: &[u8]) -> bool {
        let (value, bounds) = (record.value(), record.second());
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
