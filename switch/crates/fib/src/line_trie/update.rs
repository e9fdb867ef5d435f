// SPDX-License-Identifier: Apache-2.0
//! Following the RIB: a change of one route rewrites one line, most of the time.
//!
//! A change under a prefix is brought to the smallest region of lines that holds the prefix. There
//! the intervals within the prefix are taken from the RIB anew and the others are kept. If a line
//! overflows, its region is built anew, which gives it children. When much has overflown, the lines
//! of the first 16 bits are built anew, so that they are split as finely as their intervals want.

use std::ops::RangeInclusive;

use super::build::{Intervals, Region, intervals, key, line, push, segment_end};
use super::line::{Array, Form, Slot};
use super::pool::Pool;
use super::roots::{DENSE_BITS, ROOT_BITS, dense_region, without};
use super::{LineTrie, ranges};
use crate::{BuildError, Prefix, Rib};

/// Overflows of a root's lines before they are built anew: at least this ...
const OVERFLOWS: u32 = 16;
/// ... and one for so many lines.
const LINES_PER_OVERFLOW: u32 = 4;

/// Gives back the lines of an array over a region, and all below.
pub(super) fn release(pool: &mut Pool, array: Array, region: Region) {
    let base = array.line(region.first);
    let bits = region.width - array.shift();
    for index in 0..1 << bits {
        let part = region.part(index, array.shift());
        clear(pool, base + index as usize, array.form(), part);
    }
    pool.give(base as u32, bits);
}

/// Clears a line, whose region is `part`, and gives back all below.
fn clear(pool: &mut Pool, index: usize, form: Form, part: Region) {
    let held = pool.load(index, form, part);
    pool.clear(index, form);
    release_below(pool, &held, part, |_| true);
}

/// Gives back what is below those intervals of a line, over `part`, that are `chosen` by their
/// starts.
fn release_below(
    pool: &mut Pool,
    held: &[(u32, Slot)],
    part: Region,
    chosen: impl Fn(u32) -> bool,
) {
    for (index, &(first, slot)) in held.iter().enumerate() {
        if slot.is_final() || !chosen(first) {
            continue;
        }
        let to = held
            .get(index + 1)
            .map_or(part.end(), |next| u64::from(next.0));
        let inner = Region {
            first,
            width: (to - u64::from(first)).ilog2(),
        };
        let region = if slot.is_next() { Region::ALL } else { inner };
        release(pool, slot.array(), region);
    }
}

/// What came of rewriting lines.
enum Outcome {
    Done,
    /// Done; but a line was too small and has got a child.
    Overflown,
    /// Not done: lines of this form cannot hold the slots.
    Unsuitable,
}

/// A place in the trie: an array over a region of a segment.
struct Place {
    array: Array,
    segment: u32,
    region: Region,
    /// Whether it is within a /32 that has a shortcut.
    dense: bool,
}

impl Place {
    /// A part of the region as a prefix, given an address in the segment.
    fn prefix(&self, address: u128, part: Region) -> Prefix<u128> {
        let within = u128::from(part.first) << 96 >> (ROOT_BITS + 32 * self.segment);
        let before = Prefix::new(address, ROOT_BITS + 32 * self.segment).address();
        Prefix::new(before | within, segment_end(self.segment) - part.width)
    }

    /// The line of a key: its index and its region.
    fn line_of(&self, key: u32) -> (usize, Region) {
        let width = self.array.shift();
        let index = u64::from(key - self.region.first) >> width;
        (self.array.line(key), self.region.part(index as u32, width))
    }
}

