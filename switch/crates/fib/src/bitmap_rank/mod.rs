// SPDX-License-Identifier: Apache-2.0
//! IPv4 lookups by counting bits. The first sixteen bits of the address are the index into an array of *chunks*. In a
//! chunk, the next eight bits select a *run*: consecutive values of these bits that have equal answers. The index of
//! the run is the number of run starts at or before these bits.
//!
//! DXR, too, stores ranges instead of prefixes (Zec, Rizzo, Mikuc: "DXR: towards a billion routing lookups per second
//! in software", SIGCOMM CCR 2012). DXR searches the ranges by bisection. Here bits are counted instead. So in any
//! table, a lookup is three dependent loads without a branch. If a /24 contains longer prefixes, it has a second-level
//! chunk. Blocks with one answer share a chunk.
//!
//! There are two widths of items. [`BitmapRank16`] is smaller, and holds values up to 32,766. [`BitmapRank32`] holds
//! values up to 2³¹ − 2. The array takes 256 KiB. In addition, each /16 with more than one answer takes 36 bytes and
//! one item per run, rounded up to a multiple of eight bytes.

#![expect(
    private_bounds,
    reason = "BitmapRank16 and BitmapRank32 are all there are"
)]

mod algorithm;
mod chunks;
mod kernel;
mod runs;

use std::collections::HashMap;

use crate::address::Prefix;
use crate::algorithm::BuildError;
use crate::lookup_item::LookupItem;
use crate::rib::Rib;
use chunks::Chunks;
use runs::{POSITIONS as CELLS, Runs};

/// [`BitmapRank`](self) for values up to 32,766.
pub type BitmapRank16 = BitmapRank<u16>;

/// [`BitmapRank`](self) for values up to 2³¹ − 2.
pub type BitmapRank32 = BitmapRank<u32>;

/// Number of address bits after the index of a first-level chunk.
const FIRST: u32 = 16;

/// Prefetch distance, in chunks, when chunks are moved.
const AHEAD: usize = 16;

/// Number of first-level chunks, one for each /16.
const BLOCKS: usize = 1 << FIRST;

/// Lookup structure for IPv4; see the module.
#[derive(Clone, Debug)]
pub struct BitmapRank<I: LookupItem> {
    /// For each /16, the offset of its chunk.
    direct: Vec<u32>,
    second: Second,
    chunks: Chunks<I>,
    /// Shared chunks of one run, by the item of the run. Each chunk has its offset and the number of /16s that use it.
    shared: HashMap<I, (u32, u32)>,
    scratch: Scratch<I>,
    /// Whether the processor has the extensions that the faster lookups need.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    wide: bool,
}

/// The second-level chunks.
#[derive(Clone, Debug, Default)]
struct Second {
    /// For each reference in a first-level chunk, the offset of the second-level chunk.
    offsets: Vec<u32>,
    free: Vec<u32>,
}

impl Second {
    fn add(&mut self, offset: u32) -> u32 {
        if let Some(index) = self.free.pop() {
            self.offsets[index as usize] = offset;
            return index;
        }
        self.offsets.push(offset);
        self.offsets.len() as u32 - 1
    }
}

/// Scratch memory of an update, kept to avoid allocations.
#[derive(Clone, Debug)]
struct Scratch<I> {
    old: Runs<I>,
    new: Runs<I>,
    /// Ranges of addresses in a /16, each with its first address and its answer.
    ranges: Vec<(u32, I)>,
    /// Ranges of /24s in a /16, each with its first /24 and an answer or a reference.
    cells: Vec<(usize, I)>,
}

impl<I> Default for Scratch<I> {
    fn default() -> Self {
        Self {
            old: Runs::default(),
            new: Runs::default(),
            ranges: Vec::new(),
            cells: Vec::new(),
        }
    }
}

/// A part of a /16: all of it, or the /24s of one longer prefix.
#[derive(Clone, Copy)]
struct Part {
    block: usize,
    from: usize,
    to: usize,
}

impl<I: LookupItem> BitmapRank<I> {
    fn without_routes() -> Self {
        let nothing = I::answer(None);
        let mut chunks = Chunks::new();
        let at = chunks.store(&Runs::of(nothing));
        Self {
            direct: vec![at; BLOCKS],
            second: Second::default(),
            chunks,
            shared: HashMap::from([(nothing, (at, BLOCKS as u32))]),
            scratch: Scratch::default(),
            wide: detect(),
        }
    }

