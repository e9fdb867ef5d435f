// SPDX-License-Identifier: Apache-2.0
//! Storage of chunks, and lookups in chunks.
//!
//! A chunk has the answers for 256 positions, one for each value of the next eight bits of an address. Chunks are
//! aligned to eight bytes. A chunk contains:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 31 | four words with a bit for each position that starts a run; never position 0 |
//! | 32 to 35 | for each word, the number of bits in the words before it |
//! | 36 on | an item for each run; there is one run more than set bits |
//!
//! So the run of a position is found by counting bits, without a comparison or branch.
//!
//! Memory is allocated in units of eight bytes, with a free list for each size. A chunk's first three words are always
//! in one cache line. The counts may be in the next line. Keeping them in the same line would cost 5 % more memory. It
//! would save little, because the items are often in the next line too.

use sluice_pages::PageVec;

use super::runs::{POSITIONS, Runs};
use crate::lines::Lines;
use crate::lookup_item::LookupItem;

/// Size of a unit in bytes.
const UNIT: usize = 8;

/// Offsets of the counts and of the items in a chunk, in bytes.
const COUNTS: usize = 32;
const ITEMS: usize = 36;

/// Maximum number of units of a chunk, which has 256 items of four bytes.
const LARGEST: usize = (ITEMS + 256 * 4).div_ceil(UNIT);

/// Minimum number of units of a chunk, which has one or two items.
const SMALLEST: usize = (ITEMS + 1).div_ceil(UNIT);

/// `LINE` is the number of units in a cache line. `WORDS` is the number of words at the start of a chunk that must be
/// in one line.
const LINE: usize = 64 / UNIT;
const WORDS: usize = 3;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct CacheLine([u64; LINE]);

/// Storage of chunks; see the module.
#[derive(Clone, Debug)]
pub(super) struct Chunks<I> {
    /// Memory of all chunks. Invariant: it contains every chunk that `store` returned and that was not released. The
    /// module's documentation describes a chunk's bytes.
    lines: PageVec<CacheLine>,
    /// Number of units that have ever been allocated, including free ones.
    used: usize,
    free: Vec<Vec<u32>>,
    free_units: usize,
    item: std::marker::PhantomData<I>,
}

/// Returns the number of units of a chunk with `runs` runs.
fn units_of<I: LookupItem>(runs: usize) -> usize {
    (ITEMS + runs * I::SIZE).div_ceil(UNIT)
}

