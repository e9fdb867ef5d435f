// SPDX-License-Identifier: Apache-2.0
//! Memory of segments. While a table has few segments, each has its own allocation. Segments created or split later
//! have positions in one range of address space, in huge pages. Otherwise a lookup among millions of keys would
//! spend most of its time on address translation (TLB misses).

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use sluice_pages::{HUGE, Reserved};

use crate::SEGMENT_BYTES;
use crate::bucket::{LINE, Line};

/// Number of segments from which the address range is used. For fewer, a huge page would be wasted.
const RANGE_SEGMENTS: usize = 16;

/// Segments for which address space is reserved. Segments at positions beyond have their own allocations.
const RESERVED_SEGMENTS: usize = 1 << 16;

/// Segments in a huge page.
const TOGETHER: usize = HUGE / SEGMENT_BYTES;

/// Address range for the segments of one table. Freed only when the table is dropped.
#[derive(Default)]
pub(crate) struct SegmentMemory {
    /// The reserved range, once a segment is in it.
    reserved: Option<Reserved>,
    /// Huge pages that have been touched.
    touched: Vec<bool>,
}

impl SegmentMemory {
    /// Returns empty lines for a segment. `segments` is the number of segments in the table. No other segment may use
    /// `position`.
    pub(crate) fn lines(&mut self, lines: usize, position: usize, segments: usize) -> Lines {
        if segments < RANGE_SEGMENTS || lines * LINE != SEGMENT_BYTES {
            return Lines::allocated(lines);
        }
        match self.at(position) {
            // SAFETY: `at` returns memory for one segment, which is not in use elsewhere. A line may be all zeros.
            Some(start) => unsafe {
                start.write_bytes(0, lines);
                Lines {
                    start,
                    lines,
                    own: false,
                }
            },
            None => Lines::allocated(lines),
        }
    }

    /// Returns the address of a position, or `None` if there is no memory for it in the range.
    fn at(&mut self, position: usize) -> Option<NonNull<Line>> {
        if position >= RESERVED_SEGMENTS {
            return None;
        }
        if self.reserved.is_none() {
            self.reserved = Reserved::new(RESERVED_SEGMENTS * SEGMENT_BYTES).ok();
        }
        let reserved = self.reserved.as_ref()?;
        // Positions are requested in any order, up to the next power of two.
        let segments = (position + 1).next_power_of_two();
        let bytes = (segments * SEGMENT_BYTES).next_multiple_of(HUGE);
        reserved.grow(bytes, true).ok()?;
        let page = position / TOGETHER;
        self.touched.resize(self.touched.len().max(page + 1), false);
        self.touched[page] = true;
        // SAFETY: the position is within the usable part of the range.
        Some(unsafe { reserved.start().add(position * SEGMENT_BYTES) }.cast())
    }

    /// Returns the bytes of touched huge pages.
    pub(crate) fn bytes(&self) -> usize {
        self.touched.iter().filter(|page| **page).count() * HUGE
    }
}

/// Lines of a segment. Invariant: all accesses derive from `start`, so that views, which are copies of `start`, stay
/// valid when the lines are written.
pub(crate) struct Lines {
    start: NonNull<Line>,
    lines: usize,
    /// Whether the lines have their own allocation. Otherwise they are part of the [`SegmentMemory`] of the segment's
    /// table, which outlives the segment.
    own: bool,
}

// SAFETY: lines are owned exclusively, and the memory of their table outlives them.
unsafe impl Send for Lines {}
// SAFETY: as for `Send`. Lines are written only through exclusive borrows.
unsafe impl Sync for Lines {}

impl Lines {
    /// Allocates empty lines.
    fn allocated(lines: usize) -> Self {
        vec![Line::EMPTY; lines].into()
    }

    /// Returns the address of the first line. Valid for reads until the lines are dropped.
    pub(crate) fn start(&self) -> NonNull<Line> {
        self.start
    }

    /// Returns whether the lines have their own allocation.
    pub(crate) fn has_own_memory(&self) -> bool {
        self.own
    }

    /// Returns the bytes that are not in a table's [`SegmentMemory`].
    pub(crate) fn own_bytes(&self) -> usize {
        if self.own { self.lines * LINE } else { 0 }
    }
}

impl From<Vec<Line>> for Lines {
    fn from(lines: Vec<Line>) -> Self {
        let all = NonNull::from(Box::leak(lines.into_boxed_slice()));
        Self {
            start: all.cast(),
            lines: all.len(),
            own: true,
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.own {
            let all = NonNull::slice_from_raw_parts(self.start, self.lines);
            // SAFETY: the lines were leaked from a box of this length, and no code uses them any more.
            drop(unsafe { Box::from_raw(all.as_ptr()) });
        }
    }
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        // SAFETY: there are so many lines. They were initialised on creation and have no other owner.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.lines) }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        // SAFETY: as for `deref`. The borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.lines) }
    }
}