    /// Updates everything under a prefix from the RIB. The prefix has at most 24 bits.
    fn fill(&mut self, prefix: Prefix<u32>, rib: &Rib<u32>) -> Result<(), BuildError> {
        let first = (prefix.address() >> FIRST) as usize;
        let last = (prefix.last() >> FIRST) as usize;
        let part = |block: usize| Part {
            block,
            from: if first == last {
                cell(prefix.address())
            } else {
                0
            },
            to: if first == last {
                cell(prefix.last()) + 1
            } else {
                CELLS
            },
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.ranges.clear();
        let mut block = first;
        let mut outcome = Ok(());
        rib.for_each_range(prefix, &mut |address, value| {
            let next = (address >> FIRST) as usize;
            while block < next && outcome.is_ok() {
                outcome = self.put(part(block), &mut scratch);
                block += 1;
            }
            if value.is_some_and(|value| value > I::LIMIT) && outcome.is_ok() {
                let (value, limit) = (value.unwrap_or_default(), I::LIMIT);
                outcome = Err(BuildError::ValueTooLarge { value, limit });
            }
            // The last range may have been carried over from the previous block. If it begins at the same address as
            // this range, this range replaces it.
            let start = address & 0xffff;
            if scratch.ranges.last().is_some_and(|range| range.0 == start) {
                scratch.ranges.pop();
            }
            scratch.ranges.push((start, I::answer(value)));
        });
        while block <= last && outcome.is_ok() {
            outcome = self.put(part(block), &mut scratch);
            block += 1;
        }
        self.scratch = scratch;
        outcome
    }

    /// Assigns one answer to all addresses of a prefix of 16 to 24 bits.
    fn assign(&mut self, prefix: Prefix<u32>, item: I) -> Result<(), BuildError> {
        let part = Part {
            block: (prefix.address() >> FIRST) as usize,
            from: cell(prefix.address()),
            to: cell(prefix.last()) + 1,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.ranges.clear();
        scratch.ranges.push((prefix.address() & 0xffff, item));
        let outcome = self.put(part, &mut scratch);
        self.scratch = scratch;
        outcome
    }

    /// Compacts the chunks if too many units are free.
    fn tidy(&mut self) {
        if !self.chunks.is_full_of_holes() {
            return;
        }
        let mut chunks = self.chunks.emptied();
        // A chunk that several /16s share is moved only once.
        let mut moved = HashMap::new();
        for (at, _) in self.shared.values_mut() {
            let to = chunks.store_copy(&self.chunks, *at);
            moved.insert(*at, to);
            *at = to;
        }
        for block in 0..BLOCKS {
            if let Some(later) = self.direct.get(block + AHEAD) {
                self.chunks.prefetch(*later);
            }
            let at = &mut self.direct[block];
            *at = match moved.get(at) {
                Some(to) => *to,
                None => chunks.store_copy(&self.chunks, *at),
            };
        }
        let mut is_free = vec![false; self.second.offsets.len()];
        for index in &self.second.free {
            is_free[*index as usize] = true;
        }
        for (at, is_free) in self.second.offsets.iter_mut().zip(is_free) {
            if !is_free {
                *at = chunks.store_copy(&self.chunks, *at);
            }
        }
        self.chunks = chunks;
    }

    /// Writes `scratch.ranges` to a part of a /16. Afterwards `scratch.ranges` holds only the last range, because this
    /// range may continue in the next /16.
    fn put(&mut self, part: Part, scratch: &mut Scratch<I>) -> Result<(), BuildError> {
        let at = self.direct[part.block];
        let Some((_, last)) = scratch.ranges.last().copied() else {
            return Ok(());
        };
        let whole = part.to - part.from == CELLS;
        let shared = self.chunks.only_item(at);
        let one = scratch.ranges.len() == 1 && scratch.ranges[0].0 == (part.from as u32) << 8;
        let done = if whole {
            one && shared == Some(last)
        } else {
            one && shared.is_none() && self.chunks.set_run(at, part.from, part.to, last)
        };
        if !done {
            self.cells(part.to, scratch)?;
            self.chunks.load(at, &mut scratch.old);
            let Scratch { old, new, .. } = scratch;
            old.replace(part.from, part.to, &scratch.cells, new);
            for item in old.items_between(part.from, part.to) {
                if let Some(index) = item.reference_index() {
                    self.chunks.release(self.second.offsets[index as usize]);
                    self.second.free.push(index);
                }
            }
            self.direct[part.block] = self.exchange(at, shared, new);
        }
        scratch.ranges.clear();
        scratch.ranges.push((0, last));
        Ok(())
    }

    /// Converts the ranges that begin before `to` to cells. A /24 with more than one answer gets a second-level chunk.
    fn cells(&mut self, to: usize, scratch: &mut Scratch<I>) -> Result<(), BuildError> {
        let Scratch {
            new, ranges, cells, ..
        } = scratch;
        cells.clear();
        let mut put = |position, item| {
            if cells.last().is_some_and(|(last, _)| *last == position) {
                cells.pop();
            }
            if position < to {
                cells.push((position, item));
            }
        };
        let mut before = None;
        for inside in ranges.chunk_by(|one, other| cell(one.0) == cell(other.0)) {
            let [(first, item), .., (_, last)] = [inside[0], inside[inside.len() - 1]];
            if inside.len() == 1 && first & 0xff == 0 {
                put(cell(first), item);
            } else {
                new.clear();
                if let Some(before) = before
                    && first & 0xff != 0
                {
                    new.push(0, before);
                }
                for (first, item) in inside {
                    new.push((first & 0xff) as usize, *item);
                }
                let index = self.second.add(self.chunks.store(new));
                if index > I::LIMIT {
                    return Err(BuildError::TooManyRoutes);
                }
                put(cell(first), I::reference(index));
                put(cell(first) + 1, last);
            }
            before = Some(last);
        }
        Ok(())
    }

    /// Replaces the chunk of a /16 by new runs. Returns the new offset.
    fn exchange(&mut self, at: u32, shared: Option<I>, runs: &Runs<I>) -> u32 {
        let Some(item) = shared else {
            if let [only] = runs.items[..] {
                self.chunks.release(at);
                return self.share(only);
            }
            return self.chunks.store_again(at, runs);
        };
        if runs.items[..] == [item] {
            return at;
        }
        if let Some((_, count)) = self.shared.get_mut(&item) {
            *count -= 1;
            if *count == 0 {
                self.shared.remove(&item);
                self.chunks.release(at);
            }
        }
        match runs.items[..] {
            [only] => self.share(only),
            _ => self.chunks.store(runs),
        }
    }

    /// Returns the offset of the shared chunk of one run, and increments the number of its users.
    fn share(&mut self, item: I) -> u32 {
        let chunks = &mut self.chunks;
        let entry = self.shared.entry(item);
        let (at, count) = entry.or_insert_with(|| (chunks.store(&Runs::of(item)), 0));
        *count += 1;
        *at
    }
}

/// Returns whether the processor has the extensions that the faster lookups need.
fn detect() -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
    {
        return true;
    }
    false
}

/// Returns the index of an address' /24 in its /16.
fn cell(address: u32) -> usize {
    (address >> 8 & 0xff) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, NONE};

