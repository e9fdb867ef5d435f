// SPDX-License-Identifier: Apache-2.0
//! What the first 16 bits lead to, with shortcuts for dense /32s. Most values of the first 16 bits
//! have no routes of their own: those with the same answer share one line, which is never written
//! to. What the lines of a /16 say about a /32 that has a shortcut does not matter.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::build::{self, Full, Region, intervals};
use super::dense::Dense;
use super::line::{Array, Form, Slot};
use super::pool::Pool;
use super::update::release;
use crate::Prefix;

/// Bits of the index into the roots.
pub(super) const ROOT_BITS: u32 = 16;
/// Bits of an address that have a shortcut if they are dense.
pub(super) const DENSE_BITS: u32 = 32;
/// Ranges from which on a /32 is dense.
const DENSE_RANGES: usize = 8;

/// The keys of a /32.
pub(super) fn dense_region(top: u32) -> Region {
    Region {
        first: top << ROOT_BITS,
        width: 48 - DENSE_BITS,
    }
}

/// An array of lines for each value of the first 16 bits.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    arrays: Vec<Array>,
    /// For each answer: the line that says so for all keys, and by how many roots it is used.
    shared: HashMap<Slot, (Array, u32)>,
    dense: Dense,
}

/// What a value of the first 16 bits leads to: its lines, and those of its dense /32s.
struct Root {
    array: Array,
    dense: Vec<(u32, Array)>,
}

impl Roots {
    /// Roots with the answers of these ranges, which begin with address 0.
    pub(super) fn new(pool: &mut Pool, ranges: &[(u128, Slot)]) -> Result<Self, Full> {
        let mut roots = Self {
            arrays: Vec::with_capacity(1 << ROOT_BITS),
            shared: HashMap::new(),
            dense: Dense::new(),
        };
        for root in 0..=u16::MAX {
            let Root { array, dense } = roots.build(pool, ranges, root)?;
            roots.arrays.push(array);
            roots.set_dense(dense);
        }
        Ok(roots)
    }

    /// Where to begin with an address, given its upper half.
    #[inline(always)]
    pub(super) fn find(&self, high: u64) -> Array {
        // SAFETY: there are 2^16 arrays.
        let array = unsafe { *self.arrays.get_unchecked((high >> 48) as usize) };
        self.dense.find((high >> 32) as u32, array)
    }

