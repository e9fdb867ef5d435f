// SPDX-License-Identifier: Apache-2.0
//! A descriptor that is readable while something waits, raised and lowered without a system call in most cases.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_ports::poller::Waker;

/// See the module.
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

    /// Makes the descriptor readable, if it is not yet or will not be at once.
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Makes the descriptor unreadable; true if that was done. The caller looks again then: who raised it meanwhile has
    /// not made it readable.
    pub(crate) fn lower(&self) -> bool {
        // Raised and not readable yet: it will be, and is lowered then.
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
