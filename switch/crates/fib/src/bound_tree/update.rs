// SPDX-License-Identifier: Apache-2.0
//! Updates trees from the RIB. A change of one route usually rewrites one leaf.
//!
//! Replaces the parts of a leaf that are under the changed prefix. If the new parts do not fit in the leaf, everything
//! below the leaf's parent is rebuilt. If the parent has not enough spare room, everything below the parent's parent is
//! rebuilt, and so on.

use super::build::{Trees, cells, key, last_key, most, push, roomy, segment_end};
use super::line::{FANOUT, Line, leaf_fanout};
use super::line_pool::Full;
use crate::address::Prefix;
use crate::lookup_item::LookupItem;

/// A range of keys, both ends included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Span {
    /// The span of all keys.
    const ALL: Self = Self {
        first: 0,
        last: u32::MAX,
    };

    /// Returns the intersection of two overlapping spans.
    fn and(self, other: Self) -> Self {
        Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        }
    }
}

/// A line and its position in a tree.
#[derive(Clone, Copy)]
struct Node {
    at: u32,
    height: usize,
    /// The keys whose search reaches the line.
    region: Span,
}

impl Node {
    /// Returns those children of the node that have keys of the span.
    fn children(self, line: &Line, span: Span) -> impl Iterator<Item = Self> + use<> {
        let mut starts = [self.region.first; FANOUT];
        let mut count = 1;
        for (place, start) in starts[1..].iter_mut().zip(line.inner_starts()) {
            *place = start;
            count += 1;
        }
        let (base, height, last) = (line.first_child(), self.height - 1, self.region.last);
        let child = move |index: usize| Self {
            at: base + index as u32,
            height,
            region: Span {
                first: starts[index],
                last: if index + 1 < count {
                    starts[index + 1] - 1
                } else {
                    last
                },
            },
        };
        let meets =
            move |node: &Self| node.region.first <= span.last && span.first <= node.region.last;
        (0..count).map(child).filter(meets)
    }
}

/// Error: a node has too little room for the new parts.
struct Overflow;

/// Returns `old` with the parts within `span` replaced by `new`. The parts `old` cover `region`. The first new part
/// must begin at or before the start of the span.
fn splice<I: LookupItem>(
    old: &[(u32, I)],
    region: Span,
    span: Span,
    new: &[(u32, I)],
) -> Vec<(u32, I)> {
    let span = span.and(region);
    let mut parts = Vec::with_capacity(old.len() + 2);
    let before = old.partition_point(|(start, _)| *start < span.first);
    parts.extend_from_slice(&old[..before]);
    let from = new.partition_point(|(start, _)| *start <= span.first) - 1;
    let until = new.partition_point(|(start, _)| *start <= span.last);
    for (start, item) in &new[from..until] {
        push(&mut parts, span.first.max(*start), *item);
    }
    if let Some(after) = span
        .last
        .checked_add(1)
        .filter(|after| *after <= region.last)
    {
        let rest = old.partition_point(|(start, _)| *start <= after);
        push(&mut parts, after, old[rest - 1].1);
        for (start, item) in &old[rest..] {
            push(&mut parts, *start, *item);
        }
    }
    parts
}

impl<I: LookupItem> Trees<I> {
    /// Writes the ranges of a prefix to a tree of a segment. The tree must be the one for the prefix's bits before the
    /// segment.
    pub(super) fn update(
        &mut self,
        top: u32,
        segment: usize,
        prefix: Prefix<u128>,
        ranges: &[(u128, I)],
    ) -> Result<(), Full> {
        if prefix.length() <= segment_end(segment) {
            return self.replace(top, segment, prefix, ranges);
        }
        let cell = Prefix::new(prefix.address(), segment_end(segment));
        let item = self.find(top, segment, key(cell.address(), segment));
        if let Some(index) = item.reference_index() {
            let below = self.further[index as usize];
            self.update(below, segment + 1, prefix, ranges)?;
            if let Some(item) = self.single(below, segment + 1) {
                self.replace(top, segment, cell, &[(cell.address(), item)])?;
            }
            return Ok(());
        }
        // So far the cell has one answer. If this changes, the cell gets a tree of the next segment.
        let mut whole = vec![(cell.address(), item)];
        whole.pop_if(|(start, _)| *start == prefix.address());
        whole.extend_from_slice(ranges);
        if prefix.last() < cell.last() {
            whole.push((prefix.last() + 1, item));
        }
        whole.dedup_by_key(|(_, item)| *item);
        self.replace(top, segment, cell, &whole)
    }

    /// Replaces the parts under a prefix in a tree of a segment. The prefix must not extend beyond the segment's end.
    fn replace(
        &mut self,
        top: u32,
        segment: usize,
        prefix: Prefix<u128>,
        ranges: &[(u128, I)],
    ) -> Result<(), Full> {
        let span = Span {
            first: key(prefix.address(), segment),
            last: last_key(prefix.last(), segment),
        };
        let new = self.parts(cells(ranges, segment), segment)?;
        let node = Node {
            at: top,
            height: self.heights[segment],
            region: Span::ALL,
        };
        let mut outdated = Vec::new();
        if self.further.len() > self.free.len() {
            self.references(node, span, &mut outdated);
        }
        if self.rewrite(node, span, &new).is_err() {
            self.refill(node, span, &new, most::<I>(node.height))?
                .map_err(|Overflow| Full)?;
        }
        for index in outdated {
            self.release(self.further[index as usize], segment + 1);
            self.free.push(index);
        }
        Ok(())
    }

