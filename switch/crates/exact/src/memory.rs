// SPDX-License-Identifier: Apache-2.0
//! Memory of segments: each has its own as long as there are few; from then on those that are made,
//! and those that are parted, have their places in one piece of address space, in huge pages. A look-up
//! among millions of keys would otherwise spend most of its time on finding out where pages are; and
//! where every segment is in its place, nothing has to be read to know where it is.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use sluice_pages::{HUGE, Reserved};

use crate::SEGMENT_BYTES;
use crate::bucket::{LINE, Line};

/// So many segments have memory of their own: a huge page for them would be wasted.
const ALONE: usize = 16;

/// Segments that there is address space for. More of them have memory of their own.
const PLACES: usize = 1 << 16;

/// Segments of a huge page.
const TOGETHER: usize = HUGE / SEGMENT_BYTES;

/// Places for segments, which are never given back before the end.
#[derive(Default)]
pub(crate) struct Room {
    /// From the first segment on that has its place here.
    reserved: Option<Reserved>,
    /// Which huge pages have been touched.
    touched: Vec<bool>,
}

impl Room {
    /// Empty lines for a segment of a table that has so many, whose place nobody else has.
    pub(crate) fn lines(&mut self, lines: usize, place: usize, segments: usize) -> Lines {
        if segments < ALONE || lines * LINE != SEGMENT_BYTES {
            return Lines::alone(lines);
        }
        match self.place(place) {
            // SAFETY: `place` gives room for a segment, which is in use nowhere else; a line may be all zeros.
            Some(start) => unsafe {
                start.write_bytes(0, lines);
                Lines::Piece { start, lines }
            },
            None => Lines::alone(lines),
        }
    }

    /// Where the segment of a place begins; nothing where there is no memory for it here.
    fn place(&mut self, place: usize) -> Option<NonNull<Line>> {
        if place >= PLACES {
            return None;
        }
        if self.reserved.is_none() {
            self.reserved = Reserved::new(PLACES * SEGMENT_BYTES);
        }
        let reserved = self.reserved.as_mut()?;
        // Places come in any order, up to the next power of two.
        let places = (place + 1).next_power_of_two();
        if !reserved.grow(places * SEGMENT_BYTES) {
            return None;
        }
        let page = place / TOGETHER;
        self.touched.resize(self.touched.len().max(page + 1), false);
        self.touched[page] = true;
        // SAFETY: the place is within what can be used.
        Some(unsafe { reserved.start().add(place * SEGMENT_BYTES) }.cast())
    }

    /// Where the first place is.
    pub(crate) fn start(&self) -> Option<NonNull<Line>> {
        Some(self.reserved.as_ref()?.start().cast())
    }

    /// Bytes that have been touched.
    pub(crate) fn bytes(&self) -> usize {
        self.touched.iter().filter(|page| **page).count() * HUGE
    }
}

/// A segment's lines.
pub(crate) enum Lines {
    Alone(Vec<Line>),
    /// Of a table's room, which outlives this: both belong to one table.
    Piece {
        start: NonNull<Line>,
        lines: usize,
    },
}

// SAFETY: a piece is this one's alone, and the room stays.
unsafe impl Send for Lines {}
// SAFETY: as for `Send`; lines are written through exclusive borrows only.
unsafe impl Sync for Lines {}

impl Lines {
    fn alone(lines: usize) -> Self {
        Self::Alone(vec![Line::EMPTY; lines])
    }

    /// Bytes that are not in a table's room.
    pub(crate) fn own_bytes(&self) -> usize {
        match self {
            Self::Alone(lines) => size_of_val(&**lines),
            Self::Piece { .. } => 0,
        }
    }
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        match self {
            Self::Alone(lines) => lines,
            // SAFETY: the piece is as long, was written when it was handed out, and nobody else has it.
            Self::Piece { start, lines } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *lines)
            },
        }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        match self {
            Self::Alone(lines) => lines,
            // SAFETY: as for `deref`; the borrow is exclusive.
            Self::Piece { start, lines } => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), *lines)
            },
        }
    }
}
