// SPDX-License-Identifier: Apache-2.0
//! Assigns one answer to all addresses of a prefix, if all these addresses are in one leaf. Nearly all changes of a
//! routing table do no more than this. The module `update` handles all other changes.

use super::batch::{Kernel, LinePosition};
use super::build::{Trees, key, last_key, segment_end};
use super::line::{Line, leaf_fanout};
use crate::address::Prefix;
use crate::lookup_item::LookupItem;

/// Capacity for parts. A change adds at most two parts to those of a leaf.
const PARTS: usize = 16;

/// Parts of a leaf, stored on the stack.
struct Parts<I> {
    parts: [(u32, I); PARTS],
    count: usize,
}

impl<I: LookupItem> Parts<I> {
    fn none() -> Self {
        const { assert!(leaf_fanout::<I>() + 2 <= PARTS) };
        Self {
            parts: [(0, I::new(0)); PARTS],
            count: 0,
        }
    }

    fn of(line: &Line, first: u32) -> Self {
        let mut all = Self::none();
        for (position, part) in all.parts.iter_mut().zip(line.parts(first)) {
            *position = part;
            all.count += 1;
        }
        all
    }

    fn all(&self) -> &[(u32, I)] {
        &self.parts[..self.count]
    }

    /// Returns the index of the part to which a key belongs.
    fn position(&self, key: u32) -> usize {
        let beginning = self.all().iter().filter(|(start, _)| *start <= key);
        beginning.count().saturating_sub(1)
    }

    fn push(&mut self, part: (u32, I)) {
        self.parts[self.count] = part;
        self.count += 1;
    }

    /// Appends a part. If the last part has the same item, extends the last part instead.
    fn go_on(&mut self, part: (u32, I)) {
        if self.all().last().is_none_or(|(_, item)| *item != part.1) {
            self.push(part);
        }
    }
}

impl<I: LookupItem> Trees<I> {
    /// Assigns an item to all addresses of a prefix, if two conditions hold: these addresses lie in one leaf, and the
    /// leaf has several parts before and afterwards. Otherwise changes nothing. Returns whether the item was assigned.
    /// Invariant: this function neither changes nor creates a tree that has one answer for all keys.
    pub(super) fn assign(
        &mut self,
        kernel: Kernel,
        top: u32,
        prefix: Prefix<u128>,
        item: I,
    ) -> bool {
        let (mut top, mut segment) = (top, 0);
        loop {
            let first = key(prefix.address(), segment);
            let position = kernel.position(self, top, self.heights[segment], first);
            if prefix.length() <= segment_end(segment) {
                return self.assign_at(position, segment, prefix, item);
            }
            let old = Parts::<I>::of(self.pool.get(position.at), position.first);
            let Some(index) = old.all()[old.position(first)].1.reference_index() else {
                return false;
            };
            (top, segment) = (self.further[index as usize], segment + 1);
        }
    }

    /// Like [`assign`](Self::assign), given the leaf in which the prefix begins.
    pub(super) fn assign_at(
        &mut self,
        leaf: LinePosition,
        segment: usize,
        prefix: Prefix<u128>,
        item: I,
    ) -> bool {
        let first = key(prefix.address(), segment);
        let last = last_key(prefix.last(), segment);
        if last > leaf.last {
            return false;
        }
        let old = Parts::<I>::of(self.pool.get(leaf.at), leaf.first);
        let (from, to) = (old.position(first), old.position(last));
        let refers = |(_, item): &(u32, I)| item.reference_index().is_some();
        if old.count == 1 || old.all()[from..=to].iter().any(refers) {
            return false;
        }
        let mut new = Parts::none();
        let before = from + usize::from(old.parts[from].0 < first);
        old.all()[..before].iter().for_each(|part| new.push(*part));
        new.go_on((first, item));
        let rest = &old.all()[to + 1..];
        let until = rest.first().map_or(leaf.last, |(next, _)| next - 1);
        if last < until {
            new.go_on((last + 1, old.parts[to].1));
        }
        // Adjacent parts of the old leaf have different items. So at most the first of these parts is merged.
        rest.iter().for_each(|part| new.go_on(*part));
        let fits = (2..=leaf_fanout::<I>()).contains(&new.count);
        if fits {
            self.pool.set(leaf.at, Line::leaf(new.all()));
        }
        fits
    }
}
