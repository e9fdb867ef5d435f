// SPDX-License-Identifier: Apache-2.0
//! Holds the state that a session shares with the client's handle and with the fast path.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::inbox::{Counters, Inbox};
use super::inlet::Inlet;
use crate::mailbox::Mailbox;

/// Limit of queued parts of answers to reads.
const READ_PARTS: usize = 64;

/// State that a session shares with the client's handle and with the fast path.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: String,
    pub(super) request_timeout: Duration,
    pub(super) mailbox: Mailbox<Inbox>,
    pub(super) counters: Counters,
    pub(super) read_parts: Arc<Semaphore>,
    pub(super) fast_path: Option<Inlet>,
    /// True after the end of the session. The fast path then stops sending.
    ended: AtomicBool,
}

impl Shared {
    pub(super) fn new(
        address: String,
        request_timeout: Duration,
        mailbox: Mailbox<Inbox>,
        fast_path: Option<Inlet>,
    ) -> Self {
        Self {
            address,
            request_timeout,
            mailbox,
            counters: Counters::default(),
            read_parts: Arc::new(Semaphore::new(READ_PARTS)),
            fast_path,
            ended: AtomicBool::new(false),
        }
    }

    /// Records that the session has ended or is about to end.
    pub(super) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Returns whether the session has ended or is about to end.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }
}