impl LineTrie {
    /// Brings what is under `prefix` in line with the RIB.
    pub(super) fn update(
        &mut self,
        prefix: Prefix<u128>,
        rib: &Rib<u128>,
    ) -> Result<(), BuildError> {
        let root = (prefix.address() >> (128 - ROOT_BITS)) as u16;
        if prefix.length() <= ROOT_BITS {
            let last = prefix.address() | u128::MAX.checked_shr(prefix.length()).unwrap_or(0);
            return self.replace_roots(root..=(last >> (128 - ROOT_BITS)) as u16, rib);
        }
        let top = (prefix.address() >> (128 - DENSE_BITS)) as u32;
        if prefix.length() > DENSE_BITS
            && let Some(array) = self.roots.dense().get(top)
        {
            let place = self.descend(array, dense_region(top), true, prefix);
            let outcome = self.rewrite(&place, prefix, rib)?;
            if self.asks_for_more(outcome, (top, DENSE_BITS), array) {
                self.replace_dense(top, rib)?;
            }
            return Ok(());
        }
        if self.roots.is_shared(&self.pool, root) {
            return self.replace_roots(root..=root, rib);
        }
        let array = self.roots.get(root);
        let place = self.descend(array, Region::ALL, false, prefix);
        let outcome = self.rewrite(&place, prefix, rib)?;
        if self.asks_for_more(outcome, (root.into(), ROOT_BITS), array) {
            return self.replace_roots(root..=root, rib);
        }
        if prefix.length() <= DENSE_BITS {
            let last = (prefix.last() >> (128 - DENSE_BITS)) as u32;
            for top in self.roots.dense().within(top..=last) {
                self.replace_dense(top, rib)?;
            }
        }
        Ok(())
    }

    fn replace_dense(&mut self, top: u32, rib: &Rib<u128>) -> Result<(), BuildError> {
        let prefix = Prefix::new(u128::from(top) << (128 - DENSE_BITS), DENSE_BITS);
        let ranges = ranges(rib, prefix)?;
        self.roots.replace_dense(&mut self.pool, top, &ranges)?;
        self.overflows.remove(&(top, DENSE_BITS));
        Ok(())
    }

    fn replace_roots(
        &mut self,
        roots: RangeInclusive<u16>,
        rib: &Rib<u128>,
    ) -> Result<(), BuildError> {
        let first = u128::from(*roots.start()) << (128 - ROOT_BITS);
        let count = u32::from(*roots.end() - *roots.start()) + 1;
        let ranges = ranges(rib, Prefix::new(first, ROOT_BITS - count.ilog2()))?;
        self.roots.replace(&mut self.pool, roots.clone(), &ranges)?;
        self.overflows.retain(|&(bits, length), _| {
            let root = bits >> (length - ROOT_BITS);
            !roots.contains(&(root as u16))
        });
        Ok(())
    }

    /// The smallest array whose region holds a prefix.
    fn descend(&self, array: Array, region: Region, dense: bool, prefix: Prefix<u128>) -> Place {
        let mut place = Place {
            array,
            segment: 0,
            region,
            dense,
        };
        loop {
            let end = segment_end(place.segment);
            let width = end.saturating_sub(prefix.length());
            if width > place.array.shift() {
                return place;
            }
            let key = key(prefix.address(), place.segment);
            let (index, region) = place.line_of(key);
            let held = self.pool.load(index, place.array.form(), region);
            let at = held.partition_point(|&(start, _)| start <= key) - 1;
            let (start, slot) = held[at];
            if slot.is_final() {
                return place;
            }
            if slot.is_next() {
                if prefix.length() <= end {
                    return place;
                }
                place.segment += 1;
                place.region = Region::ALL;
            } else {
                let to = held
                    .get(at + 1)
                    .map_or(region.end(), |next| u64::from(next.0));
                let inner = Region {
                    first: start,
                    width: (to - u64::from(start)).ilog2(),
                };
                if width > inner.width {
                    return place;
                }
                place.region = inner;
            }
            place.array = slot.array();
        }
    }

