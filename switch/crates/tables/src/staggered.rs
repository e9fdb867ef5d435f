// SPDX-License-Identifier: Apache-2.0
//! Arrays that never move. An array reserves its address space at creation, and makes memory usable on request
//! ([`Reserved`]). Large arrays use huge pages if the system has them. Without huge pages, a lookup among millions of
//! entries would spend most of its time on TLB misses.
//!
//! Packets mostly read the first cache lines of these arrays, because interfaces and next hops have low numbers. The
//! low bits of a line's address select its set in the L1 cache. If all arrays started at the same offset in a page,
//! their first lines would fall into the same sets and evict each other. Therefore the arrays start at different
//! offsets.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_pages::{HUGE, Reserved, STEP};

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// `LINES` is the number of cache lines in a page. `APART` is the distance, in cache lines, between the starting
/// offsets of consecutive arrays. The two numbers are coprime, so the offsets go through all lines of a page before one
/// repeats.
const LINES: usize = 64;
const APART: usize = 25;

/// Number of arrays created so far.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// An array of bytes that starts at a cache line in the first page of its memory.
#[derive(Debug)]
pub(crate) struct StaggeredArray {
    start: NonNull<u8>,
    /// Offset of `start` in the reserved memory, in bytes.
    skipped: usize,
    bytes: usize,
    /// Number of usable bytes.
    usable: AtomicUsize,
    reserved: Reserved,
}

// SAFETY: the array owns the memory, and itself neither reads nor writes it. Code that uses the array's addresses must
// make its accesses safe.
unsafe impl Send for StaggeredArray {}
// SAFETY: as for `Send`.
unsafe impl Sync for StaggeredArray {}

impl StaggeredArray {
    /// Reserves address space for `bytes` bytes. No byte is usable yet.
    ///
    /// # Panics
    /// Panics if the address space cannot be mapped.
    pub(crate) fn new(bytes: usize) -> Self {
        let skipped = MADE.fetch_add(1, Ordering::Relaxed) * APART % LINES * LINE;
        let bytes = bytes.next_multiple_of(STEP);
        let reserved = Reserved::new(skipped + bytes);
        let reserved =
            reserved.unwrap_or_else(|error| panic!("{bytes} bytes for a table: {error}"));
        Self {
            // SAFETY: the reserved memory has more than `skipped` bytes.
            start: unsafe { reserved.start().add(skipped) },
            skipped,
            bytes,
            usable: AtomicUsize::new(0),
            reserved,
        }
    }

    /// Creates an array of `bytes` usable bytes for sparse access. Uses no huge pages for it.
    ///
    /// # Panics
    /// Panics if there is no memory.
    pub(crate) fn sparse(bytes: usize) -> Self {
        let array = Self::new(bytes);
        array.make_usable(bytes, false);
        array
    }

    /// Returns the start of the array.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the number of usable bytes, counted from the start.
    #[inline]
    pub(crate) fn usable(&self) -> usize {
        self.usable.load(Ordering::Relaxed)
    }

    /// Makes the first `bytes` bytes usable.
    ///
    /// # Panics
    /// Panics if `bytes` exceeds the reservation, or if there is no memory.
    pub(crate) fn grow(&self, bytes: usize) {
        let usable = self.usable();
        if bytes <= usable {
            return;
        }
        assert!(bytes <= self.bytes, "{bytes} bytes of {}", self.bytes);
        self.make_usable(bytes.max(2 * usable).min(self.bytes), true);
    }

    fn make_usable(&self, bytes: usize, dense: bool) {
        let bytes = bytes.next_multiple_of(STEP);
        let grown = self
            .reserved
            .grow(self.skipped + bytes, dense && bytes > HUGE);
        grown.unwrap_or_else(|error| panic!("{bytes} bytes for a table: {error}"));
        self.usable.fetch_max(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cleared_and_stays_where_it_is() {
        let reserved = StaggeredArray::new(64 << 20);
        assert_eq!(reserved.usable(), 0);
        let start = reserved.start();
        for bytes in [1, STEP, STEP + 1, 5 << 20, 64 << 20] {
            reserved.grow(bytes);
            assert!(reserved.usable() >= bytes && reserved.start() == start);
            // SAFETY: `bytes` bytes are usable, and no other reference to them exists.
            unsafe {
                let last = start.add(bytes - 1);
                assert_eq!(last.read(), 0);
                last.write(1);
            }
        }
        assert_eq!(start.align_offset(LINE), 0);
    }

    #[test]
    fn the_first_lines_of_arrays_do_not_share_a_cache_set() {
        let arrays: Vec<_> = (0..16).map(|_| StaggeredArray::new(STEP)).collect();
        let set = |array: &StaggeredArray| array.start().addr() / LINE % LINES;
        // Other tests create arrays at the same time. Such an array can come between two of these arrays, so their
        // starts need not be consecutive.
        let mut sets: Vec<usize> = arrays.iter().map(set).collect();
        sets.sort_unstable();
        let alike = sets.chunk_by(|a, b| a == b).map(<[usize]>::len).max();
        assert!(alike <= Some(4), "{sets:?}");
    }

    #[test]
    #[should_panic(expected = "bytes of")]
    fn no_more_than_was_reserved() {
        StaggeredArray::new(STEP).grow(STEP + 1);
    }
}
