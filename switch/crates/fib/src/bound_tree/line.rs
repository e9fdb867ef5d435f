// SPDX-License-Identifier: Apache-2.0
//! A line of a tree. It is a cache line. A line stands for a range of keys, its region. Its bounds divide the region
//! into parts. Each part has a child or an item, which the line also holds.

use crate::lookup_item::LookupItem;

/// Maximum number of children of an inner line.
pub(super) const FANOUT: usize = 16;

/// Mask of the words of an inner line that are bounds: all words except the last one.
pub(super) const INNER: u32 = (1 << (FANOUT - 1)) - 1;

/// Size of a line in bytes.
const SIZE: usize = 64;

/// Value of an unused word. No key exceeds this value.
const PAD: u32 = u32::MAX;

/// A line. Its first words are bounds in ascending order. The bound of a part is the part's first key minus one. The
/// first part has no bound. So the number of bounds below a key is the index of the key's part, and unused words never
/// count. In an inner line, the last word is the number of the line that holds the first child. The other children are
/// in the lines after it. A leaf ends with the items of its parts.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line([u32; SIZE / 4]);

/// Returns the maximum number of parts of a leaf. Each part takes one item, and each part but the first takes a bound.
pub(super) const fn leaf_fanout<I: LookupItem>() -> usize {
    (SIZE + 4) / (4 + I::SIZE)
}

/// Returns the mask of the words of a leaf that are bounds.
pub(super) const fn leaf<I: LookupItem>() -> u32 {
    (1 << (leaf_fanout::<I>() - 1)) - 1
}

/// Returns the bound for a part that begins at the key `start`, which is not 0.
fn bound(start: u32) -> u32 {
    start.wrapping_sub(1)
}

/// Returns the first key of the part after a bound.
fn start(bound: u32) -> u32 {
    bound.wrapping_add(1)
}

impl Line {
    pub(super) const EMPTY: Self = Self([PAD; SIZE / 4]);

    /// Creates an inner line. `first` is the number of the first child's line. `starts` has the first keys of the other
    /// children, at most 15.
    pub(super) fn inner(first: u32, starts: impl Iterator<Item = u32>) -> Self {
        let mut line = Self::EMPTY;
        for (word, start) in line.0[..FANOUT - 1].iter_mut().zip(starts) {
            *word = bound(start);
        }
        line.0[FANOUT - 1] = first;
        line
    }

    /// Creates a leaf with one to [`leaf_fanout`] parts in ascending order. Ignores the first key of the first part.
    pub(super) fn leaf<I: LookupItem>(parts: &[(u32, I)]) -> Self {
        debug_assert!((1..=leaf_fanout::<I>()).contains(&parts.len()));
        let mut line = Self::EMPTY;
        for (word, (start, _)) in line.0.iter_mut().zip(&parts[1..]) {
            *word = bound(*start);
        }
        for (place, (_, item)) in line.items_mut().iter_mut().zip(parts) {
            *place = *item;
        }
        line
    }

    /// Returns the words.
    #[inline(always)]
    pub(super) fn words(&self) -> &[u32; SIZE / 4] {
        &self.0
    }

    /// Returns the line number of an inner line's first child.
    #[inline(always)]
    pub(super) fn first_child(&self) -> u32 {
        self.0[FANOUT - 1]
    }

    /// Returns the first keys of an inner line's children, except that of the first child.
    pub(super) fn inner_starts(&self) -> impl Iterator<Item = u32> + '_ {
        let bounds = self.0[..FANOUT - 1].iter();
        bounds
            .take_while(|bound| **bound != PAD)
            .map(|&bound| start(bound))
    }

    /// Returns the parts of a leaf, each with its first key and its item. The region of the leaf begins with `first`.
    pub(super) fn parts<I: LookupItem>(&self, first: u32) -> impl Iterator<Item = (u32, I)> + '_ {
        let bounds = self.0[..leaf_fanout::<I>() - 1].iter();
        let bounds = bounds.take_while(|bound| **bound != PAD);
        let starts = std::iter::once(first).chain(bounds.map(|&bound| start(bound)));
        starts.zip(self.items().iter().copied())
    }

    /// Returns the item of a leaf's part.
    ///
    /// # Safety
    /// `part` must be below [`leaf_fanout`].
    #[inline(always)]
    pub(super) unsafe fn item<I: LookupItem>(&self, part: u32) -> I {
        // SAFETY: guaranteed by the caller.
        unsafe { *self.items().get_unchecked(part as usize) }
    }

    /// Returns the items of a leaf, including unused ones.
    #[inline(always)]
    fn items<I: LookupItem>(&self) -> &[I] {
        let first = (SIZE / I::SIZE - leaf_fanout::<I>()) * I::SIZE;
        // SAFETY: items are numbers of two or four bytes, and the line is aligned for them. The items begin at `first`
        // and end at the end of the line.
        unsafe {
            let items = std::ptr::from_ref(self).cast::<u8>().add(first).cast();
            std::slice::from_raw_parts(items, leaf_fanout::<I>())
        }
    }

    fn items_mut<I: LookupItem>(&mut self) -> &mut [I] {
        let first = (SIZE / I::SIZE - leaf_fanout::<I>()) * I::SIZE;
        // SAFETY: as in `items`. Any bits are a valid line.
        unsafe {
            let items = std::ptr::from_mut(self).cast::<u8>().add(first).cast();
            std::slice::from_raw_parts_mut(items, leaf_fanout::<I>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds<I: LookupItem>() {
        let parts: Vec<(u32, I)> = [7, 8, 9, 1 << 31, u32::MAX - 1, u32::MAX]
            .into_iter()
            .map(|start| (start, I::new(start % 1000 + 1)))
            .collect();
        for count in 1..=parts.len() {
            let line = Line::leaf(&parts[..count]);
            let held: Vec<(u32, I)> = line.parts(7).collect();
            assert_eq!(held, parts[..count]);
        }
    }

    #[test]
    fn a_leaf_holds_its_parts() {
        holds::<u16>();
        holds::<u32>();
        assert_eq!((leaf_fanout::<u16>(), leaf_fanout::<u32>()), (11, 8));
    }

    #[test]
    fn an_inner_line_holds_its_children() {
        for count in 0..FANOUT as u32 {
            let starts = || (0..count).map(|index| index * 0x1111_1111 + 1);
            let line = Line::inner(u32::MAX, starts());
            assert!(line.inner_starts().eq(starts()));
            assert_eq!(line.first_child(), u32::MAX);
        }
    }
}
