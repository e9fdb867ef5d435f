// SPDX-License-Identifier: Apache-2.0
//! Arrays that never move: address space is reserved at once, memory is there as far as it is asked
//! for, cleared, and costs nothing before it is touched. Large ones lie in huge pages where the
//! system has them: a look-up among millions of entries would otherwise spend most of its time on
//! finding out where pages are.
//!
//! What packets read most is in the first lines of many of these arrays (interfaces and next hops have low
//! numbers). A cache finds a line's place by the low bits of its address, so arrays do not all begin where a page
//! begins: their first lines would push each other out of the nearest cache.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a huge page has, and where it must begin.
const HUGE: usize = 2 << 20;

/// Memory is asked for in steps of at least so many bytes.
const STEP: usize = 64 << 10;

/// A cache line.
const LINE: usize = 64;

/// Lines of a page, and how far one array's beginning is from the last one's: with no common divisor, so that all
/// lines have their turn, and such that arrays made in a row begin far apart.
const LINES: usize = 64;
const APART: usize = 25;

/// Arrays made so far.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// An array of bytes.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// Begins with a line of a huge page's first page.
    start: NonNull<u8>,
    /// From the beginning of the huge page.
    skipped: usize,
    bytes: usize,
    /// So many bytes can be used.
    usable: AtomicUsize,
    /// What was mapped.
    mapping: (NonNull<u8>, usize),
}

// SAFETY: this owns the mapping and reads or writes nothing in it: who follows its addresses answers
// for that.
unsafe impl Send for Reserved {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Address space for so many bytes, none of which can be used yet.
    ///
    /// # Panics
    /// If there is no address space.
    pub(crate) fn new(bytes: usize) -> Self {
        let skipped = MADE.fetch_add(1, Ordering::Relaxed) * APART % LINES * LINE;
        let bytes = bytes.next_multiple_of(STEP);
        let mapped = (skipped + bytes).next_multiple_of(STEP) + HUGE;
        // SAFETY: a new private mapping, of which nothing else knows.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(mapping, libc::MAP_FAILED, "{}", failed(mapped));
        let mapping = NonNull::new(mapping.cast::<u8>()).expect("a mapping is not at address 0");
        let before = mapping.as_ptr().align_offset(HUGE);
        // SAFETY: the mapping is a huge page longer than what is skipped and the array.
        let start = unsafe { mapping.add(before + skipped) };
        Self {
            start,
            skipped,
            bytes,
            usable: AtomicUsize::new(0),
            mapping: (mapping, mapped),
        }
    }

    /// So many bytes that can be used at once, of which few are touched, here and there.
    ///
    /// # Panics
    /// If there is no memory.
    pub(crate) fn sparse(bytes: usize) -> Self {
        let reserved = Self::new(bytes);
        reserved.make_usable(bytes, false);
        reserved
    }

    /// Where it begins.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes that can be used, from the first on.
    #[inline]
    pub(crate) fn usable(&self) -> usize {
        self.usable.load(Ordering::Relaxed)
    }

    /// Makes the first `bytes` usable.
    ///
    /// # Panics
    /// If that is more than was reserved, or there is no memory.
    pub(crate) fn grow(&self, bytes: usize) {
        let usable = self.usable();
        if bytes <= usable {
            return;
        }
        assert!(bytes <= self.bytes, "{bytes} bytes of {}", self.bytes);
        self.make_usable(bytes.max(2 * usable).min(self.bytes), true);
    }

    fn make_usable(&self, bytes: usize, close: bool) {
        let more = bytes.next_multiple_of(STEP);
        // SAFETY: what is skipped and the first `more` bytes are the mapping's own, from a page's beginning on, and
        // become readable and writable.
        unsafe {
            let start = self.start.as_ptr().sub(self.skipped).cast();
            let bytes = (self.skipped + more).next_multiple_of(STEP);
            let done = libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE);
            assert_eq!(done, 0, "{}", failed(more));
            if close && more > HUGE {
                // Advice: without it the memory is as good, but slower to find.
                libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
            }
        }
        self.usable.fetch_max(more, Ordering::Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let (start, bytes) = self.mapping;
        // SAFETY: the mapping is this value's own, and nobody follows its addresses any more.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

fn failed(bytes: usize) -> String {
    let error = io::Error::last_os_error();
    format!("{bytes} bytes for a table: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cleared_and_stays_where_it_is() {
        let reserved = Reserved::new(64 << 20);
        assert_eq!(reserved.usable(), 0);
        let start = reserved.start();
        for bytes in [1, STEP, STEP + 1, 5 << 20, 64 << 20] {
            reserved.grow(bytes);
            assert!(reserved.usable() >= bytes && reserved.start() == start);
            // SAFETY: so many bytes are usable, and nobody else knows of them.
            unsafe {
                let last = start.add(bytes - 1);
                assert_eq!(last.read(), 0);
                last.write(1);
            }
        }
        assert_eq!(start.align_offset(LINE), 0);
    }

    #[test]
    fn the_first_lines_of_arrays_do_not_share_a_place_in_caches() {
        let arrays: Vec<_> = (0..16).map(|_| Reserved::new(STEP)).collect();
        let place = |array: &Reserved| array.start().addr() / LINE % LINES;
        // Others make arrays at the same time: not all of these are in a row.
        let mut places: Vec<usize> = arrays.iter().map(place).collect();
        places.sort_unstable();
        let alike = places.chunk_by(|a, b| a == b).map(<[usize]>::len).max();
        assert!(alike <= Some(4), "{places:?}");
    }

    #[test]
    #[should_panic(expected = "bytes of")]
    fn no_more_than_was_reserved() {
        Reserved::new(STEP).grow(STEP + 1);
    }
}
