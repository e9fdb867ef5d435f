// SPDX-License-Identifier: Apache-2.0
//! Hash algorithms, as BMv2 computes them.
//!
//! CRCs are named by Rocksoft parameters (polynomial, initial value, reflection, final xor). Each takes four
//! bytes a step by four tables of 256 remainders made at compile time (slicing: Kounavis and Berry, ISCC 2005).

use sluice_program::HashAlgorithm;
use xxhash_rust::xxh64::xxh64;

use crate::random::Random;

/// A CRC of `width` bits, computed in the top bits of 64.
struct Crc {
    width: u32,
    initial: u64,
    reflected: bool,
    final_xor: u64,
    /// What a byte leaves that is followed by as many zero bytes as the table's place.
    tables: [[u64; 256]; 4],
}

impl Crc {
    const fn new(
        width: u32,
        polynomial: u64,
        initial: u64,
        reflected: bool,
        final_xor: u64,
    ) -> Self {
        let mut tables = [[0; 256]; 4];
        let mut byte = 0;
        while byte < 256 {
            let mut rest = if reflected {
                byte as u64
            } else {
                (byte as u64) << 56
            };
            let mut bit = 0;
            while bit < 8 {
                rest = if reflected {
                    let mirrored = polynomial.reverse_bits() >> (64 - width);
                    if rest & 1 == 1 {
                        rest >> 1 ^ mirrored
                    } else {
                        rest >> 1
                    }
                } else {
                    let aligned = polynomial << (64 - width);
                    if rest >> 63 == 1 {
                        rest << 1 ^ aligned
                    } else {
                        rest << 1
                    }
                };
                bit += 1;
            }
            tables[0][byte] = rest;
            byte += 1;
        }
        let mut zeros = 1;
        while zeros < 4 {
            let mut byte = 0;
            while byte < 256 {
                let before: u64 = tables[zeros - 1][byte];
                tables[zeros][byte] = if reflected {
                    before >> 8 ^ tables[0][(before & 0xff) as usize]
                } else {
                    before << 8 ^ tables[0][(before >> 56) as usize]
                };
                byte += 1;
            }
            zeros += 1;
        }
        Self {
            width,
            initial,
            reflected,
            final_xor,
            tables,
        }
    }

    #[inline]
    fn compute(&self, data: &[u8]) -> u64 {
        let unused = 64 - self.width;
        let start = self.initial << unused;
        let (steps, tail) = data.as_chunks::<4>();
        // The first byte is the lowest.
        let four = |step: u32| {
            let byte = |place: u32| (step >> (8 * place) & 0xff) as usize;
            let [last, third, second, first] = &self.tables;
            first[byte(0)] ^ second[byte(1)] ^ third[byte(2)] ^ last[byte(3)]
        };
        let rest = if self.reflected {
            let rest = steps.iter().fold(start.reverse_bits(), |rest, step| {
                let step = rest as u32 ^ u32::from_le_bytes(*step);
                rest >> 32 ^ four(step)
            });
            tail.iter().fold(rest, |rest, byte| {
                rest >> 8 ^ self.tables[0][usize::from(rest as u8 ^ byte)]
            })
        } else {
            let rest = steps.iter().fold(start, |rest, step| {
                let step = (rest >> 32) as u32 ^ u32::from_be_bytes(*step);
                rest << 32 ^ four(step.swap_bytes())
            });
            let rest = tail.iter().fold(rest, |rest, byte| {
                rest << 8 ^ self.tables[0][usize::from((rest >> 56) as u8 ^ byte)]
            });
            rest >> unused
        };
        rest ^ self.final_xor
    }
}

static CRC8: Crc = Crc::new(8, 0x07, 0, false, 0);
static CRC16_ARC: Crc = Crc::new(16, 0x8005, 0, true, 0);
static CRC16_CCITT: Crc = Crc::new(16, 0x1021, 0xffff, false, 0);
static CRC32: Crc = Crc::new(32, 0x04c1_1db7, 0xffff_ffff, true, 0xffff_ffff);
static CRC64: Crc = Crc::new(64, 0x1b, 0, true, 0);

/// The hash of `data`; `random` is for the algorithm of that name.
pub(crate) fn hash(algorithm: HashAlgorithm, data: &[u8], random: &mut Random) -> u64 {
    match algorithm {
        HashAlgorithm::Random => random.between(0, u64::MAX),
        HashAlgorithm::Crc8Custom => CRC8.compute(data),
        HashAlgorithm::Crc16 | HashAlgorithm::Crc16Custom => CRC16_ARC.compute(data),
        HashAlgorithm::CrcCcitt => CRC16_CCITT.compute(data),
        HashAlgorithm::Crc32 | HashAlgorithm::Crc32Custom => CRC32.compute(data),
        HashAlgorithm::Crc64Custom => CRC64.compute(data),
        HashAlgorithm::Csum16 => u64::from(internet_checksum(data)),
        HashAlgorithm::Xor16 => xor_words::<2>(data),
        HashAlgorithm::Xor32 => xor_words::<4>(data),
        HashAlgorithm::Identity => data
            .iter()
            .take(8)
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
        HashAlgorithm::Xxh64 => xxh64(data, 0),
    }
}

/// RFC 1071: the complement of the one's complement sum of 16-bit words, zero-padded at the end.
pub(crate) fn internet_checksum(data: &[u8]) -> u16 {
    // The one's complement sum does not depend on the word size, so sum 32 bits at a time.
    let mut chunks = data.chunks_exact(4);
    let mut sum: u64 = chunks
        .by_ref()
        .map(|chunk| u64::from(u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])))
        .sum();
    let mut tail = [0; 4];
    tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    sum += u64::from(u32::from_be_bytes(tail));
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// Exclusive or of big-endian words of `N` bytes, zero-padded at the end.
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

    /// The check string of the catalogue of CRC algorithms.
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

    /// The definition: a bit at a time, top-aligned, input and result mirrored where the CRC is.
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
    fn the_internet_checksum_of_an_ipv4_header() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(internet_checksum(&header), 0xb861);
        assert_eq!(internet_checksum(&[]), 0xffff);
        assert_eq!(internet_checksum(&[0x12]), !0x1200);
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