    /// The 2^16 arrays, and the places of the shortcuts.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn raw(&self) -> (*const Array, *const u64) {
        (self.arrays.as_ptr(), self.dense.raw())
    }

    /// The shortcuts.
    pub(super) fn dense(&self) -> &Dense {
        &self.dense
    }

    /// Replaces the lines of a dense /32.
    pub(super) fn replace_dense(
        &mut self,
        pool: &mut Pool,
        top: u32,
        ranges: &[(u128, Slot)],
    ) -> Result<(), Full> {
        let new = build_dense(pool, top, ranges)?;
        if let Some(old) = self.dense.get(top) {
            release(pool, old, dense_region(top));
        }
        self.dense.set(top, new);
        Ok(())
    }

    fn set_dense(&mut self, dense: Vec<(u32, Array)>) {
        for (top, array) in dense {
            self.dense.set(top, array);
        }
    }

    /// The array of one root.
    #[inline(always)]
    pub(super) fn get(&self, root: u16) -> Array {
        self.arrays[usize::from(root)]
    }

    /// Whether a root's line is used by others.
    pub(super) fn is_shared(&self, pool: &Pool, root: u16) -> bool {
        let array = self.get(root);
        let slot = shared_slot(pool, array);
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
        let (first, last) = (u32::from(*roots.start()), u32::from(*roots.end()));
        let mut old_dense = self.dense.within(first << 16..=last << 16 | 0xffff);
        old_dense.sort_unstable();
        for root in roots {
            let new = self.build(pool, ranges, root)?;
            let shared = self.is_shared(pool, root);
            let old = std::mem::replace(&mut self.arrays[usize::from(root)], new.array);
            if shared {
                self.leave(pool, old);
            } else {
                release(pool, old, Region::ALL);
            }
            let own = old_dense.chunk_by(|one, other| one >> 16 == other >> 16);
            for &top in own
                .filter(|tops| tops[0] >> 16 == u32::from(root))
                .flatten()
            {
                if let Some(array) = self.dense.get(top) {
                    self.dense.remove(top);
                    release(pool, array, dense_region(top));
                }
            }
            self.set_dense(new.dense);
        }
        Ok(())
    }

    /// A root given ranges around it. What it is to replace stays as it is.
    fn build(&mut self, pool: &mut Pool, ranges: &[(u128, Slot)], root: u16) -> Result<Root, Full> {
        let prefix = Prefix::new(u128::from(root) << (128 - ROOT_BITS), ROOT_BITS);
        let from = ranges.partition_point(|&(start, _)| start <= prefix.address()) - 1;
        let to = ranges.partition_point(|&(start, _)| start <= prefix.last());
        if let [(_, slot)] = ranges[from..to] {
            let (array, dense) = (self.share(pool, slot)?, Vec::new());
            return Ok(Root { array, dense });
        }
        let mut own = ranges[from..to].to_vec();
        own[0].0 = prefix.address();
        let dense = self.choose_dense(pool, &own, root)?;
        let is_dense = |top| dense.iter().any(|&(other, _)| other == top);
        let sparse = without(&own, prefix, is_dense);
        let array = if let [(_, slot)] = sparse[..] {
            self.share(pool, slot)?
        } else {
            let intervals = intervals(pool, &sparse, 0, Region::ALL)?;
            build::build(pool, &intervals, Region::ALL, Form::Wide)?
        };
        Ok(Root { array, dense })
    }

    /// Lines for the dense /32s of a root, as far as there is room for their shortcuts.
    fn choose_dense(
        &self,
        pool: &mut Pool,
        own: &[(u128, Slot)],
        root: u16,
    ) -> Result<Vec<(u32, Array)>, Full> {
        let mut dense: Vec<(u32, Array)> = Vec::new();
        let mut next = 0;
        for inside in own.chunk_by(|(one, _), (other, _)| one >> 96 == other >> 96) {
            let first = next;
            next += inside.len();
            let top = (inside[0].0 >> 96) as u32;
            let others = dense.iter().any(|&(other, _)| Dense::meet(other, top));
            if inside.len() < DENSE_RANGES || others || !self.dense.has_room(top, root) {
                continue;
            }
            let array = build_dense(pool, top, &own[first.saturating_sub(1)..next])?;
            dense.push((top, array));
        }
        Ok(dense)
    }

    fn share(&mut self, pool: &mut Pool, slot: Slot) -> Result<Array, Full> {
        if let Some((array, users)) = self.shared.get_mut(&slot) {
            *users += 1;
            return Ok(*array);
        }
        let array = build::build(pool, &[(0, slot)], Region::ALL, Form::Wide)?;
        self.shared.insert(slot, (array, 1));
        Ok(array)
    }

    fn leave(&mut self, pool: &mut Pool, array: Array) {
        let slot = shared_slot(pool, array);
        if let Some((_, users)) = self.shared.get_mut(&slot) {
            *users -= 1;
            if *users == 0 {
                self.shared.remove(&slot);
                release(pool, array, Region::ALL);
            }
        }
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.dense.memory_bytes()
            + self.arrays.capacity() * size_of::<Array>()
            + self.shared.capacity() * size_of::<(Slot, (Array, u32))>()
    }
}

/// The answer of an array, if it is a shared one.
fn shared_slot(pool: &Pool, array: Array) -> Slot {
    pool.lines()[array.line(0)].wide().slots[0]
}

/// Lines for a /32, given the ranges in it and perhaps around it.
fn build_dense(pool: &mut Pool, top: u32, ranges: &[(u128, Slot)]) -> Result<Array, Full> {
    let prefix = Prefix::new(u128::from(top) << 96, DENSE_BITS);
    let from = ranges.partition_point(|&(start, _)| start <= prefix.address()) - 1;
    let to = ranges.partition_point(|&(start, _)| start <= prefix.last());
    let mut own = ranges[from..to].to_vec();
    own[0].0 = prefix.address();
    let region = dense_region(top);
    let intervals = intervals(pool, &own, 0, region)?;
    // Each interval may be an escape, and lead to a child of its own.
    let form = if pool.suits(Form::Narrow, &intervals, intervals.len()) {
        Form::Narrow
    } else {
        Form::Wide
    };
    build::build(pool, &intervals, region, form)
}

/// The ranges of a prefix without those inside some dense /32s, which take what is before them.
pub(super) fn without(
    ranges: &[(u128, Slot)],
    prefix: Prefix<u128>,
    is_dense: impl Fn(u32) -> bool,
) -> Vec<(u128, Slot)> {
    let mut rest: Vec<(u128, Slot)> = Vec::with_capacity(ranges.len());
    let mut push = |start: u128, slot: Slot| {
        rest.pop_if(|&mut (last, _)| last == start);
        if rest.last().is_none_or(|&(_, last)| last != slot) {
            rest.push((start, slot));
        }
    };
    for inside in ranges.chunk_by(|(one, _), (other, _)| one >> 96 == other >> 96) {
        let top = (inside[0].0 >> 96) as u32;
        if !is_dense(top) {
            inside.iter().for_each(|&(start, slot)| push(start, slot));
            continue;
        }
        if inside[0].0 == prefix.address() {
            push(inside[0].0, inside[0].1);
        }
        let after = top.checked_add(1).map(|next| u128::from(next) << 96);
        if let Some(after) = after.filter(|&after| after <= prefix.last()) {
            push(after, inside[inside.len() - 1].1);
        }
    }
    rest
}
