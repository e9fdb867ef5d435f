// SPDX-License-Identifier: Apache-2.0
//! Storage of chunks, and lookups in them.
//!
//! A chunk answers for 256 positions (the next eight bits of an address). It is aligned to eight bytes:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 31 | four words with a bit for each position that starts a run; never position 0 |
//! | 32 to 35 | for each word, the number of bits in the words before it |
//! | 36 on | an item for each run, one more than there are bits |
//!
//! So the run of a position is found by counting bits, without a comparison or branch. Memory is allocated in units of
//! eight bytes, with a free list for each size. A chunk's first three words are always in one cache line. To keep the
//! counts in the same line would cost a twentieth more memory, for little: where the counts are in the next line, the
//! items are there as well.

use sluice_pages::Items;

use super::runs::{POSITIONS, Runs};
use crate::item::Item;
use crate::lines::Lines;

/// Bytes in a unit.
const UNIT: usize = 8;

/// Offsets of the counts and the items.
const COUNTS: usize = 32;
const ITEMS: usize = 36;

/// Most units of a chunk: 256 items of four bytes.
const LARGEST: usize = (ITEMS + 256 * 4).div_ceil(UNIT);

/// Fewest units of a chunk: one or two items.
const SMALLEST: usize = (ITEMS + 1).div_ceil(UNIT);

/// Units in a cache line, and the words that must be in one line.
const LINE: usize = 64 / UNIT;
const WORDS: usize = 3;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; LINE]);

/// Storage of chunks; see the module.
#[derive(Clone, Debug)]
pub(super) struct Chunks<I> {
    /// Invariant: every chunk that `store` returned and that has not been released is inside, in the layout above.
    lines: Items<Line>,
    /// Units that have been allocated at any time, including free ones.
    used: usize,
    free: Vec<Vec<u32>>,
    free_units: usize,
    item: std::marker::PhantomData<I>,
}

/// Returns the units of a chunk of `runs` runs.
fn units_of<I: Item>(runs: usize) -> usize {
    (ITEMS + runs * I::SIZE).div_ceil(UNIT)
}

impl<I: Item> Chunks<I> {
    pub(super) fn new() -> Self {
        Self {
            lines: Items::new(),
            used: 0,
            free: vec![Vec::new(); LARGEST + 1],
            free_units: 0,
            item: std::marker::PhantomData,
        }
    }

    fn units(&self) -> &[u64] {
        let (start, len) = (self.lines.as_ptr(), self.lines.len() * LINE);
        // SAFETY: a line consists of its units only.
        unsafe { std::slice::from_raw_parts(start.cast(), len) }
    }

    fn units_mut(&mut self) -> &mut [u64] {
        let (start, len) = (self.lines.as_mut_ptr(), self.lines.len() * LINE);
        // SAFETY: as above, and the lines are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
    }

    fn allocate(&mut self, units: usize) -> u32 {
        let exact = std::iter::once(units).filter(|size| !self.free[*size].is_empty());
        let size = exact.chain(self.larger(units)).next();
        if let Some(at) = size.and_then(|size| self.take(size, units)) {
            return at;
        }
        // The first words must not cross the end of a line.
        let mut at = self.used;
        let in_line = at % LINE;
        if in_line + WORDS > LINE {
            at += LINE - in_line;
        }
        self.used = at + units;
        let lines = self.used.div_ceil(LINE);
        if lines > self.lines.capacity() {
            // Doubling would waste as much memory as the structure saves.
            self.lines.reserve(lines + lines / 16);
        }
        self.lines.resize(lines, Line([0; LINE]));
        u32::try_from(at)
            .expect("65,536 chunks and as many as a reference counts are below 2^32 units")
    }

    /// Returns sizes of free ranges that can be split. The remainder must be large enough for a chunk, and a chunk's
    /// first words must not cross the end of a line there.
    fn larger(&self, units: usize) -> impl Iterator<Item = usize> {
        (units + SMALLEST..=LARGEST).filter(move |size| {
            let last = self.free[*size].last();
            last.is_some_and(|at| (*at as usize + units) % LINE + WORDS <= LINE)
        })
    }

