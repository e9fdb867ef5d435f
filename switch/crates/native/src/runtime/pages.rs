// SPDX-License-Identifier: Apache-2.0
//! Provides memory for machine code. The pages are written once. Then they become executable, and are never writable
//! again. The pages are unmapped when the last engine that runs the code is dropped.

use std::io;
use std::ptr::NonNull;

/// Pages with machine code.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    /// Maps new pages and copies machine code to them.
    ///
    /// # Errors
    /// Fails with the kernel's error if there is no memory or executable pages are not allowed.
    pub(crate) fn new(code: &[u8]) -> io::Result<Self> {
        let bytes = code.len().max(1);
        // SAFETY: this creates a new private mapping, to which no other code has a reference.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(io::Error::other("the kernel mapped memory at address 0"));
        };
        let pages = Self { start, bytes };
        // SAFETY: the mapping is writable, has at least `code.len()` bytes and does not overlap `code`. The mapping
        // becomes executable only after the code has been copied.
        let protected = unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), start.as_ptr(), code.len());
            libc::mprotect(
                start.as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_EXEC,
            )
        };
        if protected != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pages)
    }

    /// Returns the number of bytes of code.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of the byte at `offset`.
    ///
    /// # Panics
    /// Panics if `offset` is beyond the code.
    pub(crate) fn address(&self, offset: usize) -> *const u8 {
        assert!(offset < self.bytes, "no code at {offset}");
        // SAFETY: the assertion has checked that the offset lies inside the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping. Callers of the code hold a reference to this value, and none is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: the pages are not written after `new`.
unsafe impl Send for Pages {}
// SAFETY: likewise.
unsafe impl Sync for Pages {}
