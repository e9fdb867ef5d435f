// SPDX-License-Identifier: Apache-2.0
//! Waits for any of many descriptors (epoll, level-triggered). A thread can wake another one that waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::sys;

/// An event of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Token with which the descriptor was added.
    pub token: u64,
    /// Whether the descriptor has a pending error. For a packet socket, this means that the link went down.
    pub error: bool,
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

const MAX_EVENTS: usize = 64;

impl Poller {
    /// Creates an empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes no pointers; a non-negative result is a new descriptor that only this object
        // owns.
        let epoll =
            unsafe { OwnedFd::from_raw_fd(sys::check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Self {
            epoll,
            events: Vec::with_capacity(MAX_EVENTS),
        })
    }

    /// Adds a descriptor. The poller reports with `token` when the descriptor is readable or has an error. Closing the
    /// descriptor removes it.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY: both descriptors are open, and `event` lives during the call.
        unsafe {
            sys::check(libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &mut event,
            ))?;
        }
        Ok(())
    }

    /// Adds a descriptor to be reported once when it is writable (one-shot). Afterwards it must be added again.
    pub fn add_writable(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let events = (libc::EPOLLOUT | libc::EPOLLONESHOT) as u32;
        let control = |operation| {
            let mut event = libc::epoll_event { events, u64: token };
            // SAFETY: both descriptors are open, and `event` lives during the call.
            unsafe {
                let (epoll, fd) = (self.epoll.as_raw_fd(), fd.as_raw_fd());
                sys::check(libc::epoll_ctl(epoll, operation, fd, &mut event))
            }
        };
        match control(libc::EPOLL_CTL_MOD) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                control(libc::EPOLL_CTL_ADD).map(drop)
            }
            result => result.map(drop),
        }
    }

    /// Removes a descriptor that stays open.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; the kernel reads no event for this operation.
        unsafe {
            sys::check(libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            ))?;
        }
        Ok(())
    }

    /// Waits until a descriptor is ready or the timeout has passed, with a precision of about a microsecond.
    fn wait_precisely(&self, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            return Ok(());
        }
        let mut epoll = libc::pollfd {
            fd: self.epoll.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the descriptor and the time live during the call; the signal mask is not changed.
        let ready = unsafe { libc::ppoll(&mut epoll, 1, &time, std::ptr::null()) };
        match sys::check(ready) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result.map(drop),
        }
    }

    /// Waits until a descriptor is ready or the timeout has passed; `None` waits without limit. Returns the events of
    /// ready descriptors. If a signal interrupts the wait, returns no events.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<impl Iterator<Item = Event> + '_> {
        // epoll_wait takes the timeout in whole milliseconds.
        let milliseconds = match timeout {
            None => -1,
            Some(timeout) => {
                self.wait_precisely(timeout)?;
                0
            }
        };
        self.events.clear();
        // SAFETY: the vector has room for MAX_EVENTS events. Its length is set to the number of events that the kernel
        // wrote.
        unsafe {
            let ready = libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                MAX_EVENTS as i32,
                milliseconds,
            );
            match sys::check(ready) {
                Ok(count) => self.events.set_len(count as usize),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.events.iter().map(|event| Event {
            token: event.u64,
            error: event.events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0,
        }))
    }
}

/// Wakes a thread that waits in a [`Poller`]. Can be cloned cheaply. A wake-up before the wait is not lost.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker in the unsignalled state.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(sys::eventfd()?)))
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        sys::eventfd_signal(self.0.as_raw_fd());
    }

    /// Makes the descriptor unreadable again. Returns whether it was readable. Order: call this before reading the
    /// state that the waker announces.
    pub fn reset(&self) -> bool {
        sys::eventfd_drain(self.0.as_raw_fd())
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_wait_is_not_lost_and_is_gone_after_reset() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(waker.as_fd(), 7).unwrap();
        waker.wake();
        waker.wake();
        let events: Vec<_> = poller.wait(None).unwrap().collect();
        assert_eq!(
            events,
            [Event {
                token: 7,
                error: false
            }]
        );
        waker.reset();
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
    }
}
