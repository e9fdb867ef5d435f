// SPDX-License-Identifier: Apache-2.0
//! Address space that is asked for at once and filled with memory as it is needed.

use std::ptr::NonNull;

use crate::block::HUGE;

/// Address space that begins where a huge page may begin: what is in it never moves. It is given back when this
/// is dropped.
#[derive(Debug)]
pub struct Reserved {
    start: NonNull<u8>,
    bytes: usize,
    /// So many bytes can be used.
    usable: usize,
    /// What was mapped: a huge page more, for the sake of the beginning.
    mapping: NonNull<u8>,
}

// SAFETY: this owns the mapping and reads or writes nothing in it: who follows its addresses answers for that.
unsafe impl Send for Reserved {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reserved {}

#[cfg(target_os = "linux")]
impl Reserved {
    /// So many bytes of addresses, whole huge pages, none of which can be used yet; nothing where the system
    /// refuses.
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(HUGE);
        // SAFETY: a new private mapping, of which nothing else knows.
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
            // SAFETY: the mapping is a huge page longer than what is asked for.
            start: unsafe { mapping.add(before) },
            bytes,
            usable: 0,
            mapping,
        })
    }

    /// Makes at least the first `bytes` usable: zeroed, in huge pages where there are any, and taking no memory
    /// before they are touched. Whether that is done.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes.next_multiple_of(HUGE);
        if bytes > self.bytes {
            return false;
        }
        let more = bytes.saturating_sub(self.usable);
        if more == 0 {
            return true;
        }
        // SAFETY: these bytes are within what was mapped, whole pages, and nobody uses them yet.
        unsafe {
            let from = self.start.add(self.usable).as_ptr().cast();
            if libc::mprotect(from, more, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return false;
            }
            // Advice: without it the memory is as good, but slower to find.
            libc::madvise(from, more, libc::MADV_HUGEPAGE);
        }
        self.usable = bytes;
        true
    }
}

#[cfg(not(target_os = "linux"))]
impl Reserved {
    /// Nothing: only Linux is asked for addresses.
    pub fn new(_: usize) -> Option<Self> {
        None
    }

    /// There is none of these.
    pub fn grow(&mut self, bytes: usize) -> bool {
        bytes <= self.usable && bytes <= self.bytes
    }
}

impl Reserved {
    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many can be used, from the first on.
    pub fn usable(&self) -> usize {
        self.usable
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        // SAFETY: `new` made this mapping, and nothing uses it any more.
        unsafe {
            libc::munmap(self.mapping.as_ptr().cast(), self.bytes + HUGE);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
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
            // SAFETY: so many bytes are usable, and nobody else knows of them.
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
