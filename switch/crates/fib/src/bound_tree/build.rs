// SPDX-License-Identifier: Apache-2.0
//! Builds trees from ranges of addresses.

use super::line::{FANOUT, Line, leaf_fanout};
use super::line_pool::{Full, LinePool};
use crate::address::Address;
use crate::lookup_item::LookupItem;

/// Number of segments of an address after the first 16 bits.
pub(super) const SEGMENTS: usize = 4;

/// Number of children of an inner line in a newly built tree. The maximum is sixteen. The unused two are room for later
/// changes.
const CHILDREN: usize = 14;

/// Returns the number of address bits before a segment.
pub(super) fn segment_start(segment: usize) -> u32 {
    16 + 32 * segment as u32
}

/// Returns the number of address bits up to the end of a segment.
pub(super) fn segment_end(segment: usize) -> u32 {
    (segment_start(segment) + 32).min(u128::BITS)
}

/// Returns an address's key in a segment: the segment's 32 bits, zero-padded.
#[inline(always)]
pub(super) fn key(address: u128, segment: usize) -> u32 {
    address.bits(segment_start(segment), 32)
}

/// Returns the last key of an address in a segment: the segment's bits, padded with ones. Only the last segment has
/// fewer than 32 bits.
pub(super) fn last_key(address: u128, segment: usize) -> u32 {
    let padding = segment_start(segment) + 32 - segment_end(segment);
    key(address, segment) | ((1 << padding) - 1)
}

/// Appends a part that begins at `start`. If the last part begins there too, it is empty and is removed. Adjacent equal
/// answers are merged.
pub(super) fn push<I: LookupItem>(parts: &mut Vec<(u32, I)>, start: u32, item: I) {
    parts.pop_if(|(last, _)| *last == start);
    let same = parts.last().is_some_and(|(_, last)| *last == item);
    if !(same && item.reference_index().is_none()) {
        parts.push((start, item));
    }
}

/// Content of a cell of a segment. A cell is a range of keys with one answer, or a single key whose addresses differ in
/// later bits. Such a key has cells of the next segment.
#[derive(Debug)]
pub(super) enum Content<I> {
    Answer(I),
    Further(Cells<I>),
}

/// Cells of a segment in ascending order, each with its first key.
pub(super) type Cells<I> = Vec<(u32, Content<I>)>;

/// Converts ranges of addresses to cells of a segment. The addresses must agree in all bits before the segment. The
/// first address must have 0 in all bits after the segment.
pub(super) fn cells<I: LookupItem>(ranges: &[(u128, I)], segment: usize) -> Cells<I> {
    let rest = u128::BITS - segment_end(segment);
    let mut found: Cells<I> = Vec::new();
    let mut push = |start: u32, content: Content<I>| {
        found.pop_if(|(last, _)| *last == start);
        let same = |(_, last): &(u32, Content<I>)| match (last, &content) {
            (Content::Answer(one), Content::Answer(other)) => one == other,
            _ => false,
        };
        if !found.last().is_some_and(same) {
            found.push((start, content));
        }
    };
    let mut next = 0;
    while let Some(&(start, item)) = ranges.get(next) {
        let first = next;
        let cell = key(start, segment);
        next += ranges[first..].partition_point(|(other, _)| other >> rest == start >> rest);
        let begin = start >> rest << rest;
        let whole = begin == start;
        if whole && next == first + 1 {
            push(cell, Content::Answer(item));
            continue;
        }
        let mut inside = ranges[first - usize::from(!whole)..next].to_vec();
        inside[0].0 = begin;
        push(cell, Content::Further(cells(&inside, segment + 1)));
        if let Some(after) = cell.checked_add(1) {
            push(after, Content::Answer(ranges[next - 1].1));
        }
    }
    found
}

/// For each segment, the common height of all its trees. A tree of a single leaf has the height 1.
pub(super) type Heights = [usize; SEGMENTS];

/// Raises the height of a segment so that a tree has room for these cells.
pub(super) fn raise<I: LookupItem>(heights: &mut Heights, segment: usize, cells: &Cells<I>) {
    while roomy::<I>(heights[segment]) < cells.len() {
        heights[segment] += 1;
    }
    for (_, content) in cells {
        if let Content::Further(below) = content {
            raise(heights, segment + 1, below);
        }
    }
}

