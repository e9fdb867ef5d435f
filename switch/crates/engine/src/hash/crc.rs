// SPDX-License-Identifier: Apache-2.0
//! Cyclic redundancy checks.
//!
//! CRCs are named by Rocksoft parameters (polynomial, initial value, reflection, final xor). Each takes four
//! bytes a step by four tables of 256 remainders made at compile time (slicing: Kounavis and Berry, ISCC 2005).
//! Those of 16 and 32 bits that are reflected have another way for machine code ([`Folding`]).

use sluice_program::HashAlgorithm;

use crate::random::Random;

/// A CRC of `width` bits, computed in the top bits of 64.
pub(super) struct Crc {
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
    pub(super) fn compute(&self, data: &[u8]) -> u64 {
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

pub(super) static CRC8: Crc = Crc::new(8, 0x07, 0, false, 0);
pub(super) static CRC16_ARC: Crc = Crc::new(16, 0x8005, 0, true, 0);
pub(super) static CRC16_CCITT: Crc = Crc::new(16, 0x1021, 0xffff, false, 0);
pub(super) static CRC32: Crc = Crc::new(32, 0x04c1_1db7, 0xffff_ffff, true, 0xffff_ffff);
pub(super) static CRC64: Crc = Crc::new(64, 0x1b, 0, true, 0);

/// Remainders modulo a reflected polynomial of at most 32 bits by carry-less multiplication (Gopal, Ozturk et
/// al., "Fast CRC computation for generic polynomials using PCLMULQDQ", 2009).
///
/// A CRC is linear but for a constant that depends on the length: it is the remainder of the input, where zeros
/// in front count nothing, and [`of_zeros`](Self::of_zeros). So inputs come in whole blocks of 16 bytes, with
/// zeros in front.
///
/// Bit 0 of a number stands for the highest power here, so a product of two words is short of a factor x, which
/// the powers make up for.
#[derive(Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) struct Folding {
    /// x^191 and x^127: what brings a block over the next one.
    over_block: [u64; 2],
    /// x^95 and x^63: what brings a word and half a word down to the last 64 bits.
    down: [u64; 2],
    /// x^64 divided by the polynomial, and the polynomial: Barrett's reduction.
    barrett: [u64; 2],
    algorithm: HashAlgorithm,
}

/// The remainder of so many blocks, of two words each as they lie in memory.
pub(crate) type Remainder = unsafe extern "C" fn(&Folding, *const u64, u64) -> u64;

/// The remainder of one block.
pub(crate) type RemainderOfBlock = unsafe extern "C" fn(&Folding, u64, u64) -> u64;

impl Folding {
    /// `polynomial` without its highest power, which is `width`, at most 32.
    const fn new(width: u32, polynomial: u64, algorithm: HashAlgorithm) -> Self {
        // Of 32 bits always: the remainder is then a multiple of what was put in.
        let polynomial = 1 << 32 | polynomial << (32 - width);
        // x^power modulo the polynomial, as a reflected word.
        const fn power(power: u32, polynomial: u64) -> u64 {
            let mut rest: u64 = 1;
            let mut done = 0;
            while done < power {
                rest <<= 1;
                if rest >> 32 == 1 {
                    rest ^= polynomial;
                }
                done += 1;
            }
            rest.reverse_bits()
        }
        // Long division: x^64 is a 1 in 33 digits, and 32 more zeros to bring down.
        let mut quotient: u64 = 0;
        let mut rest: u64 = 1 << 32;
        let mut digit = 0;
        while digit < 33 {
            quotient <<= 1;
            if rest >> 32 == 1 {
                quotient |= 1;
                rest ^= polynomial;
            }
            rest <<= 1;
            digit += 1;
        }
        Self {
            over_block: [power(191, polynomial), power(127, polynomial)],
            down: [power(95, polynomial), power(63, polynomial)],
            barrett: [
                quotient.reverse_bits() >> 31,
                polynomial.reverse_bits() >> 31,
            ],
            algorithm,
        }
    }

