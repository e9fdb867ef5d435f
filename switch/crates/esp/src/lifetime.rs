// SPDX-License-Identifier: Apache-2.0
//! Tracks the lifetimes of an SA: a soft limit requests a rekey, a hard limit ends the SA.

use serde::{Deserialize, Serialize};

/// Nanoseconds of a monotonic clock.
pub type Nanoseconds = u64;

const SECOND: Nanoseconds = 1_000_000_000;

/// Limits by bytes, packets and time; None means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Limit in bytes, counted before encryption or after decryption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Limit in packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Limit in seconds since the SA was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// State of an SA, determined by its lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Age {
    /// Below all limits.
    Fresh,
    /// A soft limit is reached. The SA still serves packets, but should be replaced.
    Soft,
    /// A hard limit is reached: the SA serves no more packets.
    Hard,
}

/// Limits of an SA, and how much of each is used.
#[derive(Debug, Clone)]
pub struct Lifetime {
    bytes: u64,
    packets: u64,
    /// The nearest limits. As long as the counts stay below all of them, the age does not change.
    next: Thresholds,
    age: Age,
    added: Nanoseconds,
    /// Soft limits and hard limits.
    limits: Box<(Limits, Limits)>,
}

#[derive(Debug, Clone, Copy)]
struct Thresholds {
    bytes: u64,
    packets: u64,
    time: Nanoseconds,
}

impl Lifetime {
    /// Starts a lifetime at `now`.
    pub fn new(soft: Limits, hard: Limits, now: Nanoseconds) -> Self {
        let mut new = Self {
            bytes: 0,
            packets: 0,
            next: Thresholds {
                bytes: 0,
                packets: 0,
                time: 0,
            },
            age: Age::Fresh,
            added: now,
            limits: Box::new((soft, hard)),
        };
        new.find_thresholds();
        new
    }

    /// Returns the age.
    pub fn age(&self) -> Age {
        self.age
    }

    /// Counts a packet, and returns whether the SA may serve it. The first packet beyond a hard limit ends the SA.
    #[inline]
    pub fn serves(&mut self, length: usize, now: Nanoseconds) -> bool {
        let bytes = self.bytes.saturating_add(length as u64);
        let packets = self.packets.saturating_add(1);
        let next = &self.next;
        if bytes < next.bytes && packets < next.packets && now < next.time {
            (self.bytes, self.packets) = (bytes, packets);
            return true;
        }
        self.serves_at_limit(bytes, packets, now)
    }

    #[cold]
    fn serves_at_limit(&mut self, bytes: u64, packets: u64, now: Nanoseconds) -> bool {
        let (soft, hard) = *self.limits;
        let ends = exceeds(&hard, bytes, packets) || self.is_over(&hard, now);
        if self.age == Age::Hard || ends {
            self.reach(Age::Hard);
            return false;
        }
        (self.bytes, self.packets) = (bytes, packets);
        if reaches(&soft, bytes, packets) || self.is_over(&soft, now) {
            self.reach(Age::Soft);
        }
        true
    }

    fn reach(&mut self, age: Age) {
        self.age = self.age.max(age);
        self.find_thresholds();
    }

    /// Finds the nearest limits that are not reached yet.
    fn find_thresholds(&mut self) {
        let (soft, hard) = *self.limits;
        let nearest = |of: fn(&Limits) -> Option<u64>| match self.age {
            Age::Fresh => of(&soft).into_iter().chain(of(&hard)).min(),
            Age::Soft => of(&hard),
            Age::Hard => Some(0),
        };
        let seconds = nearest(|limits| limits.seconds);
        self.next = Thresholds {
            bytes: nearest(|limits| limits.bytes).unwrap_or(u64::MAX),
            packets: nearest(|limits| limits.packets).unwrap_or(u64::MAX),
            time: match seconds {
                None => u64::MAX,
                Some(_) if self.age == Age::Hard => 0,
                Some(seconds) => self.added.saturating_add(seconds.saturating_mul(SECOND)),
            },
        };
    }

    /// Checks the time limits only.
    pub fn tick(&mut self, now: Nanoseconds) -> Age {
        let (soft, hard) = *self.limits;
        if self.is_over(&hard, now) {
            self.reach(Age::Hard);
        } else if self.is_over(&soft, now) {
            self.reach(Age::Soft);
        }
        self.age
    }

    fn is_over(&self, limits: &Limits, now: Nanoseconds) -> bool {
        let lived = now.saturating_sub(self.added) / SECOND;
        limits.seconds.is_some_and(|limit| lived >= limit)
    }
}

fn exceeds(limits: &Limits, bytes: u64, packets: u64) -> bool {
    limits.bytes.is_some_and(|limit| bytes > limit)
        || limits.packets.is_some_and(|limit| packets > limit)
}

fn reaches(limits: &Limits, bytes: u64, packets: u64) -> bool {
    limits.bytes.is_some_and(|limit| bytes >= limit)
        || limits.packets.is_some_and(|limit| packets >= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(bytes: u64, packets: u64, seconds: u64) -> Limits {
        let some = |limit| (limit != 0).then_some(limit);
        Limits {
            bytes: some(bytes),
            packets: some(packets),
            seconds: some(seconds),
        }
    }

    #[test]
    fn each_measure_has_a_soft_and_a_hard_end() {
        let mut packets = Lifetime::new(limits(0, 2, 0), limits(0, 3, 0), 0);
        let ages: Vec<_> = (0..5)
            .map(|_| (packets.serves(1, 0), packets.age()))
            .collect();
        let (fresh, soft, hard) = ((true, Age::Fresh), (true, Age::Soft), (false, Age::Hard));
        assert_eq!(ages, [fresh, soft, soft, hard, hard]);

        let mut bytes = Lifetime::new(limits(100, 0, 0), limits(150, 0, 0), 0);
        assert!(bytes.serves(100, 0));
        assert_eq!(bytes.age(), Age::Soft);
        assert!(bytes.serves(50, 0));
        assert!(!bytes.serves(1, 0));
        assert!(!bytes.serves(0, 0), "the SA has ended for ever");

        let mut time = Lifetime::new(limits(0, 0, 10), limits(0, 0, 20), 5 * SECOND);
        assert!(time.serves(1, 15 * SECOND - 1) && time.age() == Age::Fresh);
        assert!(time.serves(1, 15 * SECOND) && time.age() == Age::Soft);
        assert!(time.serves(1, 25 * SECOND - 1));
        assert!(!time.serves(1, 25 * SECOND));
        assert!(!time.serves(1, 0), "the SA has ended for ever");
    }

    #[test]
    fn the_clock_alone_ends_an_idle_sa() {
        let mut time = Lifetime::new(limits(0, 0, 10), limits(0, 0, 20), 0);
        assert_eq!(time.tick(9 * SECOND), Age::Fresh);
        assert_eq!(time.tick(10 * SECOND), Age::Soft);
        assert_eq!(time.tick(20 * SECOND), Age::Hard);
    }
}
