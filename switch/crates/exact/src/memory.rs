// SPDX-License-Identifier: Apache-2.0
//! Memory of segments. While a table has few segments, each segment has its own allocation. Later, new segments and
//! both parts of a split segment are in one range of address space, in huge pages. Without huge pages, a lookup among
//! millions of keys would spend most of its time on TLB misses.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use sluice_pages::{HUGE, Reserved};

use crate::bucket::{LINE, Line};

/// Size in bytes of a segment in a table with several segments. An insertion moves at most the keys of one segment.
pub const SEGMENT_BYTES: usize = 64 << 10;

/// A table with at least this number of segments uses the address range. With fewer segments, most of a huge page would
/// be unused.
const RANGE_SEGMENTS: usize = 16;

/// Number of segments for which address space is reserved. Segments at higher positions have their own allocations.
const RESERVED_SEGMENTS: usize = 1 << 16;

/// Number of segments in a huge page.
const TOGETHER: usize = HUGE / SEGMENT_BYTES;

/// Address range for the segments of one table. It is freed only when the table is dropped.
#[derive(Default)]
pub(crate) struct SegmentMemory {
    /// The reserved range. `None` until a segment is in the range.
    reserved: Option<Reserved>,
    /// For each huge page, whether it has been touched.
    touched: Vec<bool>,
}

impl SegmentMemory {
    /// Returns empty lines for the segment at `position`, which no other segment may use. `segments` is the number of
    /// segments in the table.
    pub(crate) fn lines(&mut self, lines: usize, position: usize, segments: usize) -> Lines {
        if segments < RANGE_SEGMENTS || lines * LINE != SEGMENT_BYTES {
            return Lines::allocated(lines);
        }
        match self.at(position) {
            // SAFETY: `at` returns memory for one segment, and no other code uses this memory. A line may be all zeros.
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

    /// Returns the address of a position, or `None` if the range has no memory for the position.
    fn at(&mut self, position: usize) -> Option<NonNull<Line>> {
        if position >= RESERVED_SEGMENTS {
            return None;
        }
        if self.reserved.is_none() {
            self.reserved = Reserved::new(RESERVED_SEGMENTS * SEGMENT_BYTES).ok();
        }
        let reserved = self.reserved.as_ref()?;
        // Splits request the positions below the next power of two in any order, so all of them get memory.
        let segments = (position + 1).next_power_of_two();
        let bytes = (segments * SEGMENT_BYTES).next_multiple_of(HUGE);
        reserved.grow(bytes, true).ok()?;
        let page = position / TOGETHER;
        self.touched.resize(self.touched.len().max(page + 1), false);
        self.touched[page] = true;
        // SAFETY: the position is within the usable part of the range.
        Some(unsafe { reserved.start().add(position * SEGMENT_BYTES) }.cast())
    }

    /// Returns the total size of the touched huge pages in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.touched.iter().filter(|page| **page).count() * HUGE
    }
}

/// The cache lines of a segment. Invariant: all accesses derive from `start`. So views, which are copies of `start`,
/// stay valid when the lines are written.
pub(crate) struct Lines {
    start: NonNull<Line>,
    lines: usize,
    /// Whether the lines have their own allocation. Otherwise they are part of the table's [`SegmentMemory`], which
    /// outlives the segment.
    own: bool,
}

// SAFETY: the lines are owned exclusively, and the memory of their table outlives them.
unsafe impl Send for Lines {}
// SAFETY: as for `Send`. Lines are written only through exclusive borrows.
unsafe impl Sync for Lines {}

impl Lines {
    /// Allocates empty lines.
    fn allocated(lines: usize) -> Self {
        vec![Line::EMPTY; lines].into()
    }

    /// Returns the address of the first line. The address is valid for reads until the lines are dropped.
    pub(crate) fn start(&self) -> NonNull<Line> {
        self.start
    }

    /// Returns whether the lines have their own allocation.
    pub(crate) fn has_own_memory(&self) -> bool {
        self.own
    }

    /// Returns the number of bytes that are not in a table's [`SegmentMemory`].
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
        // SAFETY: there are `lines` lines. They were initialised on creation and have no other owner.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.lines) }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        // SAFETY: as for `deref`. The borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.lines) }
    }
}
