// SPDX-License-Identifier: Apache-2.0
//! The keyed hash of keys that all have one size.
//!
//! The NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, 1999): a secret is added to each half
//! of a word, the halves are multiplied, the products added up. For keys of one size and secrets that
//! an attacker does not know, two different keys collide there with probability 2^-32. The products
//! do not depend on each other, so a key of 37 bytes takes hardly longer than one of 13, and
//! processors with wide instructions hash eight keys at once. A multiplication by a secret odd
//! number between two shifts, which loses nothing, makes all 64 bits equally good.

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

    /// The hasher that hashes like this one and is known to kernels with wide instructions.
    fn known(&self) -> Option<&KeyHasher> {
        None
    }
}

/// A keyed hash for keys of one size, with secrets of its own.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    /// Odd.
    factor: u64,
    start: u64,
    first: [u64; WORDS],
    /// For the words after the first.
    more: Box<[u64]>,
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
        let words = key_bytes.div_ceil(8);
        Self {
            factor: secret(0) | 1,
            start: secret(1),
            first: std::array::from_fn(|index| secret(index as u64 + 2)),
            more: (WORDS..words)
                .map(|index| secret(index as u64 + 2))
                .collect(),
        }
    }

    /// Secrets of the first two words, the start of the sum, and the factor.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn wide(&self) -> ([u64; 2], u64, u64) {
        ([self.first[0], self.first[1]], self.start, self.factor)
    }

    #[inline(always)]
    fn fold(&self, sum: u64) -> u64 {
        let mixed = (sum ^ sum >> 32).wrapping_mul(self.factor);
        mixed ^ mixed >> 32
    }
}

impl HashKey for KeyHasher {
    #[inline(always)]
    fn hash_words<const W: usize>(&self, words: &[u64; W]) -> u64 {
        let product = |index: usize| product(words[index], self.first[index]);
        self.fold((0..W).fold(self.start, |sum, index| sum.wrapping_add(product(index))))
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let secrets = self.first.iter().chain(&self.more);
        let products = key.chunks(8).zip(secrets).map(|(chunk, secret)| {
            // The last chunk may be short: zeros follow it.
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            product(u64::from_le_bytes(word), *secret)
        });
        self.fold(products.fold(self.start, u64::wrapping_add))
    }

    fn known(&self) -> Option<&KeyHasher> {
        Some(self)
    }
}

/// The product of a word's halves, a secret added to each.
#[inline(always)]
fn product(word: u64, secret: u64) -> u64 {
    let low = (word as u32).wrapping_add(secret as u32);
    let high = ((word >> 32) as u32).wrapping_add((secret >> 32) as u32);
    u64::from(low) * u64::from(high)
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