impl<I: LookupItem> Chunks<I> {
    pub(super) fn new() -> Self {
        Self {
            lines: PageVec::new(),
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
        // SAFETY: a line consists of its units only. The lines are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
    }

    fn allocate(&mut self, units: usize) -> u32 {
        let exact = std::iter::once(units).filter(|size| !self.free[*size].is_empty());
        let size = exact.chain(self.larger(units)).next();
        if let Some(at) = size.and_then(|size| self.take(size, units)) {
            return at;
        }
        // A chunk's first words must not cross the end of a line.
        let mut at = self.used;
        let in_line = at % LINE;
        if in_line + WORDS > LINE {
            at += LINE - in_line;
        }
        self.used = at + units;
        let lines = self.used.div_ceil(LINE);
        if lines > self.lines.capacity() {
            // Grows by a sixteenth. If the memory doubled, the unused half would waste about as much as this compact
            // layout saves.
            self.lines.reserve(lines + lines / 16);
        }
        self.lines.resize(lines, CacheLine([0; LINE]));
        u32::try_from(at)
            .expect("65,536 chunks and as many as a reference counts are below 2^32 units")
    }

    /// Returns the sizes of free ranges that can be split. After the split, the rest of such a range must be large
    /// enough for a chunk. The first words of a chunk in the rest must not cross the end of a line.
    fn larger(&self, units: usize) -> impl Iterator<Item = usize> {
        (units + SMALLEST..=LARGEST).filter(move |size| {
            let last = self.free[*size].last();
            last.is_some_and(|at| (*at as usize + units) % LINE + WORDS <= LINE)
        })
    }

    /// Allocates units from a free range of `size` units. The rest of the range stays free.
    fn take(&mut self, size: usize, units: usize) -> Option<u32> {
        let at = self.free[size].pop()?;
        if size > units {
            self.free[size - units].push(at + units as u32);
        }
        self.free_units -= units;
        Some(at)
    }

    fn mark_free(&mut self, at: u32, units: usize) {
        self.free[units].push(at);
        self.free_units += units;
    }

    /// Stores runs as a new chunk. Returns the chunk's offset, which stays valid until the chunk is released.
    pub(super) fn store(&mut self, runs: &Runs<I>) -> u32 {
        let at = self.allocate(units_of::<I>(runs.items.len()));
        self.write(at, runs);
        at
    }

    /// Replaces a chunk's runs. Returns the chunk's offset, which changes if the size of the chunk changes.
    pub(super) fn store_again(&mut self, old: u32, runs: &Runs<I>) -> u32 {
        let had = units_of::<I>(self.run_count(old));
        if had == units_of::<I>(runs.items.len()) {
            self.write(old, runs);
            return old;
        }
        self.mark_free(old, had);
        self.store(runs)
    }

    pub(super) fn release(&mut self, at: u32) {
        self.mark_free(at, units_of::<I>(self.run_count(at)));
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
        // The other half of this unit holds items.
        units[4] = u64::from_ne_bytes(counts);
        self.items_mut(at, runs.items.len())
            .copy_from_slice(&runs.items);
    }

    /// Returns the offset of a chunk's first item, in bytes. Asserts that `count` items are inside the lines.
    fn first_item(&self, at: u32, count: usize) -> usize {
        let first = at as usize * UNIT + ITEMS;
        assert!(first + count * I::SIZE <= self.lines.len() * size_of::<CacheLine>());
        first
    }

    /// Returns the `count` items of a chunk.
    fn items(&self, at: u32, count: usize) -> &[I] {
        let first = self.first_item(at, count);
        // SAFETY: the items lie inside the lines. From byte 36 on they are aligned to their size. Any bits are a valid
        // item.
        unsafe { std::slice::from_raw_parts(self.base().add(first).cast(), count) }
    }

    fn items_mut(&mut self, at: u32, count: usize) -> &mut [I] {
        let first = self.first_item(at, count);
        // SAFETY: the items lie inside the lines, which are borrowed mutably. From byte 36 on they are aligned to their
        // size. Any bits are a valid item.
        unsafe {
            let base = self.lines.as_mut_ptr().cast::<u8>();
            std::slice::from_raw_parts_mut(base.add(first).cast(), count)
        }
    }

    fn run_count(&self, at: u32) -> usize {
        let words = &self.units()[at as usize..at as usize + 4];
        1 + words.iter().map(|word| word.count_ones()).sum::<u32>() as usize
    }

    /// Reads a chunk's runs into `runs`.
    pub(super) fn load(&self, at: u32, runs: &mut Runs<I>) {
        let at = at as usize;
        runs.starts.copy_from_slice(&self.units()[at..at + 4]);
        runs.items.clear();
        let count = self.run_count(at as u32);
        runs.items.extend_from_slice(self.items(at as u32, count));
    }

    /// Sets the item of the positions `from..to` in place, if possible. The positions must be exactly one run with an
    /// answer (not a reference), and no adjacent run may have the item `item`. Returns whether the item was set.
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
        if items[run].reference_index().is_some() || beside.contains(&Some(item)) {
            return false;
        }
        items[run] = item;
        true
    }

    /// Returns the item of a chunk, if the chunk has only one run.
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

    /// Prefetches the first three lines of a chunk. A small chunk has no further lines.
    pub(super) fn prefetch(&self, at: u32) {
        let first = self.base().wrapping_add(at as usize * UNIT);
        Lines::from(first, 3).fetch();
    }

    /// Copies a chunk from another store. Returns the offset of the copy.
    pub(super) fn store_copy(&mut self, other: &Self, at: u32) -> u32 {
        let units = units_of::<I>(other.run_count(at));
        let to = self.allocate(units);
        let (from, offset) = (at as usize, to as usize);
        self.units_mut()[offset..offset + units]
            .copy_from_slice(&other.units()[from..from + units]);
        to
    }

    /// Returns the number of allocated bytes.
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

    /// Returns the address of the first byte, for [`chunk`].
    #[inline(always)]
    pub(super) fn base(&self) -> *const u8 {
        self.lines.as_ptr().cast()
    }
}

/// Returns the address of a chunk.
///
/// # Safety
/// [`Chunks::base`] must have returned `base`, and the chunk must be allocated.
#[inline(always)]
pub(super) unsafe fn chunk(base: *const u8, at: u32) -> *const u8 {
    // SAFETY: chunks lie inside the vector that begins at `base`.
    unsafe { base.add(at as usize * UNIT) }
}

/// Returns the address of the item for `position` (below 256).
///
/// # Safety
/// [`chunk`] must have returned the address, and the chunk must not have been changed or released since then.
#[inline(always)]
pub(super) unsafe fn item_address<I: LookupItem>(chunk: *const u8, position: u32) -> *const I {
    let word = (position / 64) as usize;
    // SAFETY: `word` is below 4, and the words are aligned because a chunk begins at a unit. By the layout, the
    // position's run is one of the chunk's runs. The items are aligned to their size from byte 36 on.
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