    /// Replaces the parts of a span below a node.
    fn rewrite(&mut self, node: Node, span: Span, new: &[(u32, I)]) -> Result<(), Overflow> {
        let line = *self.pool.get(node.at);
        if node.height == 1 {
            let old: Vec<(u32, I)> = line.parts(node.region.first).collect();
            let parts = splice(&old, node.region, span, new);
            if parts.len() > leaf_fanout::<I>() {
                return Err(Overflow);
            }
            self.pool.set(node.at, Line::leaf(&parts));
            return Ok(());
        }
        for child in node.children(&line, span) {
            if self.rewrite(child, span, new).is_err() {
                let refilled = self.refill(node, span, new, roomy::<I>(node.height));
                return refilled.unwrap_or(Err(Overflow));
            }
        }
        Ok(())
    }

    /// Replaces the parts of a span, and rebuilds everything below a node. Fails if the result has more than `limit`
    /// parts.
    fn refill(
        &mut self,
        node: Node,
        span: Span,
        new: &[(u32, I)],
        limit: usize,
    ) -> Result<Result<(), Overflow>, Full> {
        let old = self.collect(node.at, node.height, node.region.first);
        let parts = splice(&old, node.region, span, new);
        if parts.len() > limit {
            return Ok(Err(Overflow));
        }
        self.clear(node.at, node.height);
        self.fill(node.at, node.height, &parts)?;
        Ok(Ok(()))
    }

    /// Returns all parts below a line whose region begins with `first`.
    pub(super) fn collect(&self, at: u32, height: usize, first: u32) -> Vec<(u32, I)> {
        let mut parts = Vec::new();
        let region = Span {
            first,
            last: u32::MAX,
        };
        self.visit(
            Node { at, height, region },
            Span::ALL,
            &mut |start, item| {
                parts.push((start, item));
            },
        );
        parts
    }

    /// Collects the references whose parts begin in a span.
    fn references(&self, node: Node, span: Span, found: &mut Vec<u32>) {
        self.visit(node, span, &mut |start, item| {
            if (span.first..=span.last).contains(&start) {
                found.extend(item.reference_index());
            }
        });
    }

    /// Calls `visit` for the parts of all leaves that have keys of the span.
    fn visit(&self, node: Node, span: Span, visit: &mut impl FnMut(u32, I)) {
        let line = self.pool.get(node.at);
        if node.height == 1 {
            line.parts(node.region.first)
                .for_each(|(start, item)| visit(start, item));
            return;
        }
        for child in node.children(line, span) {
            self.visit(child, span, visit);
        }
    }

    /// Returns the item of a key.
    fn find(&self, top: u32, segment: usize, key: u32) -> I {
        let mut found = I::answer(None);
        let node = Node {
            at: top,
            height: self.heights[segment],
            region: Span::ALL,
        };
        let span = Span {
            first: key,
            last: key,
        };
        self.visit(node, span, &mut |start, item| {
            if start <= key {
                found = item;
            }
        });
        found
    }

    /// Returns the answer of a tree if it has one answer for all keys. Stops at the first item that differs.
    pub(super) fn single(&self, top: u32, segment: usize) -> Option<I> {
        let mut first = None;
        let same = self.all(top, self.heights[segment], &mut |item: I| {
            item.reference_index().is_none() && *first.get_or_insert(item) == item
        });
        first.filter(|_| same)
    }

    /// Returns whether `wanted` is true for all items below a line. Stops at the first item for which it is false.
    fn all(&self, at: u32, height: usize, wanted: &mut impl FnMut(I) -> bool) -> bool {
        let line = self.pool.get(at);
        if height == 1 {
            return line.parts(0).all(|(_, item)| wanted(item));
        }
        let children = 0..=line.inner_starts().count() as u32;
        children
            .into_iter()
            .all(|child| self.all(line.first_child() + child, height - 1, wanted))
    }

    /// Frees a tree, and all trees to which it refers.
    pub(super) fn release(&mut self, top: u32, segment: usize) {
        let mut references = Vec::new();
        let node = Node {
            at: top,
            height: self.heights[segment],
            region: Span::ALL,
        };
        self.references(node, Span::ALL, &mut references);
        for index in references {
            self.release(self.further[index as usize], segment + 1);
            self.free.push(index);
        }
        self.clear(top, node.height);
        self.pool.give(top, 1);
    }

    /// Frees the lines below a line.
    fn clear(&mut self, at: u32, height: usize) {
        if height == 1 {
            return;
        }
        let line = self.pool.get(at);
        let (first, count) = (line.first_child(), line.inner_starts().count() + 1);
        for child in 0..count {
            self.clear(first + child as u32, height - 1);
        }
        self.pool.give(first, count);
    }
}
