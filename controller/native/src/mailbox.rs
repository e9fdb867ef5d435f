// SPDX-License-Identifier: Apache-2.0
//! Passes data from this crate's threads to Python. A lock protects the data. An eventfd is readable exactly while
//! there are data.
//!
//! Python's event loop watches the eventfd (level-triggered). In each iteration it removes a limited part of the data,
//! so that other tasks get their turn. The eventfd stays readable until all data are removed.
//!
//! A thread holds the lock only while it adds or removes data, and never waits for Python's GIL meanwhile. So a thread
//! that holds the GIL may wait for this lock without a deadlock.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Data that a mailbox can hold.
pub trait Contents {
    /// Returns whether there is nothing for Python to fetch.
    fn is_empty(&self) -> bool;
}

/// Shares contents among threads, with a descriptor that is readable while the contents are not
/// empty.
#[derive(Debug)]
pub struct Mailbox<C> {
    contents: Mutex<C>,
    event: OwnedFd,
}

impl<C: Contents> Mailbox<C> {
    /// Creates a mailbox of `contents`, which must be empty.
    ///
    /// # Errors
    /// The kernel's error if it provides no eventfd, for example because too many files are open.
    pub fn new(contents: C) -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers; the result is checked before it is used.
        let raw = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just opened and has no other owner.
        let event = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self {
            contents: Mutex::new(contents),
            event,
        })
    }

    /// Reads or changes the contents, and sets the eventfd to match them.
    pub fn update<R>(&self, change: impl FnOnce(&mut C) -> R) -> R {
        let mut contents = lock(&self.contents);
        let was_empty = contents.is_empty();
        let result = change(&mut contents);
        match (was_empty, contents.is_empty()) {
            (true, false) => self.raise(),
            (false, true) => self.clear(),
            _ => {}
        }
        result
    }

    /// Returns the eventfd, which lives as long as the mailbox.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    fn raise(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: pointer and length describe a local array of 8 bytes. The count is 0 or 1, far below its maximum, so
        // the write does not block.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: pointer and length describe a local array of 8 bytes. A failed read (EAGAIN) means that the
        // descriptor is already unreadable, which is the wanted state.
        unsafe {
            libc::read(
                self.event.as_raw_fd(),
                count.as_mut_ptr().cast(),
                count.len(),
            )
        };
    }
}

/// Locks a mutex, even if a thread has panicked while it held the lock. The data are still consistent, because every
/// change in this crate adds or removes a single item.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Contents for Vec<u8> {
        fn is_empty(&self) -> bool {
            Vec::is_empty(self)
        }
    }

    fn readable(mailbox: &Mailbox<Vec<u8>>) -> bool {
        let mut poll = libc::pollfd {
            fd: mailbox.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer refers to one valid pollfd, and the timeout is 0.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn descriptor_is_readable_exactly_while_there_are_contents() -> io::Result<()> {
        let mailbox = Mailbox::new(Vec::new())?;
        assert!(!readable(&mailbox));
        mailbox.update(|contents| contents.extend([1, 2]));
        assert!(readable(&mailbox));
        mailbox.update(Vec::pop);
        assert!(readable(&mailbox), "one is left");
        mailbox.update(Vec::pop);
        assert!(!readable(&mailbox));
        mailbox.update(|contents| contents.push(3));
        assert!(readable(&mailbox), "raised again");
        Ok(())
    }
}
