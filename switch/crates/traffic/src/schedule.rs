// SPDX-License-Identifier: Apache-2.0
//! Plans departure times in an open loop: they do not depend on the network. A generator that falls behind catches up,
//! and latencies are measured from the planned time. So a slow device cannot hide its delay by slowing down the
//! generator.

use sluice_random::Random;

/// Distribution of the time between two departures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrivals {
    /// The time is constant.
    Constant,
    /// The time has an exponential distribution, as with many independent senders.
    Poisson,
}

/// Departure times in nanoseconds since the start, in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// Mean time between two bursts, in nanoseconds. With 0, packets depart as fast as possible.
    interval: f64,
    arrivals: Arrivals,
    burst: u32,
    next: f64,
    left_in_burst: u32,
    random: Random,
}

impl Schedule {
    /// Creates a schedule with `rate` packets per second on average, in bursts of `burst` packets. With `None` as rate,
    /// packets depart as fast as possible.
    pub(crate) fn new(rate: Option<f64>, arrivals: Arrivals, burst: u32, seed: u64) -> Self {
        Self {
            interval: rate.map_or(0.0, |rate| 1e9 * f64::from(burst) / rate),
            arrivals,
            burst,
            next: 0.0,
            left_in_burst: burst,
            random: Random::new(seed),
        }
    }

    /// Returns whether a rate is set.
    pub(crate) fn is_paced(&self) -> bool {
        self.interval > 0.0
    }

    /// Returns the departure time of the next packet.
    pub(crate) fn next_departure(&self) -> u64 {
        self.next as u64
    }

    /// Advances the schedule by one packet.
    pub(crate) fn advance(&mut self) {
        self.left_in_burst -= 1;
        if self.left_in_burst == 0 {
            self.left_in_burst = self.burst;
            self.next += match self.arrivals {
                Arrivals::Constant => self.interval,
                // Never takes the logarithm of 0, because `1 - unit()` is never 0.
                Arrivals::Poisson => -(1.0 - self.random.unit()).ln() * self.interval,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departures(mut schedule: Schedule, count: usize) -> Vec<u64> {
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(schedule.next_departure());
            schedule.advance();
        }
        times
    }

    #[test]
    fn constant_departures_keep_the_rate_in_bursts() {
        let steady = Schedule::new(Some(1e6), Arrivals::Constant, 1, 0);
        assert_eq!(departures(steady, 4), [0, 1000, 2000, 3000]);
        let bursts = Schedule::new(Some(1e6), Arrivals::Constant, 3, 0);
        assert_eq!(departures(bursts, 7), [0, 0, 0, 3000, 3000, 3000, 6000]);
    }

    #[test]
    fn without_a_rate_everything_is_due_at_once() {
        let schedule = Schedule::new(None, Arrivals::Poisson, 1, 0);
        assert!(!schedule.is_paced());
        assert_eq!(departures(schedule, 3), [0, 0, 0]);
    }

    #[test]
    fn poisson_departures_have_the_rate_and_the_spread() {
        let times = departures(Schedule::new(Some(1e6), Arrivals::Poisson, 1, 42), 100_001);
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1000.0).abs() < 20.0, "mean {mean}");
        assert!(
            (variance.sqrt() - 1000.0).abs() < 40.0,
            "deviation {}",
            variance.sqrt()
        );
    }
}
