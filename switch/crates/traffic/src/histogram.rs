// SPDX-License-Identifier: Apache-2.0
//! Stores a histogram of durations with a relative error of at most 1/64, in constant memory.
//!
//! A bucket is identified by the position of a value's highest bit and the 6 bits after it. Each value below 128 has
//! its own bucket.

const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// Numbers of values by their size in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum as f64 / self.count as f64
        }
    }

    /// Returns the quantile for `fraction`: the smallest value that at least this share of all values does not exceed.
    /// The result is rounded up to the end of its bucket. Returns 0 if there are no values.
    pub(crate) fn quantile(&self, fraction: f64) -> u64 {
        let rank = (fraction * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(index).clamp(self.min(), self.max);
            }
        }
        self.max
    }
}

fn bucket(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    shift as usize * SUB + (value >> shift) as usize
}

/// Returns the largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let shift = (bucket / SUB).saturating_sub(1);
    let leading = (bucket - shift * SUB) as u64;
    (leading << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_closely(value: u64) {
            let end = upper(bucket(value));
            prop_assert!(end >= value);
            prop_assert!(end - value <= value / 64, "{value} in a bucket up to {end}");
            prop_assert!(bucket(value) < BUCKETS);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        assert_eq!(
            (histogram.quantile(0.5), histogram.min(), histogram.max()),
            (0, 0, 0)
        );
        (1..=100).for_each(|value| histogram.record(value));
        assert_eq!(histogram.quantile(0.0), 1);
        assert_eq!(histogram.quantile(0.5), 50);
        assert_eq!(histogram.quantile(0.99), 99);
        assert_eq!(histogram.quantile(1.0), 100);
        assert_eq!((histogram.count, histogram.mean()), (100, 50.5));
    }
}
