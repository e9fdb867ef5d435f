// SPDX-License-Identifier: Apache-2.0
//! Memory of segments: each has its own as long as there are few, then they lie side by side in
//! blocks of the size of a huge page. A look-up among millions of keys would otherwise spend most of
//! its time on finding out where pages are.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::SEGMENT_BYTES;
use crate::bucket::{LINE, Line};

/// A huge page.
const BLOCK: Layout = match Layout::from_size_align(2 << 20, 2 << 20) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// So many segments have memory of their own: a huge page for them would be wasted.
const ALONE: usize = 16;

/// Blocks, which are never given back before the end.
#[derive(Default)]
pub(crate) struct Blocks {
    blocks: Vec<NonNull<u8>>,
    /// Bytes of the last block that are in use.
    used: usize,
}

// SAFETY: blocks are memory like any other's; who has a piece of one has it alone.
unsafe impl Send for Blocks {}
// SAFETY: as for `Send`.
unsafe impl Sync for Blocks {}

impl Blocks {
    /// Empty lines for a segment of a table that has so many.
    pub(crate) fn lines(&mut self, lines: usize, segments: usize) -> Lines {
        let bytes = lines * LINE;
        if segments < ALONE || bytes > SEGMENT_BYTES {
            return Lines::Alone(vec![Line::EMPTY; lines]);
        }
        if self.blocks.is_empty() || self.used + bytes > BLOCK.size() {
            self.blocks.push(new_block());
            self.used = 0;
        }
        let block = self.blocks.last().expect("there is one now");
        // SAFETY: `used + bytes` is at most a block's size.
        let start = unsafe { block.add(self.used) }.cast::<Line>();
        self.used += bytes;
        // SAFETY: these bytes of the block are in use nowhere else; a line may be all zeros.
        unsafe { start.write_bytes(0, lines) };
        Lines::Piece { start, lines }
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK.size()
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.blocks.iter().copied().for_each(give_back);
    }
}

/// A block from the system, none of which has been touched: only then does it come as a huge page. The allocator's
/// memory is made of small pages already, in part or in whole.
#[cfg(target_os = "linux")]
fn new_block() -> NonNull<u8> {
    // SAFETY: a new private mapping, of which nothing else knows.
    let mapping = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            2 * BLOCK.size(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapping == libc::MAP_FAILED {
        handle_alloc_error(BLOCK);
    }
    let mapping = mapping.cast::<u8>();
    let before = mapping.align_offset(BLOCK.align());
    // SAFETY: the mapping is twice as long as a block, so one lies in it; the rest of it, in whole pages, is given
    // back. The advice is about memory that is ours; where it is refused, nothing is lost but speed.
    unsafe {
        let block = mapping.add(before);
        if before != 0 {
            libc::munmap(mapping.cast(), before);
        }
        libc::munmap(block.add(BLOCK.size()).cast(), BLOCK.size() - before);
        libc::madvise(block.cast(), BLOCK.size(), libc::MADV_HUGEPAGE);
        NonNull::new_unchecked(block)
    }
}

#[cfg(target_os = "linux")]
fn give_back(block: NonNull<u8>) {
    // SAFETY: `new_block` made the mapping, and no segment of the table is used any more.
    unsafe { libc::munmap(block.as_ptr().cast(), BLOCK.size()) };
}

#[cfg(not(target_os = "linux"))]
fn new_block() -> NonNull<u8> {
    // SAFETY: the layout has a size.
    NonNull::new(unsafe { std::alloc::alloc(BLOCK) }).unwrap_or_else(|| handle_alloc_error(BLOCK))
}

#[cfg(not(target_os = "linux"))]
fn give_back(block: NonNull<u8>) {
    // SAFETY: it was allocated with this layout, and no segment of the table is used any more.
    unsafe { std::alloc::dealloc(block.as_ptr(), BLOCK) };
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