    /// Allocates units from a free range of a size. The remainder stays free.
    fn take(&mut self, size: usize, units: usize) -> Option<u32> {
        let at = self.free[size].pop()?;
        if size > units {
            self.free[size - units].push(at + units as u32);
        }
        self.free_units -= units;
        Some(at)
    }

    fn free_place(&mut self, at: u32, units: usize) {
        self.free[units].push(at);
        self.free_units += units;
    }

    /// Stores runs. Returns the chunk's offset, which stays valid until it is released.
    pub(super) fn store(&mut self, runs: &Runs<I>) -> u32 {
        let at = self.allocate(units_of::<I>(runs.items.len()));
        self.write(at, runs);
        at
    }

    /// Replaces a chunk's runs. Returns the chunk's offset, a new one if the runs do not fit the old range.
    pub(super) fn store_again(&mut self, old: u32, runs: &Runs<I>) -> u32 {
        let had = units_of::<I>(self.run_count(old));
        if had == units_of::<I>(runs.items.len()) {
            self.write(old, runs);
            return old;
        }
        self.free_place(old, had);
        self.store(runs)
    }

    pub(super) fn release(&mut self, at: u32) {
        self.free_place(at, units_of::<I>(self.run_count(at)));
    }

    fn write(&mut self, at: u32, runs: &Runs<I>) {
        let units = &mut self.units_mut()[at as usize..][..ITEMS.div_ceil(UNIT)];
        units[..4].copy_from_slice(&runs.starts);
        let mut counts = [0; 8];
        let mut before = 0;
        for (count, starts) in counts.iter_mut().zip(&runs.starts) {
            *count = before as u8;
            before += starts.count_ones();
        }
        // The other half of this unit belongs to the items.
        units[4] = u64::from_ne_bytes(counts);
        self.items_mut(at, runs.items.len())
            .copy_from_slice(&runs.items);
    }

    /// Returns the offset of a chunk's first item, in bytes. Checks that `count` items are inside the lines.
    fn first_item(&self, at: u32, count: usize) -> usize {
        let first = at as usize * UNIT + ITEMS;
        assert!(first + count * I::SIZE <= self.lines.len() * size_of::<Line>());
        first
    }

    /// Returns the `count` items of a chunk.
    fn items(&self, at: u32, count: usize) -> &[I] {
        let first = self.first_item(at, count);
        // SAFETY: they lie inside the lines, are aligned to their size from byte 36 on, and any bits are a valid item.
        unsafe { std::slice::from_raw_parts(self.base().add(first).cast(), count) }
    }

    fn items_mut(&mut self, at: u32, count: usize) -> &mut [I] {
        let first = self.first_item(at, count);
        // SAFETY: as above, and the lines are borrowed mutably.
        unsafe {
            let base = self.lines.as_mut_ptr().cast::<u8>();
            std::slice::from_raw_parts_mut(base.add(first).cast(), count)
        }
    }

    fn run_count(&self, at: u32) -> usize {
        let words = &self.units()[at as usize..at as usize + 4];
        1 + words.iter().map(|word| word.count_ones()).sum::<u32>() as usize
    }

    /// Reads a chunk's runs.
    pub(super) fn load(&self, at: u32, runs: &mut Runs<I>) {
        let at = at as usize;
        runs.starts.copy_from_slice(&self.units()[at..at + 4]);
        runs.items.clear();
        let count = self.run_count(at as u32);
        runs.items.extend_from_slice(self.items(at as u32, count));
    }

