// SPDX-License-Identifier: Apache-2.0
//! Generates pseudo-random numbers by SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). A seed yields the same sequence on
//! every machine. The numbers must not be used as secrets.

/// A pseudo-random sequence of numbers, determined by its seed.
#[derive(Clone, Debug, Default)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0. The distribution is uniform, with a bias below `limit` /
    /// 2^64.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both included. The distribution is the same as for
    /// [`below`](Self::below). `low` must not exceed `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match (high - low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.next_u64(),
        }
    }

    /// Returns a number that is at least 0 and less than 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Mixes all bits of a number with SplitMix64's finalizer. Different numbers have different results.
#[inline]
pub fn mix(number: u64) -> u64 {
    let z = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the first numbers of the reference implementation for the seed 1234567.
    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next_u64());
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn both_bounds_occur_and_nothing_beyond_them() {
        let mut random = Random::new(7);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[(random.between(3, 6) - 3) as usize] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(random.between(9, 9), 9);
        random.between(0, u64::MAX);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_within_bounds() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        for limit in 1..1000 {
            let fraction = one.unit();
            assert_eq!(fraction, two.unit());
            assert!((0.0..1.0).contains(&fraction));
            let number = one.below(limit);
            assert_eq!(number, two.below(limit));
            assert!(number < limit);
        }
    }
}
