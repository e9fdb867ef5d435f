// SPDX-License-Identifier: Apache-2.0
//! Provides a descriptor that is readable while frames or commands wait for the engine. Most calls of [`Signal::raise`]
//! and [`Signal::lower`] need no system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_ports::poller::Waker;

/// Descriptor that signals waiting work; see the module's documentation.
pub(crate) struct Signal {
    waker: Waker,
    raised: AtomicBool,
}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            waker: Waker::new()?,
            raised: AtomicBool::new(false),
        })
    }

    /// Makes the descriptor readable, unless another call has done so or is doing so.
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Makes the descriptor unreadable, and returns whether it was readable. If it was, the caller must check for work
    /// again. Work that arrived while the descriptor was readable causes no further wake-up.
    pub(crate) fn lower(&self) -> bool {
        // `raise` sets `raised` shortly before it makes the descriptor readable. If this call comes in between, it does
        // nothing, and a later call of `lower` makes the descriptor unreadable.
        let lowered = self.raised.load(Ordering::Acquire) && self.waker.reset();
        if lowered {
            self.raised.swap(false, Ordering::AcqRel);
        }
        lowered
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_ports::poller::Poller;

    use super::*;

    #[test]
    fn it_is_readable_from_raising_to_lowering() {
        let signal = Signal::new().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(signal.descriptor(), 1).unwrap();
        let mut readable = || poller.wait(Some(Duration::ZERO)).unwrap().count() == 1;
        assert!(!readable() && !signal.lower());
        for _ in 0..2 {
            signal.raise();
            signal.raise();
            assert!(readable() && signal.lower());
            assert!(!readable() && !signal.lower());
        }
    }
}