/// Returns the maximum number of parts of a tree of this height.
pub(super) fn most<I: LookupItem>(height: usize) -> usize {
    leaf_fanout::<I>() * FANOUT.pow(height as u32 - 1)
}

/// Returns the maximum number of parts with which a tree of this height still has room for changes.
pub(super) fn roomy<I: LookupItem>(height: usize) -> usize {
    most::<I>(height) * 7 / 8
}

/// Returns the number of parts that a newly built tree of this height has.
fn typical<I: LookupItem>(height: usize) -> usize {
    (leaf_fanout::<I>() - 1) * CHILDREN.pow(height as u32 - 1)
}

/// The trees of all segments, with the lines and references that they share.
#[derive(Clone, Debug)]
pub(super) struct Trees<I> {
    pub(super) pool: LinePool,
    /// For each reference, the topmost line of a tree of the next segment.
    pub(super) further: Vec<u32>,
    pub(super) free: Vec<u32>,
    pub(super) heights: Heights,
    items: std::marker::PhantomData<I>,
}

impl<I: LookupItem> Trees<I> {
    pub(super) fn new(heights: Heights) -> Self {
        Self {
            pool: LinePool::default(),
            further: Vec::new(),
            free: Vec::new(),
            heights,
            items: std::marker::PhantomData,
        }
    }

    /// Builds a tree for cells of a segment. Returns its topmost line.
    pub(super) fn plant(&mut self, cells: Cells<I>, segment: usize) -> Result<u32, Full> {
        let parts = self.parts(cells, segment)?;
        let height = self.heights[segment];
        if parts.len() > most::<I>(height) {
            return Err(Full);
        }
        let top = self.pool.take(1)?;
        self.fill(top, height, &parts)?;
        Ok(top)
    }

    /// Converts cells of a segment to parts. Builds trees for cells of the next segment.
    pub(super) fn parts(&mut self, cells: Cells<I>, segment: usize) -> Result<Vec<(u32, I)>, Full> {
        let mut part = |(start, content): (u32, Content<I>)| {
            let item = match content {
                Content::Answer(item) => item,
                Content::Further(below) => {
                    let top = self.plant(below, segment + 1)?;
                    self.refer(top)?
                }
            };
            Ok((start, item))
        };
        cells.into_iter().map(&mut part).collect()
    }

    /// Returns a new reference to a tree.
    fn refer(&mut self, top: u32) -> Result<I, Full> {
        if let Some(index) = self.free.pop() {
            self.further[index as usize] = top;
            return Ok(I::reference(index));
        }
        let index = self.further.len() as u32;
        if index > I::LIMIT {
            return Err(Full);
        }
        self.further.push(top);
        Ok(I::reference(index))
    }

    /// Writes a tree for at most [`most`] parts to a line and to new lines below this line.
    pub(super) fn fill(&mut self, at: u32, height: usize, parts: &[(u32, I)]) -> Result<(), Full> {
        if height == 1 {
            self.pool.set(at, Line::leaf(parts));
            return Ok(());
        }
        let count = parts.len().div_ceil(typical::<I>(height - 1)).min(FANOUT);
        let first = self.pool.take(count)?;
        let from = |child: usize| parts.len() * child / count;
        let starts = (1..count).map(|child| parts[from(child)].0);
        self.pool.set(at, Line::inner(first, starts));
        for child in 0..count {
            let own = &parts[from(child)..from(child + 1)];
            self.fill(first + child as u32, height - 1, own)?;
        }
        Ok(())
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let references = self.further.capacity() + self.free.capacity();
        self.pool.memory_bytes() + references * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_any_size_fits_into_its_height() {
        for height in 1..4 {
            let most = most::<u16>(height);
            for count in [1, most / 3, roomy::<u16>(height), most - 1, most] {
                let parts: Vec<(u32, u16)> = (0..count as u32).map(|i| (3 * i, i as u16)).collect();
                let mut trees = Trees::<u16>::new([height; SEGMENTS]);
                let top = trees.pool.take(1).expect("the first line");
                trees.fill(top, height, &parts).expect("they fit");
                assert_eq!(trees.collect(top, height, 0), parts);
            }
        }
    }
}
