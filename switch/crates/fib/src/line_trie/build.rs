// SPDX-License-Identifier: Apache-2.0
//! From ranges of addresses to lines: where regions are split, and how.

use super::line::{Array, Form, Line, Slot};
use super::pool::Pool;

/// The trie is full.
#[derive(Debug)]
pub(super) struct Full;

/// Intervals of keys in ascending order: where each begins and what it leads to. The first one
/// begins at or before the region it is used for; the last one lasts to the region's end.
pub(super) type Intervals = Vec<(u32, Slot)>;

/// The aligned region of `1 << width` keys from `first`; `width` is 0 to 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) first: u32,
    pub(super) width: u32,
}

impl Region {
    /// All keys.
    pub(super) const ALL: Self = Self {
        first: 0,
        width: 32,
    };

    /// One past the last key.
    pub(super) fn end(self) -> u64 {
        u64::from(self.first) + (1 << self.width)
    }

    /// The `index`th of its parts of `1 << width` keys.
    pub(super) fn part(self, index: u32, width: u32) -> Self {
        let offset = u64::from(index) << width;
        Self {
            first: self.first + offset as u32,
            width,
        }
    }

    /// The intervals that reach into this region.
    fn of(self, intervals: &[(u32, Slot)]) -> &[(u32, Slot)] {
        let from = intervals.partition_point(|&(start, _)| start <= self.first);
        let to = intervals.partition_point(|&(start, _)| u64::from(start) < self.end());
        &intervals[from.saturating_sub(1)..to]
    }
}

/// Appends an interval; one that ends where it begins disappears, and so does a boundary between
/// equal results.
pub(super) fn push(intervals: &mut Intervals, start: u32, slot: Slot) {
    if intervals.last().is_some_and(|&(last, _)| last == start) {
        intervals.pop();
    }
    let same = intervals.last().is_some_and(|&(_, last)| last == slot);
    if !(same && slot.is_final()) {
        intervals.push((start, slot));
    }
}

/// Of each address' bits, those of its segment: 32 from bit `16 + 32 * segment`, zero-padded.
pub(super) fn key(address: u128, segment: u32) -> u32 {
    ((address << (16 + 32 * segment)) >> 96) as u32
}

/// Bits of an address to the end of a segment.
pub(super) fn segment_end(segment: u32) -> u32 {
    48 + 32 * segment
}

/// The intervals in a `region` of a segment, given the ranges of addresses in it; where a key has
/// more than one range, lines over the next segment are made for it.
pub(super) fn intervals(
    pool: &mut Pool,
    ranges: &[(u128, Slot)],
    segment: u32,
    region: Region,
) -> Result<Intervals, Full> {
    let rest = 128u32.saturating_sub(segment_end(segment));
    let mut found = Intervals::new();
    let mut next = 0;
    while next < ranges.len() {
        let first = next;
        let (start, slot) = ranges[first];
        next += ranges[first..].partition_point(|(other, _)| other >> rest == start >> rest);
        let cell = key(start, segment);
        let begin = start >> rest << rest;
        let whole = begin == start;
        if whole && next == first + 1 {
            push(&mut found, cell, slot);
            continue;
        }
        let mut inside = ranges[first - usize::from(!whole)..next].to_vec();
        inside[0].0 = begin;
        let below = intervals(pool, &inside, segment + 1, Region::ALL)?;
        let array = build(pool, &below, Region::ALL, Form::Wide)?;
        push(&mut found, cell, Slot::next(array));
        if u64::from(cell) + 1 < region.end() {
            push(&mut found, cell + 1, ranges[next - 1].1);
        }
    }
    Ok(found)
}

/// Lines for a region, of a form that suits its intervals.
pub(super) fn build(
    pool: &mut Pool,
    intervals: &[(u32, Slot)],
    region: Region,
    form: Form,
) -> Result<Array, Full> {
    let bits = choose_bits(intervals, region, form);
    let width = region.width - bits;
    let base = pool.take(bits).ok_or(Full)?;
    for index in 0..1u32 << bits {
        let part = region.part(index, width);
        let held = line(pool, part.of(intervals), part, form)?;
        pool.set((base + index) as usize, form, &held);
    }
    Ok(Array::new(base, width, region.first, form))
}

/// The intervals of the line for a region. If there are too many, it keeps those around the densest
/// part and leaves that part to lines of its own.
pub(super) fn line(
    pool: &mut Pool,
    intervals: &[(u32, Slot)],
    region: Region,
    form: Form,
) -> Result<Intervals, Full> {
    let ways = form.ways();
    let intervals = region.of(intervals);
    let clipped = |part: Region, &(start, slot): &(u32, Slot)| (start.max(part.first), slot);
    if intervals.len() <= ways {
        return Ok(intervals.iter().map(|one| clipped(region, one)).collect());
    }
    let mut dense = region;
    let mut own = Intervals::new();
    loop {
        let halves = [0, 1].map(|half| dense.part(half, dense.width - 1));
        let counts = halves.map(|half| half.of(intervals).len());
        let sparse = usize::from(counts[0] > counts[1]);
        if own.len() + counts[sparse] >= ways {
            break;
        }
        let sparse_half = halves[sparse].of(intervals).iter();
        own.extend(sparse_half.map(|one| clipped(halves[sparse], one)));
        dense = halves[1 - sparse];
    }
    let array = build(pool, dense.of(intervals), dense, form)?;
    own.push((dense.first, Slot::child(array)));
    own.sort_unstable_by_key(|&(start, _)| start);
    let mut merged = Intervals::new();
    for (start, slot) in own {
        push(&mut merged, start, slot);
    }
    Ok(merged)
}

/// Bytes that an interval in an overfull line is taken to cost, its slower look-up included.
const OVERFULL: usize = 64;

/// Into how many lines (as a power of two) a region is best split: more lines take more memory,
/// fewer overflow into children.
fn choose_bits(intervals: &[(u32, Slot)], region: Region, form: Form) -> u32 {
    let count = intervals.len();
    if count <= form.ways() {
        return 0;
    }
    let most = (count.ilog2() + 1).min(region.width).min(16);
    let least = most.saturating_sub(5).max(1);
    let cost = |&bits: &u32| {
        let overfull = overfull(intervals, region, region.width - bits, form.ways());
        (size_of::<Line>() << bits) + overfull * OVERFULL
    };
    (least..=most).min_by_key(cost).unwrap_or(least)
}

/// How many intervals are in parts of `1 << width` keys that have more than a line of `ways` holds.
fn overfull(intervals: &[(u32, Slot)], region: Region, width: u32, ways: usize) -> usize {
    let part =
        |&(start, _): &(u32, Slot)| u64::from(start.max(region.first) - region.first) >> width;
    let parts = intervals.chunk_by(|one, other| part(one) == part(other));
    // One more reaches into the part from before.
    let counts = parts.map(|part| part.len() + 1);
    counts.filter(|&count| count > ways).sum()
}
