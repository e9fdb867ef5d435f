// SPDX-License-Identifier: Apache-2.0
//! Two-rate three-colour meters (RFC 2698, colour-blind), without a lock.
//!
//! A token bucket of rate r and burst b is kept as one number, the tokens ever *used*, where tokens
//! that overflowed count as used: at time t the bucket holds r·t + b − used, and never more than b,
//! hence used >= r·t. Taking n tokens is one compare-and-swap.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A packet's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Color {
    /// Within the committed rate.
    Green = 0,
    /// Within the peak rate.
    Yellow = 1,
    /// Beyond both.
    Red = 2,
}

/// Rates per second and bursts, in packets or bytes as the meter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterConfig {
    /// Committed rate.
    pub cir: u64,
    /// Committed burst.
    pub cburst: u64,
    /// Peak rate, not below the committed one.
    pub pir: u64,
    /// Peak burst.
    pub pburst: u64,
}

#[derive(Debug, Default)]
struct Bucket {
    rate: AtomicU64,
    burst: AtomicU64,
    used: AtomicU64,
}

impl Bucket {
    fn configure(&self, rate: u64, burst: u64) {
        self.rate.store(rate, Ordering::Relaxed);
        self.burst.store(burst, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// Takes `amount` tokens if the bucket holds as many.
    fn take(&self, amount: u64, now_us: u64) -> bool {
        let rate = u128::from(self.rate.load(Ordering::Relaxed));
        let burst = self.burst.load(Ordering::Relaxed);
        let made = (u128::from(now_us) * rate / 1_000_000) as u64;
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                let used = used.max(made);
                let after = used.checked_add(amount)?;
                (after - made <= burst).then_some(after)
            });
        taken.is_ok()
    }
}

/// A meter cell. Not configured, it marks everything green.
#[derive(Debug, Default)]
pub struct Meter {
    configured: AtomicBool,
    committed: Bucket,
    peak: Bucket,
}

impl Meter {
    /// Sets rates and fills both buckets; `None` switches the meter off.
    pub fn set_config(&self, config: Option<MeterConfig>) {
        if let Some(config) = config {
            self.committed.configure(config.cir, config.cburst);
            self.peak.configure(config.pir, config.pburst);
        }
        self.configured.store(config.is_some(), Ordering::Release);
    }

    /// The rates, if it is configured.
    pub fn config(&self) -> Option<MeterConfig> {
        self.configured
            .load(Ordering::Acquire)
            .then(|| MeterConfig {
                cir: self.committed.rate.load(Ordering::Relaxed),
                cburst: self.committed.burst.load(Ordering::Relaxed),
                pir: self.peak.rate.load(Ordering::Relaxed),
                pburst: self.peak.burst.load(Ordering::Relaxed),
            })
    }

    /// Meters `amount` packets or bytes at a time in microseconds.
    pub fn execute(&self, amount: u64, now_us: u64) -> Color {
        if !self.configured.load(Ordering::Acquire) {
            Color::Green
        } else if !self.peak.take(amount, now_us) {
            Color::Red
        } else if !self.committed.take(amount, now_us) {
            Color::Yellow
        } else {
            Color::Green
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: MeterConfig = MeterConfig {
        cir: 1_000,
        cburst: 2,
        pir: 2_000,
        pburst: 4,
    };

    fn meter() -> Meter {
        let meter = Meter::default();
        meter.set_config(Some(CONFIG));
        meter
    }

    #[test]
    fn without_configuration_everything_is_green() {
        assert_eq!(Meter::default().execute(1 << 40, 0), Color::Green);
    }

    #[test]
    fn a_burst_goes_green_then_yellow_then_red() {
        let meter = meter();
        let colors: Vec<Color> = (0..5).map(|_| meter.execute(1, 0)).collect();
        use Color::{Green, Red, Yellow};
        assert_eq!(colors, [Green, Green, Yellow, Yellow, Red]);
    }

    #[test]
    fn tokens_come_back_at_the_configured_rates() {
        let meter = meter();
        for _ in 0..5 {
            meter.execute(1, 0);
        }
        // After 1 ms: one committed token, two peak tokens.
        assert_eq!(meter.execute(1, 1_000), Color::Green);
        assert_eq!(meter.execute(1, 1_000), Color::Yellow);
        assert_eq!(meter.execute(1, 1_000), Color::Red);
    }

    #[test]
    fn a_bucket_never_holds_more_than_its_burst() {
        let meter = meter();
        let colors: Vec<Color> = (0..5).map(|_| meter.execute(1, 3_600_000_000)).collect();
        assert_eq!(
            colors
                .iter()
                .filter(|color| **color == Color::Green)
                .count(),
            2
        );
        assert_eq!(
            colors.iter().filter(|color| **color == Color::Red).count(),
            1
        );
    }

    #[test]
    fn a_packet_larger_than_the_burst_is_red() {
        assert_eq!(meter().execute(5, 0), Color::Red);
    }

    #[test]
    fn configuration_reads_back_and_can_be_removed() {
        let meter = meter();
        assert_eq!(meter.config(), Some(CONFIG));
        meter.set_config(None);
        assert_eq!(meter.config(), None);
    }
}
