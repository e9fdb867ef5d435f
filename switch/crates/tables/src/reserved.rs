// SPDX-License-Identifier: Apache-2.0
//! Arrays that never move. Their address space is reserved at creation; memory becomes usable on request,
//! is zeroed, and is not allocated before it is touched. Large arrays use huge pages where the system has
//! them: a lookup among millions of entries would otherwise spend most of its time on TLB misses.
//!
//! The lines that packets read most are the first ones of many of these arrays (interfaces and next hops have low
//! numbers). The low bits of a line's address select its cache set. Arrays therefore start at different offsets
//! in a page: otherwise their first lines would evict each other from the L1 cache.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size and alignment of a huge page, in bytes.
const HUGE: usize = 2 << 20;

/// Granularity in bytes by which memory is made usable.
const STEP: usize = 64 << 10;

/// Bytes of a cache line.
const LINE: usize = 64;

/// `LINES` is the number of cache lines in a page; `APART` is the offset in lines between the starts of consecutive
/// arrays. They are coprime, so that starts cycle through all lines, and consecutive arrays start far apart.
const LINES: usize = 64;
const APART: usize = 25;

/// Number of arrays created so far.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// An array of bytes.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// Start of the array: a cache line in the first page of a huge page.
    start: NonNull<u8>,
    /// Offset of `start` from the beginning of the huge page, in bytes.
    skipped: usize,
    bytes: usize,
    /// Number of usable bytes.
    usable: AtomicUsize,
    /// Address and length of the mapping.
    mapping: (NonNull<u8>, usize),
}

// SAFETY: this owns the mapping and neither reads nor writes it. Code that follows its addresses is responsible
// for its accesses.
unsafe impl Send for Reserved {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Reserves address space for `bytes` bytes, none of which is usable yet.
    ///
    /// # Panics
    /// If the address space cannot be mapped.
    pub(crate) fn new(bytes: usize) -> Self {
        let skipped = MADE.fetch_add(1, Ordering::Relaxed) * APART % LINES * LINE;
        let bytes = bytes.next_multiple_of(STEP);
        let mapped = (skipped + bytes).next_multiple_of(STEP) + HUGE;
        let mapping = map(mapped);
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

    /// Creates an array of `bytes` usable bytes for sparse access; it gets no huge pages.
    ///
    /// # Panics
    /// If there is no memory.
    pub(crate) fn sparse(bytes: usize) -> Self {
        let reserved = Self::new(bytes);
        reserved.make_usable(bytes, false);
        reserved
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

    /// Makes the first `bytes` usable.
    ///
    /// # Panics
    /// If `bytes` exceeds the reservation, or there is no memory.
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
        // SAFETY: the skipped bytes lie in this mapping.
        let start = unsafe { self.start.sub(self.skipped) };
        let bytes = (self.skipped + more).next_multiple_of(STEP);
        // SAFETY: the skipped bytes and the first `more` bytes lie in this mapping and begin at a page boundary.
        let done = unsafe { allow_access(start, bytes, close && more > HUGE) };
        assert!(done, "{}", failed(more));
        self.usable.fetch_max(more, Ordering::Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let (start, bytes) = self.mapping;
        // SAFETY: this value owns the mapping, and no code follows its addresses any more.
        unsafe { unmap(start, bytes) };
    }
}

/// Maps `bytes` bytes of address space, which are not accessible yet.
///
/// # Panics
/// If the address space cannot be mapped.
#[cfg(not(miri))]
fn map(bytes: usize) -> NonNull<u8> {
    // SAFETY: this creates a new private mapping, to which no other reference exists.
    let mapping = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert_ne!(mapping, libc::MAP_FAILED, "{}", failed(bytes));
    NonNull::new(mapping.cast::<u8>()).expect("a mapping is not at address 0")
}

/// Makes pages readable and writable, as huge pages if so requested and available. Returns whether this succeeded.
///
/// # Safety
/// The bytes must be whole pages of a mapping of [`map`].
#[cfg(not(miri))]
unsafe fn allow_access(start: NonNull<u8>, bytes: usize, huge: bool) -> bool {
    let start = start.as_ptr().cast();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let done = libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0;
        if done && huge {
            // Only advice: if it fails, the memory is still usable, with more TLB misses.
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
        done
    }
}

/// Unmaps a mapping.
///
/// # Safety
/// [`map`] must have returned `start` for so many bytes, and nothing may use them any more.
#[cfg(not(miri))]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

/// Allocates zeroed memory: Miri has no `mprotect`.
#[cfg(miri)]
fn map(bytes: usize) -> NonNull<u8> {
    let layout = std::alloc::Layout::from_size_align(bytes, HUGE).expect("a size of memory");
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).expect("memory")
}

/// Does nothing: memory of Miri's [`map`] is accessible.
#[cfg(miri)]
unsafe fn allow_access(_: NonNull<u8>, _: usize, _: bool) -> bool {
    true
}

/// Frees memory of Miri's [`map`].
///
/// # Safety
/// As without Miri.
#[cfg(miri)]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    let layout = std::alloc::Layout::from_size_align(bytes, HUGE).expect("a size of memory");
    // SAFETY: guaranteed by the caller.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
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
    fn the_first_lines_of_arrays_do_not_share_a_place_in_caches() {
        let arrays: Vec<_> = (0..16).map(|_| Reserved::new(STEP)).collect();
        let place = |array: &Reserved| array.start().addr() / LINE % LINES;
        // Other tests create arrays at the same time, so these are not all consecutive.
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
