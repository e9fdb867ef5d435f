// SPDX-License-Identifier: Apache-2.0
//! Memory of segments: each has its own as long as there are few; from then on those that are made,
//! and those that are parted, lie side by side in blocks of the size of a huge page. A look-up
//! among millions of keys would otherwise spend most of its time on finding out where pages are.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use sluice_pages::{Block, HUGE};

use crate::SEGMENT_BYTES;
use crate::bucket::{LINE, Line};

/// So many segments have memory of their own: a huge page for them would be wasted.
const ALONE: usize = 16;

/// Blocks, which are never given back before the end.
#[derive(Default)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    /// Bytes of the last block that are in use.
    used: usize,
}

impl Blocks {
    /// Empty lines for a segment of a table that has so many.
    pub(crate) fn lines(&mut self, lines: usize, segments: usize) -> Lines {
        let bytes = lines * LINE;
        if segments < ALONE || bytes > SEGMENT_BYTES {
            return Lines::Alone(vec![Line::EMPTY; lines]);
        }
        if self.blocks.is_empty() || self.used + bytes > HUGE {
            self.blocks.push(Block::new(HUGE));
            self.used = 0;
        }
        let block = self.blocks.last().expect("there is one now");
        // SAFETY: `used + bytes` is at most a block's size.
        let start = unsafe { block.start().add(self.used) }.cast::<Line>();
        self.used += bytes;
        // SAFETY: these bytes of the block are in use nowhere else; a line may be all zeros.
        unsafe { start.write_bytes(0, lines) };
        Lines::Piece { start, lines }
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * HUGE
    }
}

/// A segment's lines.
pub(crate) enum Lines {
    Alone(Vec<Line>),
    /// Of a block, which outlives this: both belong to one table.
    Piece {
        start: NonNull<Line>,
        lines: usize,
    },
}

// SAFETY: a piece is this one's alone, and the blocks stay.
unsafe impl Send for Lines {}
// SAFETY: as for `Send`; lines are written through exclusive borrows only.
unsafe impl Sync for Lines {}

impl Lines {
    /// Bytes that are not a block's.
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
