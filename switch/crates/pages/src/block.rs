// SPDX-License-Identifier: Apache-2.0
//! Allocates memory from the operating system, in huge pages where possible.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

/// Size of a huge page in bytes.
pub const HUGE: usize = 2 << 20;

/// Size of a normal page in bytes.
const SMALL: usize = 4 << 10;

/// Zeroed memory, aligned to a huge page. Dropping the block frees the memory.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block owns its memory exclusively, and no thread-local state belongs to it.
unsafe impl Send for Block {}
// SAFETY: as for `Send`. A shared borrow gives only the address. Code that dereferences this address must prevent data
// races.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates at least `bytes` bytes, rounded up to whole pages. Uses huge pages if they are available. A rest that
    /// is smaller than a huge page is in normal pages.
    ///
    /// # Panics
    /// Panics if `bytes` exceeds half of the address space. Aborts if there is no memory.
    pub fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(Self::size_for(bytes), HUGE)
            .expect("the size is less than half of all addresses");
        Self {
            start: take(layout),
            layout,
        }
    }

    /// Returns the size of a block for `bytes` bytes: a number of whole pages, at least one.
    pub(crate) fn size_for(bytes: usize) -> usize {
        bytes.max(1).next_multiple_of(SMALL)
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        give_back(self.start, self.layout);
    }
}

/// Maps new memory, without the allocator. The kernel uses huge pages only for memory that was never touched, and the
/// allocator may return memory that already consists of normal pages.
#[cfg(all(target_os = "linux", not(miri)))]
fn take(layout: Layout) -> NonNull<u8> {
    // SAFETY: this creates a new private mapping, to which no other reference exists.
    let mapping = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            layout.size() + HUGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapping == libc::MAP_FAILED {
        handle_alloc_error(layout);
    }
    let mapping = mapping.cast::<u8>();
    let before = mapping.align_offset(HUGE);
    // SAFETY: the mapping is longer than the layout by a huge page, so an aligned range of the layout's size lies in
    // the mapping. Only the pages before and after this range are unmapped here.
    unsafe {
        let start = mapping.add(before);
        if before != 0 {
            libc::munmap(mapping.cast(), before);
        }
        libc::munmap(start.add(layout.size()).cast(), HUGE - before);
        libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE);
        NonNull::new_unchecked(start)
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn give_back(start: NonNull<u8>, layout: Layout) {
    // SAFETY: `take` made this mapping, and no code uses the mapping any more.
    unsafe { libc::munmap(start.as_ptr().cast(), layout.size()) };
}

#[cfg(any(not(target_os = "linux"), miri))]
fn take(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout has a size.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(any(not(target_os = "linux"), miri))]
fn give_back(start: NonNull<u8>, layout: Layout) {
    // SAFETY: `take` allocated the memory with this layout, and no code uses the memory any more.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_aligned_zeroed_and_large_enough() {
        for bytes in [0, 1, SMALL, HUGE - 1, HUGE, 2 * HUGE + 5000] {
            let block = Block::new(bytes);
            assert!(block.bytes() >= bytes.max(1) && block.bytes() < bytes + 2 * SMALL);
            assert_eq!(block.start().align_offset(HUGE), 0);
            // SAFETY: the block has this number of bytes, and all of them are initialised.
            let all = unsafe { std::slice::from_raw_parts(block.start().as_ptr(), block.bytes()) };
            assert!(all.iter().all(|byte| *byte == 0));
            let last = block.bytes() - 1;
            // SAFETY: the byte lies in the block, and no reference to it exists.
            unsafe { block.start().add(last).write(1) };
        }
    }
}