    /// Rewrites the lines of an array that a prefix touches; whether the lines of the root or dense
    /// /32 are to be built anew because one of them has overflown or does not suit its slots.
    fn rewrite(
        &mut self,
        place: &Place,
        prefix: Prefix<u128>,
        rib: &Rib<u128>,
    ) -> Result<Outcome, BuildError> {
        let width = segment_end(place.segment).saturating_sub(prefix.length());
        let region = Region {
            first: key(prefix.address(), place.segment),
            width,
        };
        let (index, part) = place.line_of(region.first);
        if width >= part.width {
            let lines = 1 << (width - part.width);
            let lines = index..index + lines;
            return self.rebuild_lines(place, prefix.address(), lines, region, rib);
        }
        let form = place.array.form();
        let changed = place.prefix(prefix.address(), region);
        let inside = self.ranges(place, changed, rib)?;
        let inside = intervals(&mut self.pool, &inside, place.segment, region)?;
        let held = self.pool.load(index, form, part);
        let spliced = splice(&held, &inside, region, part);
        if spliced.len() > form.ways() {
            self.discard(&inside);
            let lines = index..index + 1;
            let outcome = self.rebuild_lines(place, prefix.address(), lines, part, rib)?;
            return Ok(match outcome {
                Outcome::Done => Outcome::Overflown,
                other => other,
            });
        }
        if !self.pool.suits(form, &spliced, 0) {
            self.discard(&inside);
            return Ok(Outcome::Unsuitable);
        }
        self.pool.clear(index, form);
        self.pool.set(index, form, &spliced);
        let dropped = |start: u32| start >= region.first && u64::from(start) < region.end();
        release_below(&mut self.pool, &held, part, dropped);
        Ok(Outcome::Done)
    }

    /// Gives back what was made for new intervals that are not used.
    fn discard(&mut self, inside: &[(u32, Slot)]) {
        for &(_, slot) in inside.iter().filter(|(_, slot)| !slot.is_final()) {
            release(&mut self.pool, slot.array(), Region::ALL);
        }
    }

    /// Makes some lines, which together cover `region`, anew from the RIB.
    fn rebuild_lines(
        &mut self,
        place: &Place,
        address: u128,
        lines: std::ops::Range<usize>,
        region: Region,
        rib: &Rib<u128>,
    ) -> Result<Outcome, BuildError> {
        let form = place.array.form();
        let inside = self.ranges(place, place.prefix(address, region), rib)?;
        let inside = intervals(&mut self.pool, &inside, place.segment, region)?;
        // Each interval may lead to a child of its own.
        if !self.pool.suits(form, &inside, inside.len()) {
            self.discard(&inside);
            return Ok(Outcome::Unsuitable);
        }
        let width = place.array.shift();
        for (number, index) in lines.enumerate() {
            let part = region.part(number as u32, width);
            let held = line(&mut self.pool, &inside, part, form)?;
            clear(&mut self.pool, index, form, part);
            self.pool.set(index, form, &held);
        }
        Ok(Outcome::Done)
    }

    /// The ranges of a prefix that matter at a place.
    fn ranges(
        &self,
        place: &Place,
        prefix: Prefix<u128>,
        rib: &Rib<u128>,
    ) -> Result<Vec<(u128, Slot)>, BuildError> {
        let all = ranges(rib, prefix)?;
        if place.dense || prefix.length() > DENSE_BITS {
            return Ok(all);
        }
        let is_dense = |top| self.roots.dense().get(top).is_some();
        Ok(without(&all, prefix, is_dense))
    }

    /// Whether, after a rewrite, the lines of a root or a dense /32 (its bits and their number; the
    /// first of its lines are in `array`) want to be built anew: counts overflows.
    fn asks_for_more(&mut self, outcome: Outcome, whose: (u32, u32), array: Array) -> bool {
        match outcome {
            Outcome::Done => return false,
            Outcome::Unsuitable => return true,
            Outcome::Overflown => {}
        }
        let width = 48 - whose.1;
        let lines = 1u32 << (width - array.shift());
        let count = self.overflows.entry(whose).or_insert(0);
        *count += 1;
        *count > OVERFLOWS + lines / LINES_PER_OVERFLOW
    }
}

