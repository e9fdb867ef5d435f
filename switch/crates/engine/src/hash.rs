// SPDX-License-Identifier: Apache-2.0
//! The hash algorithms of BMv2, and the hash by which selectors choose members.

mod crc;

use sluice_program::HashAlgorithm;
use sluice_random::Random;
use xxhash_rust::xxh64::xxh64;

pub use self::crc::{Folding, Remainder, RemainderOfBlock};

/// Computes the hash of `data`. Only the algorithm "random" uses `random`.
pub fn hash(algorithm: HashAlgorithm, data: &[u8], random: &mut Random) -> u64 {
    match algorithm {
        HashAlgorithm::Random => random.between(0, u64::MAX),
        HashAlgorithm::Crc8Custom => crc::CRC8.compute(data),
        HashAlgorithm::Crc16 | HashAlgorithm::Crc16Custom => crc::CRC16_ARC.compute(data),
        HashAlgorithm::CrcCcitt => crc::CRC16_CCITT.compute(data),
        HashAlgorithm::Crc32 | HashAlgorithm::Crc32Custom => crc::CRC32.compute(data),
        HashAlgorithm::Crc64Custom => crc::CRC64.compute(data),
        HashAlgorithm::Csum16 => u64::from(sluice_checksum::checksum(data)),
        HashAlgorithm::Xor16 => xor_words::<2>(data),
        HashAlgorithm::Xor32 => xor_words::<4>(data),
        HashAlgorithm::Identity => data
            .iter()
            .take(8)
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
        HashAlgorithm::Xxh64 => xxh64(data, 0),
    }
}

/// Returns the constants for computing `algorithm` by folding instead of by tables. Returns `None` if `algorithm` is
/// not a reflected CRC of 16 or 32 bits.
pub fn folding(algorithm: HashAlgorithm) -> Option<&'static Folding> {
    match algorithm {
        HashAlgorithm::Crc16 | HashAlgorithm::Crc16Custom => Some(&crc::FOLDING_ARC),
        HashAlgorithm::Crc32 | HashAlgorithm::Crc32Custom => Some(&crc::FOLDING_32),
        _ => None,
    }
}

/// Multiplier of [`spread`] and [`blend`], from SplitMix64.
pub const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

/// Computes the hash for selectors whose algorithm [only spreads](HashAlgorithm::only_spreads). For such a selector,
/// any hash that chooses members evenly is correct.
///
/// The hash takes a few instructions per word. Input words are combined by exclusive or. The last word is padded with
/// zeros. After each word except the last, the hash is multiplied, and the halves of the product are combined. The last
/// word needs no multiplication, because the choice of the bucket multiplies the result in the same way.
pub fn spread(data: &[u8]) -> u64 {
    let mut words = words(data);
    let first = words.next().unwrap_or(0);
    words.fold(first, |hash, word| fold(hash) ^ word)
}

/// Returns the big-endian words of an input. The last word is padded with zeros.
fn words(data: &[u8]) -> impl Iterator<Item = u64> {
    data.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(word)
    })
}

/// Multiplies by [`MULTIPLIER`] and combines the halves of the product by exclusive or.
fn fold(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

/// Returns the factor by which [`blend`] multiplies the input word at `index`: an odd pseudo-random number
/// (SplitMix64).
pub const fn weight(index: usize) -> u64 {
    let word = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31) | 1
}

/// Computes the hash that replaces a CRC or xxHash if it is
/// [`replaceable`](sluice_program::Calculation::replaceable).
///
/// The hash is the sum of the input words, each multiplied by its own factor. The multiplications are independent, so
/// the processor can overlap them. The sum is mixed at the end, because the program may use only a few bits of the
/// hash.
pub fn blend(data: &[u8]) -> u64 {
    let weighted = words(data).enumerate();
    let weighted = weighted.map(|(index, word)| word.wrapping_mul(weight(index)));
    fold(weighted.fold(0, u64::wrapping_add))
}

/// Computes the hash by which a selector chooses a member.
pub fn selector(algorithm: HashAlgorithm, data: &[u8], random: &mut Random) -> u64 {
    if algorithm.only_spreads() {
        spread(data)
    } else {
        hash(algorithm, data, random)
    }
}

