// SPDX-License-Identifier: Apache-2.0
//! From ranges of addresses to trees.

use super::line::{FANOUT, Line, ways};
use super::pool::Pool;
use crate::Address;
use crate::item::Item;

/// Segments of an address after the first 16 bits.
pub(super) const SEGMENTS: usize = 4;

/// The structure has no room for more.
#[derive(Debug)]
pub(super) struct Full;

/// Children that an inner line gets when it is built, of sixteen: the rest is for later.
const CHILDREN: usize = 14;

/// The bits of an address before a segment.
pub(super) fn segment_start(segment: usize) -> u32 {
    16 + 32 * segment as u32
}

/// The bits of an address until the end of a segment.
pub(super) fn segment_end(segment: usize) -> u32 {
    (segment_start(segment) + 32).min(u128::BITS)
}

/// Of an address' bits, those of a segment: 32, zero-padded.
#[inline(always)]
pub(super) fn key(address: u128, segment: usize) -> u32 {
    address.bits(segment_start(segment), 32)
}

/// Likewise, padded with ones: the last key that means this address.
pub(super) fn last_key(address: u128, segment: usize) -> u32 {
    let padding = segment_start(segment) + 32 - segment_end(segment);
    key(address, segment) | ((1 << padding) - 1)
}

/// Appends a part that begins at `start`; one that ends where it begins disappears, and so does a
/// bound between equal answers.
pub(super) fn push<I: Item>(parts: &mut Vec<(u32, I)>, start: u32, item: I) {
    parts.pop_if(|(last, _)| *last == start);
    let same = parts.last().is_some_and(|(_, last)| *last == item);
    if !(same && item.part().is_none()) {
        parts.push((start, item));
    }
}

/// A segment's part: the answer, or what the next segment says.
#[derive(Debug)]
pub(super) enum Content<I> {
    Answer(I),
    Further(Cells<I>),
}

/// Parts of a segment in ascending order.
pub(super) type Cells<I> = Vec<(u32, Content<I>)>;

/// What a segment says, given ranges of addresses that agree in what is before it. The first range
/// begins with a key of the segment.
pub(super) fn cells<I: Item>(ranges: &[(u128, I)], segment: usize) -> Cells<I> {
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

/// How high the trees of every segment are: a leaf alone is 1.
pub(super) type Heights = [usize; SEGMENTS];

/// Raises heights to what these cells of a segment need.
pub(super) fn raise<I: Item>(heights: &mut Heights, segment: usize, cells: &Cells<I>) {
    while roomy::<I>(heights[segment]) < cells.len() {
        heights[segment] += 1;
    }
    for (_, content) in cells {
        if let Content::Further(below) = content {
            raise(heights, segment + 1, below);
        }
    }
}

/// Parts that a tree of a height can hold.
pub(super) fn most<I: Item>(height: usize) -> usize {
    ways::<I>() * FANOUT.pow(height as u32 - 1)
}

/// Parts that a tree of a height holds with room for some more.
pub(super) fn roomy<I: Item>(height: usize) -> usize {
    most::<I>(height) * 7 / 8
}

/// Parts that a tree of a height gets when it is built.
fn typical<I: Item>(height: usize) -> usize {
    (ways::<I>() - 1) * CHILDREN.pow(height as u32 - 1)
}

/// Trees over a segment's keys, and what they share.
#[derive(Clone, Debug)]
pub(super) struct Trees<I> {
    pub(super) pool: Pool,
    /// What references mean: the topmost line of a tree over the next segment.
    pub(super) further: Vec<u32>,
    pub(super) free: Vec<u32>,
    pub(super) heights: Heights,
    items: std::marker::PhantomData<I>,
}

impl<I: Item> Trees<I> {
    pub(super) fn new(heights: Heights) -> Self {
        Self {
            pool: Pool::default(),
            further: Vec::new(),
            free: Vec::new(),
            heights,
            items: std::marker::PhantomData,
        }
    }

    /// A tree for cells of a segment: its topmost line.
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

    /// Cells of a segment as a tree holds them, with trees for what the next segments say.
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

    /// A reference to a tree.
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

    /// Writes a tree for parts, at most [`most`], into a line and lines below it.
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

    /// Bytes on the heap.
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
