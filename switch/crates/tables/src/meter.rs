// SPDX-License-Identifier: Apache-2.0
//! Three-colour meters with two rates (RFC 2698) or one rate (RFC 2697). They are colour-blind and lock-free.
//!
//! A token bucket of rate r and burst b is stored as one number: the tokens *used* so far. Tokens that overflowed count
//! as used. At time t the bucket holds r·t + b − used tokens. It never holds more than b tokens, so used is at least
//! r·t. Taking n tokens is one compare-and-swap.
//!
//! In RFC 2697, tokens that do not fit in the committed bucket go to the excess bucket. So both buckets together act as
//! one bucket with the same rate and the sum of both bursts. A meter with one rate stores the committed bucket and this
//! joint bucket. The tokens of the excess bucket are those of the joint bucket minus those of the committed bucket.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::counter::CounterCell;

/// Colour of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Color {
    /// Within the committed rate.
    Green = 0,
    /// Within the peak rate.
    Yellow = 1,
    /// Beyond the peak rate.
    Red = 2,
}

/// Rates per second and bursts. The unit is packets or bytes, depending on the meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterConfig {
    /// Committed rate.
    pub cir: u64,
    /// Committed burst.
    pub cburst: u64,
    /// Peak rate, not below the committed rate. Ignored with `excess`.
    pub pir: u64,
    /// Peak burst. Ignored with `excess`.
    pub pburst: u64,
    /// Excess burst. If set, the meter has one rate, the committed rate (RFC 2697).
    pub excess: Option<u64>,
}

#[derive(Debug, Default)]
struct TokenBucket {
    rate: AtomicU64,
    burst: AtomicU64,
    used: AtomicU64,
}

impl TokenBucket {
    fn configure(&self, rate: u64, burst: u64) {
        self.rate.store(rate, Ordering::Relaxed);
        self.burst.store(burst, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// Returns the number of tokens produced up to `now_us`.
    fn produced(&self, now_us: u64) -> u64 {
        let rate = u128::from(self.rate.load(Ordering::Relaxed));
        (u128::from(now_us) * rate / 1_000_000) as u64
    }

    /// Returns the number of tokens in the bucket.
    fn level(&self, now_us: u64) -> u64 {
        let produced = self.produced(now_us);
        let used = self.used.load(Ordering::Relaxed).max(produced);
        let burst = self.burst.load(Ordering::Relaxed);
        burst.saturating_sub(used - produced)
    }

    /// Takes `amount` tokens if at least `reserve` tokens remain afterwards. Returns whether it took them.
    fn take(&self, amount: u64, reserve: u64, now_us: u64) -> bool {
        let burst = self.burst.load(Ordering::Relaxed);
        let produced = self.produced(now_us);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                let used = used.max(produced);
                let after = used.checked_add(amount)?;
                let least = (after - produced).checked_add(reserve)?;
                (least <= burst).then_some(after)
            });
        taken.is_ok()
    }
}

/// Modes of a meter. The mode says which rates the buckets `committed` and `peak` hold.
const OFF: u8 = 0;
const TWO_RATES: u8 = 1;
const ONE_RATE: u8 = 2;

/// A meter cell. Without a configuration, it marks every packet green.
#[derive(Debug, Default)]
pub struct Meter {
    mode: AtomicU8,
    committed: TokenBucket,
    /// The peak bucket. In a meter with one rate: the committed and the excess bucket together.
    peak: TokenBucket,
    colors: [CounterCell; 3],
}

impl Meter {
    /// Sets the rates and fills both buckets. `None` turns the meter off.
    pub fn set_config(&self, config: Option<MeterConfig>) {
        let Some(config) = config else {
            return self.mode.store(OFF, Ordering::Release);
        };
        self.committed.configure(config.cir, config.cburst);
        let mode = match config.excess {
            Some(excess) => {
                let both = config.cburst.saturating_add(excess);
                self.peak.configure(config.cir, both);
                ONE_RATE
            }
            None => {
                self.peak.configure(config.pir, config.pburst);
                TWO_RATES
            }
        };
        self.mode.store(mode, Ordering::Release);
    }

    /// Turns the meter off and clears its counters.
    pub(crate) fn reset(&self) {
        self.set_config(None);
        self.colors.iter().for_each(|color| color.set(0, 0));
    }

    /// Returns the rates, if the meter is configured.
    pub fn config(&self) -> Option<MeterConfig> {
        let mode = self.mode.load(Ordering::Acquire);
        let of = |bucket: &TokenBucket| {
            let rate = bucket.rate.load(Ordering::Relaxed);
            (rate, bucket.burst.load(Ordering::Relaxed))
        };
        let ((cir, cburst), (pir, pburst)) = (of(&self.committed), of(&self.peak));
        match mode {
            OFF => None,
            TWO_RATES => Some(MeterConfig {
                cir,
                cburst,
                pir,
                pburst,
                excess: None,
            }),
            _ => Some(MeterConfig {
                cir,
                cburst,
                pir: cir,
                pburst: cburst,
                excess: Some(pburst - cburst),
            }),
        }
    }