/// Computes the exclusive or of big-endian words of `N` bytes. The last word is padded with zeros.
fn xor_words<const N: usize>(data: &[u8]) -> u64 {
    data.chunks(N).fold(0, |value, chunk| {
        let word = chunk
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        value ^ word << (8 * (N - chunk.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(algorithm: HashAlgorithm, data: &[u8]) -> u64 {
        super::hash(algorithm, data, &mut Random::new(1))
    }

    /// Input for which the catalogue of CRC algorithms gives check values.
    const CHECK: &[u8] = b"123456789";

    #[test]
    fn crcs_have_the_catalogue_check_values() {
        assert_eq!(hash(HashAlgorithm::Crc8Custom, CHECK), 0xf4);
        assert_eq!(hash(HashAlgorithm::Crc16, CHECK), 0xbb3d);
        assert_eq!(hash(HashAlgorithm::CrcCcitt, CHECK), 0x29b1);
        assert_eq!(hash(HashAlgorithm::Crc32, CHECK), 0xcbf4_3926);
        assert_eq!(
            hash(HashAlgorithm::Crc64Custom, CHECK),
            0x46a5_a938_8a5b_effe
        );
    }

    /// Computes a CRC by its definition, bit by bit, in the top bits of a word. Reflects input and result if the CRC is
    /// reflected.
    fn bitwise(
        width: u32,
        polynomial: u64,
        initial: u64,
        mirrored: bool,
        xor: u64,
        data: &[u8],
    ) -> u64 {
        let mut rest = initial << (64 - width);
        for byte in data {
            let byte = if mirrored { byte.reverse_bits() } else { *byte };
            rest ^= u64::from(byte) << 56;
            for _ in 0..8 {
                let carry = rest >> 63;
                rest = (rest << 1) ^ (carry * (polynomial << (64 - width)));
            }
        }
        let rest = if mirrored {
            rest.reverse_bits()
        } else {
            rest >> (64 - width)
        };
        rest ^ xor
    }

    #[test]
    fn crcs_of_any_length_are_what_the_definition_gives() {
        let data: Vec<u8> = (0..40u8)
            .map(|byte| byte.wrapping_mul(151) ^ 0x5a)
            .collect();
        for length in 0..data.len() {
            let data = &data[..length];
            let same = |algorithm, width, polynomial, initial, mirrored, xor| {
                let expected = bitwise(width, polynomial, initial, mirrored, xor, data);
                assert_eq!(
                    hash(algorithm, data),
                    expected,
                    "{algorithm:?} of {length} bytes"
                );
            };
            same(HashAlgorithm::Crc8Custom, 8, 0x07, 0, false, 0);
            same(HashAlgorithm::Crc16, 16, 0x8005, 0, true, 0);
            same(HashAlgorithm::CrcCcitt, 16, 0x1021, 0xffff, false, 0);
            same(
                HashAlgorithm::Crc32,
                32,
                0x04c1_1db7,
                0xffff_ffff,
                true,
                0xffff_ffff,
            );
            same(HashAlgorithm::Crc64Custom, 64, 0x1b, 0, true, 0);
        }
    }

    #[test]
    fn remainders_by_folding_are_the_crcs_of_any_length() {
        let data: Vec<u8> = (0..64u8).map(|byte| byte.wrapping_mul(37) ^ 0xc3).collect();
        for algorithm in [HashAlgorithm::Crc16, HashAlgorithm::Crc32] {
            let folding = folding(algorithm).expect("a CRC of this kind");
            let Some(remainder) = folding.remainder() else {
                return; // no PCLMULQDQ
            };
            for length in 1..=data.len() {
                let mut padded = vec![0; length.next_multiple_of(16) - length];
                padded.extend_from_slice(&data[..length]);
                let words: Vec<u64> = padded
                    .chunks(8)
                    .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                    .collect();
                let blocks = words.len() as u64 / 2;
                // SAFETY: `words` holds `blocks` blocks, at least one; the CPU supports PCLMULQDQ.
                let raw = unsafe { remainder(folding, words.as_ptr(), blocks) };
                let expected = hash(algorithm, &data[..length]);
                assert_eq!(raw ^ folding.of_zeros(length), expected, "{length} bytes");
                if let [low, high] = words[..] {
                    let short = folding.remainder_of_block().expect("as above");
                    // SAFETY: the CPU supports PCLMULQDQ.
                    let of_block = unsafe { short(folding, low, high) };
                    assert_eq!(of_block, raw, "{length} bytes");
                }
            }
        }
    }

    /// Checks that flows that differ in few bits are spread evenly over all buckets.
    #[test]
    fn selectors_spread_flows_in_a_row() {
        let bucket = |hash: u64| {
            let product = u128::from(hash) * u128::from(sluice_tables::GroupHandle::SPREAD);
            let spread = (product >> 64) as u64 ^ product as u64;
            ((u128::from(spread) * 16) >> 64) as usize
        };
        // Length of the input, and position of the two bytes that differ between flows (in an address or a port).
        for (bytes, place) in [
            (4, 2),
            (8, 2),
            (8, 6),
            (13, 2),
            (13, 6),
            (13, 9),
            (40, 14),
            (40, 30),
        ] {
            let mut counts = [0u32; 16];
            for flow in 0..1u16 << 12 {
                let mut input = vec![0x5a; bytes];
                input[place..place + 2].copy_from_slice(&flow.to_be_bytes());
                counts[bucket(spread(&input))] += 1;
            }
            for count in counts {
                assert!(
                    (128..=384).contains(&count),
                    "{bytes} bytes, at {place}: {counts:?}"
                );
            }
        }
    }

    /// Checks that [`blend`] spreads flows evenly when a program keeps only some low bits of the hash and adds a base
    /// to them.
    #[test]
    fn what_nobody_sees_spreads_flows_in_a_row() {
        for (bytes, place) in [(4, 2), (8, 6), (13, 2), (13, 6), (13, 9), (37, 30)] {
            for (bits, seed) in [(4, 0), (16, 0), (32, 0), (32, 0x1234_5678)] {
                let mut counts = [0u32; 16];
                for flow in 0..1u16 << 12 {
                    let mut input = vec![0x5a; bytes];
                    input[place..place + 2].copy_from_slice(&flow.to_be_bytes());
                    let taken = blend(&input).wrapping_add(seed) & ((1 << bits) - 1);
                    let chosen = fold(spread(&(taken as u32).to_be_bytes()));
                    counts[((u128::from(chosen) * 16) >> 64) as usize] += 1;
                }
                let used = counts.iter().filter(|count| **count > 0).count();
                if bits > 4 {
                    let even = counts.iter().all(|count| (128..=384).contains(count));
                    assert!(even, "{bytes} bytes, at {place}, {bits} bits: {counts:?}");
                } else {
                    assert!(used > 7, "{bytes} bytes, at {place}: {counts:?}");
                }
            }
        }
    }

    #[test]
    fn every_bit_of_the_input_counts_in_what_nobody_sees() {
        for bytes in [1, 8, 13, 37] {
            let whole = blend(&vec![0x5a; bytes]);
            for bit in 0..bytes * 8 {
                let mut input = vec![0x5a; bytes];
                input[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(
                    blend(&input) as u16,
                    whole as u16,
                    "bit {bit} of {bytes} bytes"
                );
            }
        }
    }

    #[test]
    fn algorithms_that_treat_flows_alike_keep_doing_so() {
        let both_ways = [[10, 0, 0, 1, 10, 9, 9, 9], [10, 9, 9, 9, 10, 0, 0, 1]];
        for algorithm in [
            HashAlgorithm::Xor32,
            HashAlgorithm::Xor16,
            HashAlgorithm::Csum16,
        ] {
            let [there, back] =
                both_ways.map(|input| selector(algorithm, &input, &mut Random::new(1)));
            assert_eq!(there, back, "{algorithm:?}");
        }
    }

    #[test]
    fn xor_pads_with_zeros_at_the_end() {
        assert_eq!(
            hash(HashAlgorithm::Xor16, &[0x12, 0x34, 0xff]),
            0x1234 ^ 0xff00
        );
        assert_eq!(
            hash(HashAlgorithm::Xor32, &[1, 2, 3, 4, 5]),
            0x0102_0304 ^ 0x0500_0000
        );
    }

    #[test]
    fn identity_is_the_first_eight_bytes() {
        assert_eq!(hash(HashAlgorithm::Identity, &[1, 2]), 0x0102);
        assert_eq!(
            hash(HashAlgorithm::Identity, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
            0x0102_0304_0506_0708
        );
    }

    #[test]
    fn xxh64_has_the_reference_value_for_no_input() {
        assert_eq!(hash(HashAlgorithm::Xxh64, &[]), 0xef46_db37_51d8_e999);
    }
}
