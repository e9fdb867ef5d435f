// SPDX-License-Identifier: Apache-2.0
//! Delays the packet-ins of a busy stream, like the interrupt moderation of a network card.
//!
//! Sending a packet wakes a thread at both ends of the connection, which costs more than handling the packet. So while
//! many packets arrive, the packets of each [`PAUSE`] are sent together. While few packets arrive, each is sent at
//! once.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// Time between two sends of a busy stream.
const PAUSE: Duration = Duration::from_micros(500);
/// A stream is busy from this number of packets per `PAUSE` on.
const BUSY: u32 = 4;

/// Decides whether a stream sends now, or waits for more packets.
#[derive(Debug)]
pub(super) struct Moderation {
    rate: Rate,
    /// Timer of the pause, created when the stream is busy for the first time. It is not a timer of tokio, because
    /// those would wait 1 to 2 ms.
    timer: Option<AsyncFd<OwnedFd>>,
    /// Whether the timer could not be created or set. The stream then never waits.
    has_failed: bool,
    is_waiting: bool,
}

impl Moderation {
    /// Creates the moderation of an idle stream.
    pub(super) fn new() -> Self {
        Self {
            rate: Rate::new(Instant::now()),
            timer: None,
            has_failed: false,
            is_waiting: false,
        }
    }

    /// Counts a packet that is sent.
    pub(super) fn count(&mut self) {
        self.rate.packets = self.rate.packets.saturating_add(1);
    }

    /// Returns whether the stream must wait for more packets. `is_empty` says that all packets that have arrived were
    /// sent. When the wait is over, wakes the task of `context`.
    pub(super) fn waits(&mut self, is_empty: bool, context: &mut Context<'_>) -> bool {
        let may_begin = is_empty && !self.is_waiting && !self.has_failed;
        if may_begin && self.rate.is_busy(Instant::now()) {
            match self.start() {
                Ok(()) => self.is_waiting = true,
                Err(error) => {
                    tracing::warn!(%error, "no timer: each packet-in is sent at once");
                    self.has_failed = true;
                }
            }
        }
        self.is_waiting = self.is_waiting && !self.has_expired(context);
        self.is_waiting
    }

    fn start(&mut self) -> io::Result<()> {
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => {
                let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
                AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?
            }
        };
        let zero = Timespec::default();
        let once = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_nsec: PAUSE.subsec_nanos().into(),
                ..zero
            },
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        self.timer = Some(timer);
        Ok(())
    }

    /// Returns whether the timer has expired. An error counts as expired, because otherwise the packets would wait for
    /// ever.
    fn has_expired(&self, context: &mut Context<'_>) -> bool {
        let Some(timer) = &self.timer else {
            return true;
        };
        loop {
            let Poll::Ready(ready) = timer.poll_read_ready(context) else {
                return false;
            };
            let Ok(mut ready) = ready else {
                return true;
            };
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0_u8; 8])?));
            if read.is_ok() {
                return true;
            }
        }
    }
}

/// Measures the rate of the packets of a stream.
#[derive(Debug)]
struct Rate {
    /// Packets since `began`.
    packets: u32,
    began: Instant,
}

impl Rate {
    fn new(began: Instant) -> Self {
        Self { packets: 0, began }
    }

    /// Returns whether at least [`BUSY`] packets per [`PAUSE`] arrived since `began`. If so, or if a `PAUSE` has
    /// passed, starts a new measurement.
    fn is_busy(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.began);
        let is_busy = self.packets >= BUSY && elapsed * BUSY <= PAUSE * self.packets;
        if is_busy || elapsed >= PAUSE {
            *self = Self::new(now);
        }
        is_busy
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn a_stream_is_busy_from_a_rate_on() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        assert!(!rate.is_busy(start), "no packet yet");
        rate.packets = BUSY - 1;
        assert!(!rate.is_busy(start + PAUSE / 10), "too few to know");
        rate.packets = BUSY;
        assert!(rate.is_busy(start + PAUSE / 10));
        assert_eq!(rate.packets, 0, "begun anew");
        rate.packets = 2 * BUSY - 1;
        assert!(!rate.is_busy(start + PAUSE / 10 + 2 * PAUSE));
        assert_eq!(rate.packets, 0, "begun anew");
    }

    async fn waits(moderation: &mut Moderation, is_empty: bool) -> bool {
        poll_fn(|context| Poll::Ready(moderation.waits(is_empty, context))).await
    }

    async fn until_sending(moderation: &mut Moderation) {
        poll_fn(|context| match moderation.waits(false, context) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    #[tokio::test]
    async fn a_busy_stream_waits_once_all_is_sent() {
        let mut moderation = Moderation::new();
        assert!(!waits(&mut moderation, true).await, "idle");
        (0..1_000_000).for_each(|_| moderation.count());
        assert!(!waits(&mut moderation, false).await, "more to send");
        let began = Instant::now();
        // tokio learns that the timer has expired only when this task yields. So a delay of the test cannot end the
        // wait early.
        assert!(waits(&mut moderation, true).await);
        assert!(waits(&mut moderation, false).await);
        until_sending(&mut moderation).await;
        assert!(began.elapsed() >= PAUSE);
        assert!(!waits(&mut moderation, true).await, "no longer busy");
    }

    #[tokio::test]
    async fn a_stream_waits_again() {
        let mut moderation = Moderation::new();
        for _ in 0..3 {
            let began = Instant::now();
            (0..1_000_000).for_each(|_| moderation.count());
            waits(&mut moderation, true).await;
            until_sending(&mut moderation).await;
            assert!(began.elapsed() >= PAUSE);
        }
    }

    #[tokio::test]
    async fn without_a_timer_a_stream_never_waits() {
        let mut moderation = Moderation::new();
        moderation.has_failed = true;
        (0..1_000_000).for_each(|_| moderation.count());
        assert!(!waits(&mut moderation, true).await);
    }
}
