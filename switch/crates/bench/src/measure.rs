// SPDX-License-Identifier: Apache-2.0
//! Measures several contenders at one task. In each round, the contenders run one after the other, each for about the
//! same time.
//!
//! Rates are per second of processor time, so that other processes disturb the results less. The order of the
//! contenders rotates from round to round. Before the first round, each contender warms up for the time of one round.

use std::hint::black_box;
use std::time::Duration;

use crate::system::thread_time;

/// Number and length of the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Processor time that each contender gets in a round.
    pub(crate) time: Duration,
}

/// A lookup structure together with the task on which it is measured.
pub(crate) struct Contender<'a> {
    pub(crate) name: String,
    /// Number of operations in one pass.
    operations: usize,
    pass: Pass<'a>,
}

enum Pass<'a> {
    /// Runs the operations. Returns a value that depends on them, so that the compiler does not remove them.
    Plain(Box<dyn FnMut() -> u64 + 'a>),
    /// Runs the operations. Returns their processor time, which excludes the time to prepare them.
    Timed(Box<dyn FnMut() -> Duration + 'a>),
}

impl<'a> Contender<'a> {
    /// Creates a contender whose passes have this number of operations.
    pub(crate) fn new(
        name: impl Into<String>,
        operations: usize,
        pass: impl FnMut() -> u64 + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            operations,
            pass: Pass::Plain(Box::new(pass)),
        }
    }

    /// Creates a contender whose passes measure their own time with [`thread_time`].
    pub(crate) fn timed(
        name: impl Into<String>,
        operations: usize,
        pass: impl FnMut() -> Duration + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            operations,
            pass: Pass::Timed(Box::new(pass)),
        }
    }

    fn passes(&mut self, count: usize) -> Duration {
        let pass = match &mut self.pass {
            Pass::Timed(pass) => return (0..count).map(|_| pass()).sum(),
            Pass::Plain(pass) => pass,
        };
        let start = thread_time();
        for _ in 0..count {
            black_box(pass());
        }
        thread_time() - start
    }

    /// Measures how many passes the contender completes in the given time.
    fn calibrate(&mut self, time: Duration) -> usize {
        let (mut count, mut spent) = (0, Duration::ZERO);
        while spent < time {
            spent += self.passes(1);
            count += 1;
        }
        count
    }
}

/// Rates of one contender in operations per second, one rate for each round.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    pub(crate) name: String,
    pub(crate) rounds: Vec<f64>,
}

impl Rates {
    /// Returns the median of all rounds.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = sorted.len() / 2;
        match sorted.len() % 2 {
            1 => sorted[upper],
            _ => (sorted[upper - 1] + sorted[upper]) / 2.0,
        }
    }
}

/// Measures all contenders. Returns the rates in the order of the contenders.
pub(crate) fn interleave(contenders: &mut [Contender<'_>], effort: Effort) -> Vec<Rates> {
    let counts: Vec<usize> = contenders
        .iter_mut()
        .map(|contender| contender.calibrate(effort.time))
        .collect();
    let mut rates: Vec<Rates> = contenders
        .iter()
        .map(|contender| Rates {
            name: contender.name.clone(),
            rounds: Vec::with_capacity(effort.rounds),
        })
        .collect();
    for round in 0..effort.rounds {
        for turn in 0..contenders.len() {
            let who = (turn + round) % contenders.len();
            let took = contenders[who].passes(counts[who]);
            let operations = contenders[who].operations * counts[who];
            let seconds = took.max(Duration::from_nanos(1)).as_secs_f64();
            rates[who].rounds.push(operations as f64 / seconds);
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_every_round() {
        let effort = Effort {
            rounds: 3,
            time: Duration::from_micros(50),
        };
        let mut contenders = [
            Contender::new("one", 10, || black_box(1)),
            Contender::timed("two", 10, || Duration::from_micros(black_box(20))),
        ];
        let rates = interleave(&mut contenders, effort);
        let names: Vec<_> = rates.iter().map(|rates| rates.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        assert!(rates.iter().all(|rates| rates.rounds.len() == 3));
        assert!(rates.iter().all(|rates| rates.median() > 0.0));
    }

    #[test]
    fn medians_are_in_the_middle() {
        let median = |rounds: &[f64]| {
            let name = String::new();
            Rates {
                name,
                rounds: rounds.to_vec(),
            }
            .median()
        };
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
