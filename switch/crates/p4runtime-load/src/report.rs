// SPDX-License-Identifier: Apache-2.0
//! Defines the output.

use std::time::Duration;

use serde::Serialize;

/// The results of all requests.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) updates: usize,
    pub(crate) requests: usize,
    pub(crate) seconds: f64,
    pub(crate) updates_per_second: f64,
    /// Time from sending a request to its response.
    pub(crate) milliseconds: Quantiles,
    pub(crate) client_cpu_seconds: f64,
    /// Present if the server's process was given.
    pub(crate) server: Option<Server>,
}

/// Processor time of the server during the run, and its memory at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Server {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mib: f64,
}

/// Median, 99th percentile and maximum, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Quantiles {
    median: f64,
    p99: f64,
    longest: f64,
}

impl Quantiles {
    /// Computes the quantiles of these times. Without times, all quantiles are 0.
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: f64| {
            let index = (times.len() as f64 * part) as usize;
            let time = times.get(index).or(times.last());
            time.map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Self {
            median: at(0.5),
            p99: at(0.99),
            longest: at(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred_and_of_none() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        let of = Quantiles::of(times);
        assert_eq!((of.median, of.p99, of.longest), (51.0, 100.0, 100.0));
        assert_eq!(Quantiles::of(Vec::new()).longest, 0.0);
    }
}