    /// Meters `amount` packets or bytes at `now_us`, and counts a packet of `bytes` bytes by its colour.
    pub fn execute(&self, amount: u64, bytes: u64, now_us: u64) -> Color {
        let color = self.mark(amount, now_us);
        self.colors[color as usize].count(bytes);
        color
    }

    fn mark(&self, amount: u64, now_us: u64) -> Color {
        let mode = self.mode.load(Ordering::Acquire);
        if mode == OFF {
            return Color::Green;
        }
        if mode == ONE_RATE {
            if self.committed.take(amount, 0, now_us) {
                // Cannot fail, because every token of the committed bucket is also in this bucket.
                self.peak.take(amount, 0, now_us);
                return Color::Green;
            }
            let committed = self.committed.level(now_us);
            return match self.peak.take(amount, committed, now_us) {
                true => Color::Yellow,
                false => Color::Red,
            };
        }
        if !self.peak.take(amount, 0, now_us) {
            Color::Red
        } else if !self.committed.take(amount, 0, now_us) {
            Color::Yellow
        } else {
            Color::Green
        }
    }

    /// Returns the packets and bytes marked green, yellow and red.
    pub fn colors(&self) -> &[CounterCell; 3] {
        &self.colors
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
        excess: None,
    };

    fn meter() -> Meter {
        let meter = Meter::default();
        meter.set_config(Some(CONFIG));
        meter
    }

    #[test]
    fn without_configuration_everything_is_green() {
        assert_eq!(Meter::default().execute(1 << 40, 64, 0), Color::Green);
    }

    #[test]
    fn a_burst_goes_green_then_yellow_then_red() {
        let meter = meter();
        let colors: Vec<Color> = (0..5).map(|_| meter.execute(1, 64, 0)).collect();
        use Color::{Green, Red, Yellow};
        assert_eq!(colors, [Green, Green, Yellow, Yellow, Red]);
    }

    #[test]
    fn tokens_come_back_at_the_configured_rates() {
        let meter = meter();
        for _ in 0..5 {
            meter.execute(1, 64, 0);
        }
        // 1 ms produces one committed token and two peak tokens.
        assert_eq!(meter.execute(1, 64, 1_000), Color::Green);
        assert_eq!(meter.execute(1, 64, 1_000), Color::Yellow);
        assert_eq!(meter.execute(1, 64, 1_000), Color::Red);
    }

    #[test]
    fn a_bucket_never_holds_more_than_its_burst() {
        let meter = meter();
        let colors: Vec<Color> = (0..5)
            .map(|_| meter.execute(1, 64, 3_600_000_000))
            .collect();
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
        assert_eq!(meter().execute(5, 64, 0), Color::Red);
    }

    #[test]
    fn with_one_rate_overflowing_tokens_fill_the_excess_bucket() {
        use Color::{Green, Red, Yellow};
        let meter = Meter::default();
        let config = MeterConfig {
            cir: 1_000,
            cburst: 2,
            pir: 1_000,
            pburst: 2,
            excess: Some(3),
        };
        meter.set_config(Some(config));
        assert_eq!(meter.config(), Some(config));
        let at = |now| meter.execute(1, 64, now);
        let burst: Vec<Color> = (0..6).map(|_| at(0)).collect();
        assert_eq!(burst, [Green, Green, Yellow, Yellow, Yellow, Red]);
        // There are four new tokens. Two fill the committed bucket, and two overflow into the excess bucket.
        let later: Vec<Color> = (0..5).map(|_| at(4_000)).collect();
        assert_eq!(later, [Green, Green, Yellow, Yellow, Red]);
        // One token goes to the committed bucket, which has room for it. The bucket then has one token, so a packet
        // that needs two tokens is red.
        assert_eq!(meter.execute(2, 64, 5_000), Red);
        assert_eq!(at(5_000), Green);
    }

    #[test]
    fn packets_are_counted_by_colour() {
        let meter = meter();
        for bytes in 1..=5 {
            meter.execute(1, bytes, 0);
        }
        let counted = meter.colors().each_ref().map(CounterCell::get);
        assert_eq!(counted, [(2, 3), (2, 7), (1, 5)]);
    }

    #[test]
    fn configuration_reads_back_and_can_be_removed() {
        let meter = meter();
        assert_eq!(meter.config(), Some(CONFIG));
        meter.set_config(None);
        assert_eq!(meter.config(), None);
    }
}