/// The intervals of a line (over `part`) with those in `region` replaced.
fn splice(held: &[(u32, Slot)], inside: &[(u32, Slot)], region: Region, part: Region) -> Intervals {
    let mut spliced = Intervals::new();
    let mut after = None;
    for &(start, slot) in held {
        if start < region.first {
            push(&mut spliced, start, slot);
        }
        if u64::from(start) <= region.end() {
            after = Some(slot);
        }
    }
    for &(start, slot) in inside {
        push(&mut spliced, start, slot);
    }
    if let Some(slot) = after.filter(|_| region.end() < part.end()) {
        push(&mut spliced, region.end() as u32, slot);
    }
    for &(start, slot) in held {
        if u64::from(start) > region.end() {
            push(&mut spliced, start, slot);
        }
    }
    spliced
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Algorithm;

    /// Counts the uses of each line below an array and the escapes, and checks where lines begin.
    fn walk(trie: &LineTrie, array: Array, region: Region, uses: &mut [u32], escaped: &mut usize) {
        for index in 0..1u32 << (region.width - array.shift()) {
            let part = region.part(index, array.shift());
            let at = array.line(part.first);
            uses[at] += 1;
            assert_eq!(uses[at], 1, "line {at}");
            let held = trie.pool.load(at, array.form(), part);
            assert_eq!(held[0].0, part.first);
            if array.is_narrow() {
                let escapes = held.iter().filter(|(_, slot)| !slot.is_final());
                *escaped += escapes.count();
            }
            let ends = held.iter().skip(1).map(|next| u64::from(next.0));
            for (&(first, slot), end) in held.iter().zip(ends.chain([part.end()])) {
                let keys = end - u64::from(first);
                if slot.is_final() {
                    continue;
                }
                if slot.is_next() {
                    assert_eq!(keys, 1);
                    walk(trie, slot.array(), Region::ALL, uses, escaped);
                } else {
                    assert!(keys.is_power_of_two() && u64::from(first) % keys == 0);
                    let width = keys.ilog2();
                    walk(trie, slot.array(), Region { first, width }, uses, escaped);
                }
            }
        }
    }

    /// Every line is in one place, or free once; and every escape in use is in a line.
    fn audit(trie: &LineTrie) {
        let mut uses = vec![0; trie.pool.lines().len()];
        let mut escaped = 0;
        let mut shared = vec![false; uses.len()];
        for root in 0..=u16::MAX {
            let array = trie.roots.get(root);
            let known = trie.roots.is_shared(&trie.pool, root)
                && std::mem::replace(&mut shared[array.line(0)], true);
            if !known {
                walk(trie, array, Region::ALL, &mut uses, &mut escaped);
            }
        }
        for top in trie.roots.dense().within(0..=u32::MAX) {
            let array = trie.roots.dense().get(top).expect("it is within");
            walk(trie, array, dense_region(top), &mut uses, &mut escaped);
        }
        for line in trie.pool.free_lines() {
            uses[line] += 1;
        }
        assert!(uses.iter().all(|&uses| uses == 1));
        assert_eq!(trie.pool.escapes_in_use(), escaped);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_line_has_one_place(
            changes in prop::collection::vec((0u128..4, 0u128..64, 15u32..68, 0u32..4), 1..150),
        ) {
            let mut rib = Rib::new();
            let mut trie = LineTrie::build(&rib).expect("no route fits");
            for (step, (high, low, length, value)) in changes.into_iter().enumerate() {
                let address = 0x2a00 << 112 | high << 96 | low << 80 | low << 60;
                let prefix = Prefix::new(address, length);
                if value == 0 {
                    rib.remove(prefix);
                } else {
                    rib.insert(prefix, value);
                }
                trie.refresh(prefix, &rib).expect("the routes fit");
                if step == 60 {
                    trie = LineTrie::build(&rib).expect("the routes fit");
                }
                if step % 16 == 15 {
                    audit(&trie);
                }
            }
            audit(&trie);
        }
    }
}
