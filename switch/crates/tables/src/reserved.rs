// SPDX-License-Identifier: Apache-2.0
//! Arrays that never move: address space is reserved at once, memory is there as far as it is asked
//! for, cleared, and costs nothing before it is touched. Large ones lie in huge pages where the
//! system has them: a look-up among millions of entries would otherwise spend most of its time on
//! finding out where pages are.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a huge page has, and where it must begin.
const HUGE: usize = 2 << 20;

/// Memory is asked for in steps of at least so many bytes.
const STEP: usize = 64 << 10;

/// An array of bytes.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// Begins with a huge page.
    start: NonNull<u8>,
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
        let bytes = bytes.next_multiple_of(STEP);
        let mapped = bytes + HUGE;
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
        let skipped = mapping.as_ptr().align_offset(HUGE);
        // SAFETY: the mapping is a huge page longer than what follows the first `skipped` bytes.
        let start = unsafe { mapping.add(skipped) };
        Self {
            start,
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
        // SAFETY: the first `more` bytes are the mapping's own, and become readable and writable.
        unsafe {
            let start = self.start.as_ptr().cast();
            let done = libc::mprotect(start, more, libc::PROT_READ | libc::PROT_WRITE);
            assert_eq!(done, 0, "{}", failed(more));
            if close && more > HUGE {
                // Advice: without it the memory is as good, but slower to find.
                libc::madvise(start, more, libc::MADV_HUGEPAGE);
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
        assert_eq!(start.align_offset(HUGE), 0);
    }

    #[test]
    #[should_panic(expected = "bytes of")]
    fn no_more_than_was_reserved() {
        Reserved::new(STEP).grow(STEP + 1);
    }
}
