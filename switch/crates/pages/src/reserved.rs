// SPDX-License-Identifier: Apache-2.0
//! Address space that is reserved once. Its memory is made usable step by step.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::block::HUGE;

/// Granularity, in bytes, in which memory is made usable.
pub const STEP: usize = 64 << 10;

/// Address space aligned to a huge page. Contents never move. Usable memory holds zeros, and takes no physical memory
/// until it is touched. Dropping the value unmaps the address space.
#[derive(Debug)]
pub struct Reserved {
    start: NonNull<u8>,
    bytes: usize,
    /// Number of usable bytes.
    usable: AtomicUsize,
    /// Start of the mapping. The mapping is a huge page longer than `bytes`, so that `start` can be aligned.
    mapping: NonNull<u8>,
}

// SAFETY: the value owns the mapping, and itself neither reads nor writes it. Code that dereferences an address in the
// mapping must prevent data races.
unsafe impl Send for Reserved {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Reserves address space for `bytes` bytes, rounded up to whole steps. No byte is usable yet.
    ///
    /// # Errors
    /// Fails if the system refuses the reservation.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(STEP);
        let mapping = map(bytes + HUGE)?;
        let before = mapping.as_ptr().align_offset(HUGE);
        Ok(Self {
            // SAFETY: the mapping is a huge page longer than `bytes`.
            start: unsafe { mapping.add(before) },
            bytes,
            usable: AtomicUsize::new(0),
            mapping,
        })
    }

    /// Makes at least the first `bytes` bytes usable. If `huge` is set, uses huge pages where the system has them.
    ///
    /// # Errors
    /// Fails if `bytes` exceeds the reservation, or if the system refuses.
    pub fn grow(&self, bytes: usize, huge: bool) -> io::Result<()> {
        let bytes = bytes.next_multiple_of(STEP);
        if bytes > self.bytes {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if bytes > self.usable() {
            // SAFETY: these bytes are whole pages of the mapping.
            unsafe { allow_access(self.start, bytes, huge)? };
            self.usable.fetch_max(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of usable bytes, counted from the start.
    #[inline]
    pub fn usable(&self) -> usize {
        self.usable.load(Ordering::Relaxed)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and no code uses the mapping any more.
        unsafe { unmap(self.mapping, self.bytes + HUGE) };
    }
}

/// Maps `bytes` bytes of address space, which are not accessible yet.
#[cfg(all(target_os = "linux", not(miri)))]
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
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
    if mapping == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapping.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Makes pages readable and writable.
///
/// # Safety
/// The bytes must be whole pages of a mapping that [`map`] made.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn allow_access(start: NonNull<u8>, bytes: usize, huge: bool) -> io::Result<()> {
    let start = start.as_ptr().cast();
    // SAFETY: guaranteed by the caller.
    unsafe {
        if libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return Err(io::Error::last_os_error());
        }
        if huge {
            // Huge pages are only a request to the kernel. If the call fails, the memory is usable, but lookups have
            // more TLB misses.
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
    }
    Ok(())
}

/// Unmaps a mapping.
///
/// # Safety
/// [`map`] must have returned `start` for this number of bytes, and no code may use the bytes any more.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

/// Maximum number of bytes on systems on which memory cannot be made usable step by step, and is therefore allocated
/// at once.
#[cfg(any(not(target_os = "linux"), miri))]
const MOST: usize = 256 << 20;

/// Allocates zeroed memory. Used under Miri, which has no `mprotect`, and on systems other than Linux.
#[cfg(any(not(target_os = "linux"), miri))]
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let refused = || io::Error::from(io::ErrorKind::OutOfMemory);
    let layout = std::alloc::Layout::from_size_align(bytes, HUGE).map_err(|_| refused())?;
    if bytes > MOST {
        return Err(refused());
    }
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(refused)
}

/// Does nothing, because allocated memory is accessible.
#[cfg(any(not(target_os = "linux"), miri))]
unsafe fn allow_access(_: NonNull<u8>, _: usize, _: bool) -> io::Result<()> {
    Ok(())
}

/// Frees memory that [`map`] allocated.
///
/// # Safety
/// The same as for the version for Linux.
#[cfg(any(not(target_os = "linux"), miri))]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    let layout = std::alloc::Layout::from_size_align(bytes, HUGE)
        .expect("the layout is valid: it was allocated");
    // SAFETY: guaranteed by the caller.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_zeroed_and_stays_where_it_is() {
        let reserved = Reserved::new(64 << 20).expect("addresses are free");
        let start = reserved.start();
        assert_eq!((start.align_offset(HUGE), reserved.usable()), (0, 0));
        for (bytes, huge) in [
            (1, false),
            (STEP + 1, false),
            (HUGE, true),
            (64 << 20, true),
        ] {
            reserved.grow(bytes, huge).expect("memory");
            assert!(reserved.usable() >= bytes && reserved.start() == start);
            // SAFETY: `bytes` bytes are usable, and no other reference to them exists.
            unsafe {
                let last = start.add(bytes - 1);
                assert_eq!(last.read(), 0);
                last.write(1);
            }
        }
    }

    #[test]
    fn no_more_than_was_reserved() {
        let reserved = Reserved::new(STEP).expect("addresses are free");
        assert!(reserved.grow(STEP + 1, false).is_err());
        assert_eq!(reserved.usable(), 0);
        assert!(reserved.grow(STEP, false).is_ok());
    }
}
