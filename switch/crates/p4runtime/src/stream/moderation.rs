// SPDX-License-Identifier: Apache-2.0
//! Delays the packet-ins of a busy stream, like the interrupt moderation of a network card.
//!
//! A packet that is sent alone wakes both ends of the connection, which costs more than the packet itself. So while
//! many packets arrive, they are sent together, once per [`PAUSE`]. While few arrive, each is sent at once.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Time between two sends of a busy stream.
const PAUSE: Duration = Duration::from_millis(1);
/// Packets that arrive during a `PAUSE` on a busy stream, at least.
const BUSY: u32 = 8;

/// Decides when a stream waits for further packets.
#[derive(Debug)]
pub(super) struct Moderation {
    /// Packets since `began`.
    packets: u32,
    began: Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Moderation {
    /// Creates the moderation of an idle stream.
    pub(super) fn new() -> Self {
        Self {
            packets: 0,
            began: Instant::now(),
            pause: None,
        }
    }

    /// Counts a packet that is sent.
    pub(super) fn count(&mut self) {
        self.packets = self.packets.saturating_add(1);
    }

    /// Returns whether the stream is to wait, since it is busy and no packet is left. Then the task is woken later.
    pub(super) fn waits(&mut self, is_empty: bool, context: &mut Context<'_>) -> bool {
        if self.pause.is_none() && is_empty && self.is_busy() {
            self.pause = Some(Box::pin(sleep(PAUSE)));
        }
        let pause = self.pause.as_mut();
        let waits = pause.is_some_and(|pause| pause.as_mut().poll(context).is_pending());
        if !waits {
            self.pause = None;
        }
        waits
    }

    /// Returns whether at least `BUSY` packets per `PAUSE` arrived in the current interval, and begins another
    /// interval if this one is long enough.
    fn is_busy(&mut self) -> bool {
        let (now, packets) = (Instant::now(), self.packets);
        let elapsed = now - self.began;
        let is_busy = packets >= BUSY && elapsed * BUSY <= PAUSE * packets;
        if is_busy || elapsed >= PAUSE {
            (self.packets, self.began) = (0, now);
        }
        is_busy
    }
}
