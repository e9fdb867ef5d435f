// SPDX-License-Identifier: Apache-2.0
//! Provides random choices for benchmark inputs, and a Zipf distribution over ranks.

/// A stream of pseudo-random numbers.
pub(crate) struct Random(sluice_random::Random);

impl Random {
    /// Creates the stream for a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(sluice_random::Random::new(seed))
    }

    /// Returns 64 random bits.
    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// Returns 128 random bits.
    pub(crate) fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    /// Returns a number that is at least 0 and less than 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// Returns true with the given probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Picks an element, with equal probabilities.
    ///
    /// # Panics
    /// Panics if `from` is empty.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Shuffles the elements (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Zipf distribution over ranks 0 to n - 1. The probability of rank r is proportional to 1 / (r + 1).
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Creates the distribution over `ranks` ranks.
    pub(crate) fn new(ranks: usize) -> Self {
        let mut sum = 0.0;
        let weights = (1..=ranks).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self {
            cumulative: weights.collect(),
        }
    }

    /// Draws a random rank with this distribution.
    pub(crate) fn rank(&self, random: &mut Random) -> usize {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let at = random.unit() * total;
        let rank = self.cumulative.partition_point(|weight| *weight <= at);
        rank.min(self.cumulative.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_prefers_low_ranks_by_their_inverse() {
        let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
        let mut seen = vec![0u32; 1000];
        for _ in 0..100_000 {
            seen[zipf.rank(&mut random)] += 1;
        }
        let ratio = f64::from(seen[0]) / f64::from(seen[9]);
        assert!((7.0..13.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn numbers_below_a_limit_reach_all_of_them() {
        let mut random = Random::new(2);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
