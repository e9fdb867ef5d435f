// SPDX-License-Identifier: Apache-2.0
//! Memory from the system, where possible in huge pages.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

/// Bytes of a normal page.
const SMALL: usize = 4 << 10;

/// Zeroed memory, aligned to a huge page. Dropping this frees it.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is memory like any other's; who has the block has it alone.
unsafe impl Send for Block {}
// SAFETY: as for `Send`; nothing here changes the memory.
unsafe impl Sync for Block {}

impl Block {
    /// So many bytes or a little more, whole pages. Those that make up huge pages are in such;
    /// what is left at the end is not.
    pub fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(Self::size_for(bytes), HUGE)
            .expect("less than half of all addresses");
        Self {
            start: take(layout),
            layout,
        }
    }

    /// Returns the size of a block for `bytes` bytes: whole pages, at least one.
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

/// Memory none of which has been touched: only then does it come as huge pages. The allocator's
/// is made of small pages already, in part or in whole.
#[cfg(all(target_os = "linux", not(miri)))]
fn take(layout: Layout) -> NonNull<u8> {
    // SAFETY: a new private mapping, of which nothing else knows.
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
    // SAFETY: the mapping is longer than what is asked for by a huge page, so an aligned piece of that size lies
    // in it; the rest of it, whole pages, is given back. The advice is about memory that is ours.
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
    // SAFETY: `take` made this mapping, and nothing uses it any more.
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
    // SAFETY: it was allocated with this layout, and nothing uses it any more.
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
            // SAFETY: the block is as long, and zeroed.
            let all = unsafe { std::slice::from_raw_parts(block.start().as_ptr(), block.bytes()) };
            assert!(all.iter().all(|byte| *byte == 0));
            let last = block.bytes() - 1;
            // SAFETY: the block's last byte, which nobody else has.
            unsafe { block.start().add(last).write(1) };
        }
    }
}
