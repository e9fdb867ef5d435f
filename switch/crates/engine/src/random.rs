// SPDX-License-Identifier: Apache-2.0
//! The generator behind v1model's `random`: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

/// The generator of one worker; see the module.
#[derive(Clone, Debug, Default)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator whose sequence depends on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number between both bounds, inclusive, with uniform distribution. `low` must not exceed `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let Some(count) = (high - low).checked_add(1) else {
            return self.next();
        };
        // The high half of a 64 x 64 bit product. The remaining bias is below count / 2^64.
        low + ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