    /// Replaces the answer of positions `from..to`, if they are exactly one run and stay one, and hold an answer.
    /// Returns whether this was done.
    pub(super) fn set_run(&mut self, at: u32, from: usize, to: usize, item: I) -> bool {
        let starts: [u64; 4] = std::array::from_fn(|word| self.units()[at as usize + word]);
        let begins = |position: usize| starts[position / 64] >> (position % 64) & 1 == 1;
        let before = |end: usize| -> u32 {
            let word = |word: usize| match end.saturating_sub(word * 64) {
                0 => 0,
                count if count >= 64 => starts[word].count_ones(),
                count => (starts[word] << (64 - count)).count_ones(),
            };
            (0..4).map(word).sum()
        };
        let run = before(from + 1) as usize;
        let alone = before(to) as usize == run;
        if !alone || from > 0 && !begins(from) || to < POSITIONS && !begins(to) {
            return false;
        }
        let count = self.run_count(at);
        let items = self.items_mut(at, count);
        let beside = [run.wrapping_sub(1), run + 1].map(|run| items.get(run).copied());
        if items[run].part().is_some() || beside.contains(&Some(item)) {
            return false;
        }
        items[run] = item;
        true
    }

    /// Returns the item of a chunk that has only one run.
    pub(super) fn only_item(&self, at: u32) -> Option<I> {
        (self.run_count(at) == 1).then(|| self.items(at, 1)[0])
    }

    /// Returns an empty store with capacity for the chunks in use here.
    pub(super) fn emptied(&self) -> Self {
        let mut empty = Self::new();
        empty
            .lines
            .reserve((self.used - self.free_units).div_ceil(LINE));
        empty
    }

    /// Prefetches a chunk: all lines of a small one, else the first ones.
    pub(super) fn ask(&self, at: u32) {
        let first = self.base().wrapping_add(at as usize * UNIT);
        Lines::from(first, 3).fetch();
    }

    /// Copies a chunk from another store. Returns the copy's offset.
    pub(super) fn store_copy(&mut self, other: &Self, at: u32) -> u32 {
        let units = units_of::<I>(other.run_count(at));
        let to = self.allocate(units);
        let (from, offset) = (at as usize, to as usize);
        self.units_mut()[offset..offset + units]
            .copy_from_slice(&other.units()[from..from + units]);
        to
    }

    /// Returns the bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let lists: usize = self.free.iter().map(|list| list.capacity() * 4).sum();
        self.lines.memory_bytes() + lists + self.free.capacity() * size_of::<Vec<u32>>()
    }

    /// Returns whether more than a quarter of a large store is free.
    pub(super) fn is_full_of_holes(&self) -> bool {
        self.free_units * UNIT > self.lines.memory_bytes() / 4 + (1 << 16)
    }

    pub(super) fn shrink(&mut self) {
        self.lines.shrink();
    }

    /// Returns the first byte, for [`chunk`].
    #[inline(always)]
    pub(super) fn base(&self) -> *const u8 {
        self.lines.as_ptr().cast()
    }
}

/// Returns the address of a chunk.
///
/// # Safety
/// `base` must come from [`Chunks::base`], and the chunk must be allocated.
#[inline(always)]
pub(super) unsafe fn chunk(base: *const u8, at: u32) -> *const u8 {
    // SAFETY: chunks lie inside the vector that begins at `base`.
    unsafe { base.add(at as usize * UNIT) }
}

/// Returns the address of the item for `position` (below 256).
///
/// # Safety
/// `chunk` must come from [`chunk`], and must not have been changed or released since.
#[inline(always)]
pub(super) unsafe fn item_address<I: Item>(chunk: *const u8, position: u32) -> *const I {
    let word = (position / 64) as usize;
    // SAFETY: by the layout: `word` is below 4, the words are aligned as units are, and the position's run is one of
    // the chunk's, whose items are aligned to their size from byte 36 on.
    unsafe {
        let starts = chunk.cast::<u64>().add(word).read();
        let before = chunk.add(COUNTS + word).read();
        let here = (starts << (63 - position % 64)).count_ones();
        chunk
            .add(ITEMS)
            .cast::<I>()
            .add(before as usize + here as usize)
    }
}