    /// The CRC of so many zero bytes.
    pub(crate) fn of_zeros(&self, bytes: usize) -> u64 {
        super::hash(self.algorithm, &vec![0; bytes], &mut Random::new(0))
    }

    /// What computes remainders, if this machine can.
    pub(crate) fn remainder(&self) -> Option<Remainder> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("pclmulqdq") {
            return Some(x86::remainder);
        }
        None
    }

    /// Likewise for one block.
    pub(crate) fn remainder_of_block(&self) -> Option<RemainderOfBlock> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("pclmulqdq") {
            return Some(x86::remainder_of_block);
        }
        None
    }
}

pub(super) static FOLDING_ARC: Folding = Folding::new(16, 0x8005, HashAlgorithm::Crc16);
pub(super) static FOLDING_32: Folding = Folding::new(32, 0x04c1_1db7, HashAlgorithm::Crc32);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x,
        _mm_slli_si128, _mm_srli_si128, _mm_unpackhi_epi64, _mm_xor_si128,
    };

    use super::Folding;

    /// Two words as one number of 128 bits.
    #[target_feature(enable = "pclmulqdq")]
    fn pair(low: u64, high: u64) -> __m128i {
        _mm_set_epi64x(high as i64, low as i64)
    }

    /// The remainder of 128 bits times x^32. Others wait for it: what can be done at once is, and nothing leaves the
    /// registers of 128 bits on the way.
    #[target_feature(enable = "pclmulqdq")]
    fn reduce(folding: &Folding, block: __m128i) -> u64 {
        let down = pair(folding.down[0], folding.down[1]);
        let barrett = pair(folding.barrett[0], folding.barrett[1]);
        let half = pair(0xffff_ffff, 0);
        // 128 bits to 96: the low word holds the higher powers.
        let rest = _mm_slli_si128::<4>(_mm_srli_si128::<8>(block));
        let rest = _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(block, down), rest);
        // To 64, in the high word.
        let folded = _mm_clmulepi64_si128::<0x10>(rest, down);
        let rest = _mm_xor_si128(folded, rest);
        let rest = _mm_unpackhi_epi64(rest, rest);
        // To 32: what the polynomial goes into the upper half, and that taken away.
        let quotient = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(rest, half), barrett);
        let taken = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(quotient, half), barrett);
        (_mm_cvtsi128_si64(_mm_xor_si128(rest, taken)) as u64) >> 32
    }

    /// See [`super::RemainderOfBlock`].
    ///
    /// # Safety
    /// The machine has PCLMULQDQ.
    #[target_feature(enable = "pclmulqdq")]
    pub(super) unsafe extern "C" fn remainder_of_block(
        folding: &Folding,
        low: u64,
        high: u64,
    ) -> u64 {
        reduce(folding, pair(low, high))
    }

    /// See [`super::Remainder`].
    ///
    /// # Safety
    /// The machine has PCLMULQDQ; there are as many blocks, and at least one.
    #[target_feature(enable = "pclmulqdq")]
    pub(super) unsafe extern "C" fn remainder(
        folding: &Folding,
        words: *const u64,
        blocks: u64,
    ) -> u64 {
        // SAFETY: the caller's promise. Word by word: that is how machine code wrote them just now.
        let block =
            |index: usize| unsafe { pair(*words.add(2 * index), *words.add(2 * index + 1)) };
        let over = pair(folding.over_block[0], folding.over_block[1]);
        let mut rest = block(0);
        for index in 1..blocks as usize {
            let low = _mm_clmulepi64_si128::<0x00>(rest, over);
            let high = _mm_clmulepi64_si128::<0x11>(rest, over);
            rest = _mm_xor_si128(_mm_xor_si128(low, high), block(index));
        }
        reduce(folding, rest)
    }
}
