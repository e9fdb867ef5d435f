// SPDX-License-Identifier: Apache-2.0
//! Address space that is reserved at once and made usable as it is needed.

use std::ptr::NonNull;

#[cfg(all(target_os = "linux", not(miri)))]
use crate::block::HUGE;

/// Address space aligned to a huge page. Its contents never move. Dropping this unmaps it.
#[derive(Debug)]
pub struct Reserved {
    start: NonNull<u8>,
    bytes: usize,
    /// Number of usable bytes.
    usable: usize,
    /// Start of the mapping, which is a huge page longer than `bytes` so that `start` can be aligned.
    #[cfg_attr(any(not(target_os = "linux"), miri), expect(dead_code))]
    mapping: NonNull<u8>,
}

// SAFETY: this owns the mapping and neither reads nor writes it. Code that follows its addresses is responsible
// for its accesses.
unsafe impl Send for Reserved {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reserved {}

#[cfg(all(target_os = "linux", not(miri)))]
impl Reserved {
    /// Reserves address space for `bytes` bytes, rounded up to whole huge pages, none usable yet. Returns `None` if
    /// the system refuses.
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(HUGE);
        // SAFETY: this creates a new private mapping, to which no other reference exists.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes + HUGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let mapping = NonNull::new(mapping.cast::<u8>())?;
        let before = mapping.as_ptr().align_offset(HUGE);
        Some(Self {
            // SAFETY: the mapping is a huge page longer than `bytes`.
            start: unsafe { mapping.add(before) },
            bytes,
            usable: 0,
            mapping,
        })
    }

    /// Makes at least the first `bytes` usable: zeroed, in huge pages if available, and not allocated before they are
    /// touched. Returns whether this succeeded.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes.next_multiple_of(HUGE);
        if bytes > self.bytes {
            return false;
        }
        let more = bytes.saturating_sub(self.usable);
        if more == 0 {
            return true;
        }
        // SAFETY: these bytes are whole pages within the mapping, and no code uses them yet.
        unsafe {
            let from = self.start.add(self.usable).as_ptr().cast();
            if libc::mprotect(from, more, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return false;
            }
            // Only advice: if it fails, the memory is still usable, with more TLB misses.
            libc::madvise(from, more, libc::MADV_HUGEPAGE);
        }
        self.usable = bytes;
        true
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
impl Reserved {
    /// Returns `None`: address space is reserved on Linux only, and not under Miri, which has no `mprotect`.
    pub fn new(_: usize) -> Option<Self> {
        None
    }

    /// Never called: `new` returns no value on this system.
    pub fn grow(&mut self, bytes: usize) -> bool {
        bytes <= self.usable && bytes <= self.bytes
    }
}

impl Reserved {
    /// Returns the address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of usable bytes, counted from the start.
    pub fn usable(&self) -> usize {
        self.usable
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: `new` made this mapping, and no code uses the mapping any more.
        unsafe {
            libc::munmap(self.mapping.as_ptr().cast(), self.bytes + HUGE);
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_zeroed_and_stays_where_it_is() {
        let mut reserved = Reserved::new(64 << 20).expect("addresses");
        let start = reserved.start();
        assert_eq!((start.align_offset(HUGE), reserved.usable()), (0, 0));
        for bytes in [1, HUGE, HUGE + 1, 5 << 20, 64 << 20] {
            assert!(reserved.grow(bytes));
            assert!(reserved.usable() >= bytes && reserved.start() == start);
            // SAFETY: `bytes` bytes are usable, and no other reference to them exists.
            unsafe {
                let last = start.add(bytes - 1);
                assert_eq!(last.read(), 0);
                last.write(1);
            }
        }
        let usable = reserved.usable();
        assert!(!reserved.grow((64 << 20) + 1), "more than was reserved");
        assert_eq!(reserved.usable(), usable);
    }
}