    #[test]
    fn chunks_are_moved_together_where_there_are_many_holes() {
        let mut rib = Rib::new();
        let prefix = |index: u32| {
            let (block, cell, rest) = (index / 250, index % 250, index % 250 % 7);
            let length = if rest == 3 { 26 } else { 24 };
            Prefix::new(10 << 24 | block << 16 | cell << 8 | rest << 5, length)
        };
        let routes = 60_000;
        for index in 0..routes {
            rib.insert(prefix(index), index % 11);
        }
        rib.insert(Prefix::new(192 << 24, 8), 5);
        let mut rank = BitmapRank16::build(&rib).expect("the values are small");
        let agrees = |rank: &BitmapRank16, rib: &Rib<u32>| {
            for index in 0..2 * routes {
                let address = prefix(index).address() | 0x33;
                let expected = rib.lookup(address).map_or(NONE, |(_, value)| value);
                assert_eq!(rank.lookup(address), expected, "{address:x}");
            }
            assert_eq!((rank.lookup(192 << 24), rank.lookup(9 << 24)), (5, NONE));
        };
        let mut moved = 0;
        for step in 0..3 * routes {
            // Removes some routes, adds them again and removes them again.
            let index = step.wrapping_mul(7919) % routes;
            let change = match rib.take(prefix(index)) {
                Some((_, change)) => change,
                None => rib.put(prefix(index), step % 13, 0).1,
            };
            let before = rank.chunks.memory_bytes();
            rank.follow(change, &rib).expect("the values are small");
            if rank.chunks.memory_bytes() < before * 9 / 10 {
                moved += 1;
                agrees(&rank, &rib);
            }
        }
        assert!(moved > 1, "{moved}");
        agrees(&rank, &rib);
        let fresh = BitmapRank16::build(&rib).expect("the values are small");
        assert!(rank.chunks.memory_bytes() < fresh.chunks.memory_bytes() * 3 / 2 + (1 << 17));
    }
}
