// SPDX-License-Identifier: Apache-2.0
//! Waits for any of many descriptors (epoll, level-triggered). Another thread can wake the thread that waits.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// An event of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Token with which the descriptor was added.
    pub token: u64,
    /// Whether the descriptor has a pending error. For a packet socket, an error means that the link went down.
    pub error: bool,
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    /// Events of the last wait.
    events: Vec<Event>,
}

const MAX_EVENTS: usize = 64;

impl Poller {
    /// Creates an empty set.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            events: Vec::with_capacity(MAX_EVENTS),
        })
    }

    /// Adds a descriptor. The poller reports with `token` when the descriptor is readable or has an error. Closing the
    /// descriptor removes it.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, EventFlags::IN)?)
    }

    /// Adds a descriptor that is reported once, when it becomes writable. After the report the caller must add it
    /// again.
    pub fn add_writable(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let (data, flags) = (
            EventData::new_u64(token),
            EventFlags::OUT | EventFlags::ONESHOT,
        );
        match epoll::modify(&self.epoll, fd, data, flags) {
            Err(Errno::NOENT) => Ok(epoll::add(&self.epoll, fd, data, flags)?),
            result => Ok(result?),
        }
    }

    /// Removes a descriptor that stays open.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a descriptor is ready or the timeout has passed, with a precision of about a microsecond.
    fn wait_precisely(&self, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            return Ok(());
        }
        let time = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until a descriptor is ready or the timeout has passed; `None` means no timeout. Returns the events of
    /// ready descriptors. If a signal interrupts the wait, returns no events.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<impl Iterator<Item = Event> + '_> {
        // epoll_wait takes the timeout in whole milliseconds, which is too coarse. So another call waits for the
        // timeout, and epoll_wait then returns the events at once. epoll_wait itself waits only if there is no timeout.
        let at_once = Timespec::default();
        let limit = match timeout {
            None => None,
            Some(timeout) => {
                self.wait_precisely(timeout)?;
                Some(&at_once)
            }
        };
        self.events.clear();
        let mut ready = [MaybeUninit::uninit(); MAX_EVENTS];
        match epoll::wait(&self.epoll, &mut ready, limit) {
            Ok((ready, _)) => self.events.extend(ready.iter().map(|event| Event {
                token: event.data.u64(),
                error: { event.flags }.intersects(EventFlags::ERR | EventFlags::HUP),
            })),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.events.iter().copied())
    }
}

/// Wakes a thread that waits in a [`Poller`]. Clones wake the same thread. If `wake` is called before the thread waits,
/// the wait ends at once.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker in the unsignalled state.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags)?)))
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // The write fails only if the descriptor is already readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again. Returns whether the descriptor was readable. Order: callers reset the
    /// waker before they read the state that it announces. In the reverse order, a change between the two would be
    /// missed.
    pub fn reset(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
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
