// SPDX-License-Identifier: Apache-2.0
//! The switch's time: microseconds since it started, as v1model's timestamps have it.

use std::time::{Duration, Instant};

/// A monotonic clock that starts at 0.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that shows 0 now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The moment at which it showed 0.
    pub fn epoch(&self) -> Instant {
        self.0
    }

    /// The moment at which it shows so many nanoseconds.
    pub(crate) fn at_ns(&self, ns: u64) -> Instant {
        self.0 + Duration::from_nanos(ns)
    }

    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    /// Microseconds since the start.
    pub fn now_us(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}
