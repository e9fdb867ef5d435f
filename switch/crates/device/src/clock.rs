// SPDX-License-Identifier: Apache-2.0
//! Measures the switch's time: microseconds since it started, as in v1model's timestamps.

use std::time::{Duration, Instant};

/// A monotonic clock that starts at 0.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Starts a clock at 0.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the instant of time 0.
    pub fn epoch(&self) -> Instant {
        self.0
    }

    /// Returns the instant at this time in nanoseconds.
    pub(crate) fn at_ns(&self, ns: u64) -> Instant {
        self.0 + Duration::from_nanos(ns)
    }

    /// Returns the nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    /// Returns the microseconds since the start.
    pub fn now_us(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}
