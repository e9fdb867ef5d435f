// SPDX-License-Identifier: Apache-2.0
//! The keyed hash of keys that all have one size.
//!
//! The NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, 1999) over 64-bit words: words in
//! pairs, a secret added to each, the products added up to 128 bits. For keys of one size and
//! secrets that an attacker does not know, two different keys collide there with probability 2^-64.
//! The products do not depend on each other, so a key of 37 bytes takes hardly longer than one of
//! 13. A last multiplication folds the sum to 64 bits that are all equally good.

use std::hash::{BuildHasher, RandomState};

/// Something that hashes keys of one size.
pub trait HashKey {
    /// The hash of a key. Equal keys have equal hashes.
    fn hash(&self, key: &[u8]) -> u64;
}

/// A keyed hash for keys of one size, with secrets of its own.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    last: [u64; 2],
    first: [u64; 2],
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
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        })
    }

    fn from_secrets(key_bytes: usize, secret: impl Fn(u64) -> u64) -> Self {
        let pair = |index: u64| [secret(2 * index), secret(2 * index + 1)];
        let pairs = key_bytes.div_ceil(16).max(1) as u64;
        Self {
            last: pair(0),
            first: pair(1),
            more: (1..pairs).map(|index| pair(index + 1)).collect(),
        }
    }
}

impl HashKey for KeyHasher {
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        let mut sum = product(words(key), self.first);
        let mut rest = key;
        for secret in &self.more {
            // The last pair overlaps the one before where the size is no multiple of 16.
            let skip = (rest.len() - 16).min(16);
            rest = &rest[skip..];
            sum = sum.wrapping_add(product(words(rest), *secret));
        }
        let (low, high) = (sum as u64, (sum >> 64) as u64);
        let folded = u128::from(low ^ self.last[0]) * u128::from(high ^ self.last[1]);
        folded as u64 ^ (folded >> 64) as u64
    }
}

#[inline]
fn product(words: [u64; 2], secret: [u64; 2]) -> u128 {
    let factor = |index: usize| u128::from(words[index].wrapping_add(secret[index]));
    factor(0) * factor(1)
}

/// The first 16 bytes, or all of a shorter key; different keys of one size give different words.
#[inline]
fn words(key: &[u8]) -> [u64; 2] {
    let len = key.len();
    if let Some(whole) = key.first_chunk::<16>() {
        let both = u128::from_le_bytes(*whole);
        [both as u64, (both >> 64) as u64]
    } else if let (Some(front), Some(back)) = (key.first_chunk(), key.last_chunk()) {
        [u64::from_le_bytes(*front), u64::from_le_bytes(*back)]
    } else if let (Some(front), Some(back)) = (key.first_chunk(), key.last_chunk()) {
        let word = |chunk: &[u8; 4]| u64::from(u32::from_le_bytes(*chunk));
        [word(front), word(back)]
    } else if len > 0 {
        let byte = |index: usize| u64::from(key[index]);
        [byte(0), byte(len / 2) << 8 | byte(len - 1)]
    } else {
        [0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_byte_counts_at_every_size() {
        for size in 1..80 {
            let hasher = KeyHasher::seeded(size, 7);
            let mut seen = HashSet::from([hasher.hash(&vec![0; size])]);
            for index in 0..size {
                for bit in 0..8 {
                    let mut key = vec![0; size];
                    key[index] = 1 << bit;
                    assert!(seen.insert(hasher.hash(&key)), "size {size}, byte {index}");
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
            let hash = hasher.hash(&key);
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
        let hash = || KeyHasher::random(13).hash(&[0; 13]);
        assert_ne!(hash(), hash());
    }
}
