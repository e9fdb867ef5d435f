// SPDX-License-Identifier: Apache-2.0
//! What the first 16 bits lead to. Most of their values have no routes of their own: those with
//! the same answer share one line, which is never written to.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::build::{self, Full, Region, intervals};
use super::line::{Array, Slot};
use super::pool::Pool;
use super::update::release;

/// Bits of the index into the roots.
pub(super) const ROOT_BITS: u32 = 16;

/// An array of lines for each value of the first 16 bits.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    arrays: Vec<Array>,
    /// For each answer: the line that says so for all keys, and by how many roots it is used.
    shared: HashMap<Slot, (Array, u32)>,
}

impl Roots {
    /// Roots with the answers of these ranges, which begin with address 0.
    pub(super) fn new(pool: &mut Pool, ranges: &[(u128, Slot)]) -> Result<Self, Full> {
        let mut roots = Self {
            arrays: Vec::with_capacity(1 << ROOT_BITS),
            shared: HashMap::new(),
        };
        for root in 0..=u16::MAX {
            let array = roots.build(pool, ranges, root)?;
            roots.arrays.push(array);
        }
        Ok(roots)
    }

    /// The arrays, 2^16 of them.
    #[inline(always)]
    pub(super) fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The array of one root.
    #[inline(always)]
    pub(super) fn get(&self, root: u16) -> Array {
        self.arrays[usize::from(root)]
    }

    /// Whether a root's line is used by others.
    pub(super) fn is_shared(&self, pool: &Pool, root: u16) -> bool {
        let array = self.get(root);
        let slot = pool.line(array.base() as usize).slots[0];
        self.shared
            .get(&slot)
            .is_some_and(|(line, _)| *line == array)
    }

    /// Replaces some roots by new ones with the answers of these ranges, which begin where the
    /// first one begins.
    pub(super) fn replace(
        &mut self,
        pool: &mut Pool,
        roots: RangeInclusive<u16>,
        ranges: &[(u128, Slot)],
    ) -> Result<(), Full> {
        for root in roots {
            let new = self.build(pool, ranges, root)?;
            let shared = self.is_shared(pool, root);
            let old = std::mem::replace(&mut self.arrays[usize::from(root)], new);
            if shared {
                self.leave(pool, old);
            } else {
                release(pool, old, Region::ALL.width);
            }
        }
        Ok(())
    }

    fn build(
        &mut self,
        pool: &mut Pool,
        ranges: &[(u128, Slot)],
        root: u16,
    ) -> Result<Array, Full> {
        let begin = u128::from(root) << (128 - ROOT_BITS);
        let last = begin | u128::MAX >> ROOT_BITS;
        let from = ranges.partition_point(|&(start, _)| start <= begin) - 1;
        let to = ranges.partition_point(|&(start, _)| start <= last);
        if let [(_, slot)] = ranges[from..to] {
            return self.share(pool, slot);
        }
        let mut own = ranges[from..to].to_vec();
        own[0].0 = begin;
        let intervals = intervals(pool, &own, 0, Region::ALL)?;
        build::build(pool, &intervals, Region::ALL)
    }

    fn share(&mut self, pool: &mut Pool, slot: Slot) -> Result<Array, Full> {
        if let Some((array, users)) = self.shared.get_mut(&slot) {
            *users += 1;
            return Ok(*array);
        }
        let array = build::build(pool, &[(0, slot)], Region::ALL)?;
        self.shared.insert(slot, (array, 1));
        Ok(array)
    }

    fn leave(&mut self, pool: &mut Pool, array: Array) {
        let slot = pool.line(array.base() as usize).slots[0];
        if let Some((_, users)) = self.shared.get_mut(&slot) {
            *users -= 1;
            if *users == 0 {
                self.shared.remove(&slot);
                release(pool, array, Region::ALL.width);
            }
        }
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.arrays.capacity() * size_of::<Array>()
            + self.shared.capacity() * size_of::<(Slot, (Array, u32))>()
    }
}
