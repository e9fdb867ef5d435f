// SPDX-License-Identifier: Apache-2.0
//! The keyed hash of keys that all have one size.
//!
//! The NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, 1999) over 64-bit words: words in
//! pairs, a secret added to each, the products added up to 128 bits. For keys of one size and
//! secrets that an attacker does not know, two different keys collide there with probability 2^-64.
//! The products do not depend on each other, so a key of 37 bytes takes hardly longer than one of
//! 13. A last multiplication folds the sum to 64 bits that are all equally good.

use std::hash::{BuildHasher, RandomState};

use crate::key::WORDS;

/// Something that hashes keys of one size.
pub trait HashKey {
    /// The hash of a key given as words: see [`HashKey::hash`].
    fn hash_words<const W: usize>(&self, words: &[u64; W]) -> u64;

    /// The hash of a key of more than 64 bytes. Shorter ones come as words, all of them of one size:
    /// eight bytes each, the last eight bytes last (so that they overlap those before unless the
    /// size is a multiple of 8), or one word for keys of up to eight bytes.
    fn hash(&self, key: &[u8]) -> u64;
}

/// Pairs of words that have secrets at hand.
const PAIRS: usize = WORDS / 2;

/// A keyed hash for keys of one size, with secrets of its own.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    last: [u64; 2],
    first: [[u64; 2]; PAIRS],
    /// For the pairs of words after the first.
    more: Box<[[u64; 2]]>,
}

impl KeyHasher {
    /// A hasher with secrets from the operating system's randomness.
    pub fn random(key_bytes: usize) -> Self {
        let state = RandomState::new();
        Self::from_secrets(key_bytes, |index| state.hash_one(index))
    }

    /// A hasher with secrets made from a seed: for tests, and for whoever must have the same hashes
    /// again. Not safe against who knows the seed.
    pub fn seeded(key_bytes: usize, seed: u64) -> Self {
        // SplitMix64 (Steele, Lea, Flood, 2014).
        Self::from_secrets(key_bytes, |index| {
            let step = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut word = seed.wrapping_add(step);
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        })
    }

    fn from_secrets(key_bytes: usize, secret: impl Fn(u64) -> u64) -> Self {
        let pair = |index: u64| [secret(2 * index), secret(2 * index + 1)];
        let pairs = key_bytes.div_ceil(16) as u64;
        Self {
            last: pair(0),
            first: std::array::from_fn(|index| pair(index as u64 + 1)),
            more: (PAIRS as u64..pairs).map(|index| pair(index + 1)).collect(),
        }
    }

    #[inline]
    fn fold(&self, sum: u128) -> u64 {
        let (low, high) = (sum as u64, (sum >> 64) as u64);
        let folded = u128::from(low ^ self.last[0]) * u128::from(high ^ self.last[1]);
        folded as u64 ^ (folded >> 64) as u64
    }
}

impl HashKey for KeyHasher {
    #[inline]
    fn hash_words<const W: usize>(&self, words: &[u64; W]) -> u64 {
        let mut sum = 0u128;
        for index in 0..W.div_ceil(2) {
            let second = words.get(2 * index + 1).copied().unwrap_or(0);
            let pair = [words[2 * index], second];
            sum = sum.wrapping_add(product(pair, self.first[index]));
        }
        self.fold(sum)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let secrets = self.first.iter().chain(&self.more);
        let mut sum = 0u128;
        for (chunk, secret) in key.chunks(16).zip(secrets) {
            // The last chunk may be short: zeros follow it.
            let mut pair = [0; 16];
            pair[..chunk.len()].copy_from_slice(chunk);
            let both = u128::from_le_bytes(pair);
            sum = sum.wrapping_add(product([both as u64, (both >> 64) as u64], *secret));
        }
        self.fold(sum)
    }
}

#[inline]
fn product(words: [u64; 2], secret: [u64; 2]) -> u128 {
    let factor = |index: usize| u128::from(words[index].wrapping_add(secret[index]));
    factor(0) * factor(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash_of;
    use std::collections::HashSet;

    #[test]
    fn every_byte_counts_at_every_size() {
        for size in 1..120 {
            let hasher = KeyHasher::seeded(size, 7);
            let mut seen = HashSet::from([hash_of(&hasher, &vec![0; size])]);
            for index in 0..size {
                for bit in 0..8 {
                    let mut key = vec![0; size];
                    key[index] = 1 << bit;
                    assert!(
                        seen.insert(hash_of(&hasher, &key)),
                        "size {size}, byte {index}"
                    );
                }
            }
        }
    }

    #[test]
    fn counted_keys_spread_evenly_over_the_top_and_the_low_bits() {
        let hasher = KeyHasher::seeded(13, 1);
        let mut buckets = [[0u32; 256]; 2];
        let keys = 256 * 400;
        for number in 0..keys {
            let mut key = [0; 13];
            key[5..9].copy_from_slice(&u32::to_be_bytes(number));
            let hash = hash_of(&hasher, &key);
            buckets[0][(hash >> 56) as usize] += 1;
            buckets[1][(hash & 255) as usize] += 1;
        }
        for counts in buckets {
            let squares = counts
                .iter()
                .map(|count| (f64::from(*count) - 400.0).powi(2));
            let chi_square = squares.sum::<f64>() / 400.0;
            // 255 degrees of freedom: mean 255, standard deviation 22.6.
            assert!((150.0..360.0).contains(&chi_square), "{chi_square}");
        }
    }

    #[test]
    fn random_hashers_differ() {
        let of_zero = || hash_of(&KeyHasher::random(13), &[0; 13]);
        assert_ne!(of_zero(), of_zero());
    }
}
