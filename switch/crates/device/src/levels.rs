// SPDX-License-Identifier: Apache-2.0
//! Tracks fill levels, depths and rates of a port's queues. All workers share these values. The packets themselves are
//! in queues of each worker.
//!
//! The rules are the same as in BMv2's `QueueingLogicPriRL`. With several workers, depth and rate apply to the sum over
//! all workers. But order and priority hold only among the packets of one worker.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Default depth of a queue, in packets.
const DEFAULT_DEPTH: u32 = 64;

/// Settings of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSetting {
    /// Maximum number of packets in the queue.
    pub(crate) depth: u32,
    /// Maximum number of packets that leave the queue in a second; 0 for no limit.
    pub(crate) rate: u64,
}

impl Default for QueueSetting {
    fn default() -> Self {
        Self {
            depth: DEFAULT_DEPTH,
            rate: 0,
        }
    }
}

/// Decision of a queue on an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet may be sent at once.
    Pass,
    /// The packet must wait at least until `due_ns`. `depth` packets are in front of it.
    Waits { depth: u32, due_ns: u64 },
    /// The queue is full.
    Full,
}

/// State of one queue of a port, shared by all workers.
#[derive(Debug)]
pub(crate) struct Level {
    size: AtomicU32,
    depth: AtomicU32,
    rate: AtomicU64,
    /// Earliest time at which the last admitted packet may leave, in nanoseconds.
    last_due_ns: AtomicU64,
    dropped: AtomicU64,
}

impl Level {
    fn new(setting: QueueSetting) -> Self {
        Self {
            size: AtomicU32::new(0),
            depth: AtomicU32::new(setting.depth),
            rate: AtomicU64::new(setting.rate),
            last_due_ns: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Decides on a packet that arrives at this time. If `must_wait` is set, the packet waits even if it may leave at
    /// once.
    pub(crate) fn admit(&self, now_ns: u64, must_wait: bool) -> Verdict {
        let depth = self.depth.load(Relaxed);
        let one_more = |size: u32| (size < depth).then(|| size + 1);
        let Ok(before) = self.size.fetch_update(Relaxed, Relaxed, one_more) else {
            self.dropped.fetch_add(1, Relaxed);
            return Verdict::Full;
        };
        let due_ns = self.stamp(now_ns);
        if due_ns <= now_ns && !must_wait {
            self.leave();
            return Verdict::Pass;
        }
        Verdict::Waits {
            depth: before,
            due_ns,
        }
    }

    /// Assigns a departure time to an arriving packet. The queue's rate determines the minimum distance from the
    /// previous packet's departure time.
    fn stamp(&self, now_ns: u64) -> u64 {
        let rate = self.rate.load(Relaxed);
        let interval = 1_000_000_000u64.checked_div(rate).unwrap_or(0);
        let due = |last: u64| now_ns.max(last + interval);
        let before = self
            .last_due_ns
            .fetch_update(Relaxed, Relaxed, |last| Some(due(last)));
        // The closure never returns `None`, so this update always succeeds.
        due(before.unwrap_or_else(|last| last))
    }

    /// Sets the departure time of the last packet, which delays the next packets.
    #[cfg(test)]
    pub(crate) fn hold_until(&self, due_ns: u64) {
        self.last_due_ns.store(due_ns, Relaxed);
    }

    /// Counts a packet that leaves. Returns how many packets remain.
    pub(crate) fn leave(&self) -> u32 {
        self.size.fetch_sub(1, Relaxed) - 1
    }

    /// Returns the number of packets in the queue.
    pub(crate) fn size(&self) -> u32 {
        self.size.load(Relaxed)
    }

    /// Returns the number of packets that were dropped because the queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub(crate) fn setting(&self) -> QueueSetting {
        QueueSetting {
            depth: self.depth.load(Relaxed),
            rate: self.rate.load(Relaxed),
        }
    }

    /// Changes the settings for packets that arrive from now on. Packets in the queue keep their departure times.
    pub(crate) fn set(&self, setting: QueueSetting) {
        self.depth.store(setting.depth, Relaxed);
        self.rate.store(setting.rate, Relaxed);
    }
}

/// State of a port's queues, indexed by priority.
#[derive(Debug)]
pub(crate) struct PortLevels(Box<[Level]>);

impl PortLevels {
    /// Creates empty queues.
    pub(crate) fn new(settings: &[QueueSetting]) -> Self {
        Self(settings.iter().copied().map(Level::new).collect())
    }

    pub(crate) fn all(&self) -> &[Level] {
        &self.0
    }

    /// Returns whether packets may have to wait even while the port accepts frames, because a queue has a rate, or a
    /// depth of 0.
    pub(crate) fn are_restricted(&self) -> bool {
        self.0.iter().any(|level| {
            let setting = level.setting();
            setting.rate != 0 || setting.depth == 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn waits(depth: u32, due_ns: u64) -> Verdict {
        Verdict::Waits { depth, due_ns }
    }

    #[test]
    fn a_full_queue_drops_what_comes_last_and_counts_it() {
        let level = Level::new(QueueSetting { depth: 2, rate: 0 });
        assert_eq!(level.admit(5, true), waits(0, 5));
        assert_eq!(level.admit(6, true), waits(1, 6));
        assert_eq!(level.admit(7, true), Verdict::Full);
        assert_eq!(level.admit(7, true), Verdict::Full);
        assert_eq!((level.size(), level.dropped()), (2, 2));
        assert_eq!(level.leave(), 1);
        assert_eq!(level.admit(8, true), waits(1, 8));
    }

    #[test]
    fn packets_are_stamped_when_they_come_by_the_rate_of_then() {
        let level = Level::new(QueueSetting {
            depth: 64,
            rate: 100,
        });
        let start = 1_000 * MILLISECOND;
        assert_eq!(level.admit(start, false), Verdict::Pass);
        assert_eq!(
            level.admit(start, false),
            waits(0, start + 10 * MILLISECOND)
        );
        assert_eq!(
            level.admit(start, false),
            waits(1, start + 20 * MILLISECOND)
        );
        // Waiting packets keep their departure times. The next packet's time follows from the last of these times.
        level.set(QueueSetting {
            depth: 64,
            rate: 1_000,
        });
        assert_eq!(
            level.admit(start, false),
            waits(2, start + 21 * MILLISECOND)
        );
        level.set(QueueSetting { depth: 64, rate: 0 });
        assert_eq!(
            level.admit(start, false),
            waits(3, start + 21 * MILLISECOND)
        );
        // After a pause, packets do not leave faster than the rate.
        let later = start + 1_000 * MILLISECOND;
        level.set(QueueSetting {
            depth: 64,
            rate: 100,
        });
        assert_eq!(level.admit(later, false), Verdict::Pass);
        assert_eq!(
            level.admit(later, false),
            waits(4, later + 10 * MILLISECOND)
        );
    }

    #[test]
    fn a_queue_without_room_lets_nothing_pass() {
        let level = Level::new(QueueSetting { depth: 0, rate: 0 });
        assert_eq!(level.admit(1, false), Verdict::Full);
        assert!(PortLevels(Box::new([level])).are_restricted());
        assert!(!PortLevels::new(&[QueueSetting::default(); 2]).are_restricted());
    }
}
