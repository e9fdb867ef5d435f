// SPDX-License-Identifier: Apache-2.0
//! Generates random numbers from a seed (SplitMix64). The same seed yields the same traffic.

/// Generator of uniformly distributed numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a uniform number in 0 <= x < 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a uniform number in 0 <= x < bound. The bias is below 2^-32 for the bounds used here.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
}

/// Maps each number to a different number, and mixes all bits.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_within_bounds() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        for bound in 1..1000 {
            assert_eq!(one.unit(), two.unit());
            let number = one.below(bound);
            assert_eq!(number, two.below(bound));
            assert!(number < bound);
        }
    }
}
