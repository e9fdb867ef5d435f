// SPDX-License-Identifier: Apache-2.0
//! Distinguishes the transfer of a whole routing table from a few route changes, by the receive
//! rate.

use std::time::Instant;

/// Half-life of the level in seconds.
const HALF_LIFE: f64 = 0.02;
/// Level, in bytes, above which a table transfer is assumed. A steady rate of about 8,000 routes
/// per second exceeds this level, and so do 220 routes at once.
const BULK: f64 = 16.0 * 1024.0;

/// Measures the receive rate of a connection. The level is the number of bytes received so far,
/// but each byte counts for less as time passes (exponential decay).
#[derive(Debug, Default)]
pub(super) struct Pace {
    level: f64,
    at: Option<Instant>,
}

impl Pace {
    /// Adds the bytes of one read. Returns whether a table transfer is in progress.
    pub(super) fn is_bulk(&mut self, received: usize, now: Instant) -> bool {
        let passed = self.at.map_or(0.0, |before| (now - before).as_secs_f64());
        self.level = self.level * (-passed / HALF_LIFE).exp2() + received as f64;
        self.at = Some(now);
        self.level > BULK
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Simulates `reads` reads of `bytes` bytes each, `apart` milliseconds apart. Returns
    /// whether the last read counts as part of a table transfer.
    fn bulk(reads: u32, bytes: usize, apart: u64) -> bool {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        (0..reads).fold(false, |_, read| {
            pace.is_bulk(bytes, begin + Duration::from_millis(apart) * read)
        })
    }

    #[test]
    fn a_table_comes_in_many_reads_or_in_large_ones() {
        assert!(bulk(1, 40_000, 0));
        assert!(bulk(100, 1500, 1));
        assert!(bulk(100, 10_000, 5));
    }

    #[test]
    fn changes_are_no_table() {
        assert!(!bulk(1, 10_000, 0));
        assert!(!bulk(1000, 15_000, 1000));
        assert!(!bulk(1000, 7000, 20), "5,000 changes a second");
    }
}
