// SPDX-License-Identifier: Apache-2.0
//! The keyed hash function, for keys of one size.
//!
//! The hash is the NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, 1999) over 64-bit words. It adds a secret to
//! each word, multiplies pairs of words to 128 bits, and sums the products. For an attacker who does not know the
//! secrets, two different keys of one size have equal sums with probability 2^-64. The halves of the sum are combined
//! by exclusive or. A key of up to sixteen bytes takes one addition, one multiplication and one exclusive or, one after
//! the other. The products of longer keys are independent of each other.
//!
//! The sums of consecutive keys form an arithmetic progression. With unfavourable secrets, the bits at one position of
//! their hashes repeat with a short period. So code that uses only a few bits combines bits from two positions
//! (`segment.rs`). Secrets that are unfavourable for one of these positions are favourable for the other.

use std::hash::{BuildHasher, RandomState};

/// Maximum number of words of a key that is hashed as words, in registers.
pub(crate) const WORDS: usize = 8;

/// Hash function for keys of one size.
pub trait HashKey {
    /// Returns the hash of a key given as words. See [`HashKey::hash`].
    fn hash_words<const W: usize>(&self, words: &[u64; W]) -> u64;

    /// Returns the hash of a key of more than 64 bytes. Shorter keys are hashed as words of eight bytes. The last word
    /// is the last eight bytes of the key. So it overlaps the previous word, unless the size is a multiple of 8. A key
    /// of up to eight bytes is one word.
    fn hash(&self, key: &[u8]) -> u64;

    /// Returns the [`KeyHasher`] that computes the same hashes, if there is one. Only such a hash function can use the
    /// SIMD kernels.
    fn known(&self) -> Option<&KeyHasher> {
        None
    }
}

/// Keyed hash for keys of one size, with its own secrets.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    /// Secrets for the words of keys that are hashed as words.
    first: [u64; WORDS],
    /// Secrets for the further words of longer keys. Their number is even.
    more: Box<[u64]>,
}

impl KeyHasher {
    /// Creates a hasher with random secrets from the operating system.
    pub fn random(key_bytes: usize) -> Self {
        let state = RandomState::new();
        Self::from_secrets(key_bytes, |index| state.hash_one(index))
    }

    /// Creates a hasher with secrets derived from a seed, for tests and for reproducible hashes. An attacker who knows
    /// the seed can find colliding keys.
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
        let words = key_bytes.div_ceil(8).next_multiple_of(2);
        // The second secret of each pair is odd. A key may lack the second word of a pair. Then the first word is
        // multiplied by the odd secret alone, which loses no bits.
        let secret = |index: usize| secret(index as u64) | (index % 2) as u64;
        Self {
            first: std::array::from_fn(secret),
            more: (WORDS..words).map(secret).collect(),
        }
    }
}

impl KeyHasher {
    /// Returns the secrets of the first two words.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn pair(&self) -> [u64; 2] {
        [self.first[0], self.first[1]]
    }
}

impl HashKey for KeyHasher {
    #[inline(always)]
    fn hash_words<const W: usize>(&self, words: &[u64; W]) -> u64 {
        let mut sum = 0u128;
        for pair in (0..W).step_by(2) {
            let second = if pair + 1 < W { words[pair + 1] } else { 0 };
            let secrets = [self.first[pair], self.first[pair + 1]];
            sum = sum.wrapping_add(product([words[pair], second], secrets));
        }
        fold(sum)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let secrets = self
            .first
            .as_chunks()
            .0
            .iter()
            .chain(self.more.as_chunks().0);
        let products = key.chunks(16).zip(secrets).map(|(chunk, secrets)| {
            // The last chunk may be short. It is padded with zeros.
            let mut words = [0; 16];
            words[..chunk.len()].copy_from_slice(chunk);
            let words = u128::from_le_bytes(words);
            product([words as u64, (words >> 64) as u64], *secrets)
        });
        fold(products.fold(0, u128::wrapping_add))
    }

    fn known(&self) -> Option<&KeyHasher> {
        Some(self)
    }
}

/// Adds a secret to each of two words, and returns the product of the sums.
#[inline(always)]
fn product(words: [u64; 2], secrets: [u64; 2]) -> u128 {
    let word = |index: usize| u128::from(words[index].wrapping_add(secrets[index]));
    word(0) * word(1)
}

#[inline(always)]
fn fold(sum: u128) -> u64 {
    (sum >> 64) as u64 ^ sum as u64
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

    /// Checks that keys that contain a counter are spread evenly, for counters at every position in the key. Keys that
    /// are spread more evenly than by chance also pass.
    #[test]
    fn counted_keys_spread_evenly_over_segments_and_buckets() {
        let mut chi_squares = Vec::new();
        for (seed, start) in (0..40).flat_map(|seed| (0..10).map(move |start| (seed, start))) {
            let hasher = KeyHasher::seeded(13, seed);
            let mut counts = [[0u32; 256]; 3];
            for number in 0..256 * 40 {
                let mut key = [0; 13];
                key[start..start + 4].copy_from_slice(&u32::to_be_bytes(number));
                let hash = hash_of(&hasher, &key);
                let mixed = hash ^ hash >> 32;
                counts[0][(hash >> 48 & 255) as usize] += 1;
                counts[1][(mixed >> 7 & 255) as usize] += 1;
                counts[2][(mixed >> 21 & 255) as usize] += 1;
            }
            chi_squares.extend(counts.map(|counts| {
                let differences = counts.iter().map(|count| f64::from(*count) - 40.0);
                differences
                    .map(|difference| difference * difference)
                    .sum::<f64>()
                    / 40.0
            }));
        }
        chi_squares.sort_by(f64::total_cmp);
        let part = |of: f64| chi_squares[(chi_squares.len() as f64 * of) as usize];
        // Chi-square with 255 degrees of freedom has the mean 255 and the standard deviation 22.6.
        assert!(part(0.5) < 270.0, "{chi_squares:?}");
        assert!(part(0.9) < 400.0, "{chi_squares:?}");
    }

    #[test]
    fn random_hashers_differ() {
        let of_zero = || hash_of(&KeyHasher::random(13), &[0; 13]);
        assert_ne!(of_zero(), of_zero());
    }
}
