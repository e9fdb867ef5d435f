// SPDX-License-Identifier: Apache-2.0
//! Storage of chunks, and look-ups in them.
//!
//! A chunk answers for 256 positions (the next eight bits of an address). It lies at a multiple of
//! eight bytes:
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 31 | four words, a bit for each position that starts a run; never position 0 |
//! | 32 to 35 | for each word, the number of bits in the words before it |
//! | 36 on | an item for each run, one more than there are bits |
//!
//! Which run a position lies in is thus a count of bits, and no look-up compares or branches.
//! Places are handed out in units of eight bytes, from lists of free places of each size, so that the
//! first three words lie in one cache line. That the counts do, too, would cost a twentieth more memory:
//! where they are in the next line, the items are there as well.

use sluice_pages::Items;

use super::runs::{POSITIONS, Runs};
use crate::item::Item;
use crate::lines::Lines;

/// Bytes of a unit.
const UNIT: usize = 8;

/// Where the counts and the items are.
const COUNTS: usize = 32;
const ITEMS: usize = 36;

/// The most units a chunk can take: 256 items of four bytes.
const LARGEST: usize = (ITEMS + 256 * 4).div_ceil(UNIT);

/// The fewest: one or two items.
const SMALLEST: usize = (ITEMS + 1).div_ceil(UNIT);

/// Units of a cache line, and of the words that lie in one.
const LINE: usize = 64 / UNIT;
const WORDS: usize = 3;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; LINE]);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Chunks<I> {
    /// Every chunk that was given out by `store` and not yet released is laid out as above, inside.
    lines: Items<Line>,
    /// Units that have been given out, free ones among them.
    used: usize,
    free: Vec<Vec<u32>>,
    free_units: usize,
    item: std::marker::PhantomData<I>,
}

/// Units of a chunk of `runs` runs.
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
        // SAFETY: a line is nothing but its units.
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
        // Not across the end of a line: the first words.
        let mut at = self.used;
        let in_line = at % LINE;
        if in_line + WORDS > LINE {
            at += LINE - in_line;
        }
        self.used = at + units;
        let lines = self.used.div_ceil(LINE);
        if lines > self.lines.capacity() {
            // Doubling would waste as much as the structure saves.
            self.lines.reserve(lines + lines / 16);
        }
        self.lines.resize(lines, Line([0; LINE]));
        u32::try_from(at)
            .expect("65,536 chunks and as many as a reference counts are below 2^32 units")
    }

    /// Sizes of free places that can be divided: what is left must be of use, and a chunk's first
    /// words must not go across the end of a line there.
    fn larger(&self, units: usize) -> impl Iterator<Item = usize> {
        (units + SMALLEST..=LARGEST).filter(move |size| {
            let last = self.free[*size].last();
            last.is_some_and(|at| (*at as usize + units) % LINE + WORDS <= LINE)
        })
    }

    /// A free place of a size, of which so many units are used.
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

    /// Stores runs; the chunk's place is given out until it is released.
    pub(super) fn store(&mut self, runs: &Runs<I>) -> u32 {
        let at = self.allocate(units_of::<I>(runs.items.len()));
        self.write(at, runs);
        at
    }

    /// Stores runs in the place of a chunk, or in another if they do not fit there.
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
        // The other half belongs to the items.
        units[4] = u64::from_ne_bytes(counts);
        self.items_mut(at, runs.items.len())
            .copy_from_slice(&runs.items);
    }

    /// The first byte of a chunk's items, of which there are `count`.
    fn first_item(&self, at: u32, count: usize) -> usize {
        let first = at as usize * UNIT + ITEMS;
        assert!(first + count * I::SIZE <= self.lines.len() * size_of::<Line>());
        first
    }

    /// The `count` items of a chunk.
    fn items(&self, at: u32, count: usize) -> &[I] {
        let first = self.first_item(at, count);
        // SAFETY: they lie inside the lines, are aligned to their size from byte 36 on, and any bits
        // are an item.
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

    /// Takes a chunk apart.
    pub(super) fn load(&self, at: u32, runs: &mut Runs<I>) {
        let at = at as usize;
        runs.starts.copy_from_slice(&self.units()[at..at + 4]);
        runs.items.clear();
        let count = self.run_count(at as u32);
        runs.items.extend_from_slice(self.items(at as u32, count));
    }

    /// Gives the positions from `from` up to but not including `to` another item where they are a run already
    /// and stay one, and what they have is an answer: whether it is done.
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

    /// The item of a chunk that has one run.
    pub(super) fn only_item(&self, at: u32) -> Option<I> {
        (self.run_count(at) == 1).then(|| self.items(at, 1)[0])
    }

    /// Room for what is stored here and no more.
    pub(super) fn emptied(&self) -> Self {
        let mut empty = Self::new();
        empty
            .lines
            .reserve((self.used - self.free_units).div_ceil(LINE));
        empty
    }

    /// Asks for the memory of a chunk, or for what a small one has.
    pub(super) fn ask(&self, at: u32) {
        let first = self.base().wrapping_add(at as usize * UNIT);
        Lines::from(first, 3).fetch();
    }

    /// Stores a chunk of another store; returns where it is here.
    pub(super) fn store_copy(&mut self, other: &Self, at: u32) -> u32 {
        let units = units_of::<I>(other.run_count(at));
        let to = self.allocate(units);
        let (from, place) = (at as usize, to as usize);
        self.units_mut()[place..place + units].copy_from_slice(&other.units()[from..from + units]);
        to
    }

    /// Bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let lists: usize = self.free.iter().map(|list| list.capacity() * 4).sum();
        self.lines.memory_bytes() + lists + self.free.capacity() * size_of::<Vec<u32>>()
    }

    /// Whether more than a quarter of a large store is free places.
    pub(super) fn is_full_of_holes(&self) -> bool {
        self.free_units * UNIT > self.lines.memory_bytes() / 4 + (1 << 16)
    }

    pub(super) fn shrink(&mut self) {
        self.lines.shrink();
    }

    /// The first byte, for the functions below.
    #[inline(always)]
    pub(super) fn base(&self) -> *const u8 {
        self.lines.as_ptr().cast()
    }
}

/// The address of a chunk.
///
/// # Safety
/// `base` is what [`Chunks::base`] gave, and the chunk has been given out and not released since.
#[inline(always)]
pub(super) unsafe fn chunk(base: *const u8, at: u32) -> *const u8 {
    // SAFETY: chunks lie inside the vector that `base` is the start of.
    unsafe { base.add(at as usize * UNIT) }
}

/// The address of the item for `position` (below 256).
///
/// # Safety
/// `chunk` is what [`chunk`] gave, and the chunk has not been changed or released since.
#[inline(always)]
pub(super) unsafe fn item_address<I: Item>(chunk: *const u8, position: u32) -> *const I {
    let word = (position / 64) as usize;
    // SAFETY: by the layout: `word` is below 4, the words are aligned as the units are, and the
    // position's run is one of the chunk's, whose items are aligned to their size from byte 36 on.
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
