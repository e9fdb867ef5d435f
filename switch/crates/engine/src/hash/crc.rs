// SPDX-License-Identifier: Apache-2.0
//! Cyclic redundancy checks.
//!
//! A CRC is described by its Rocksoft parameters (polynomial, initial value, reflection, final xor). [`Crc`] processes
//! four bytes per step with four tables of 256 remainders, built at compile time (slicing: Kounavis and Berry, ISCC
//! 2005). For reflected CRCs of 16 and 32 bits, native code uses [`Folding`] instead.

/// A CRC of `width` bits. A CRC that is not reflected is computed in the top bits of a 64-bit word.
#[derive(Debug)]
pub(super) struct Crc {
    width: u32,
    initial: u64,
    reflected: bool,
    final_xor: u64,
    /// `tables[n][byte]` is the remainder of a byte followed by `n` zero bytes.
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
        // The first byte of the input is the lowest byte of `step`.
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

/// Constants for computing remainders modulo a reflected polynomial of at most 32 bits. The method uses carry-less
/// multiplication (Gopal, Ozturk et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", 2009).
///
/// A CRC is linear except for a constant that depends on the length: CRC(input) = remainder(input) xor
/// [`of_zeros(length)`](Self::of_zeros). Leading zeros do not change a remainder. So zeros are put in front of the
/// input to fill whole blocks of 16 bytes.
///
/// Bit 0 is the coefficient of the highest power. With this bit order, the 128-bit product of two 64-bit words has an
/// additional factor x. Hence the exponents of the constants are smaller by one.
#[derive(Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub struct Folding {
    /// x^191 and x^127. They move the two words of a block onto the next block.
    over_block: [u64; 2],
    /// x^95 and x^63. They reduce 128 bits to 96, and 96 bits to 64.
    down: [u64; 2],
    /// For Barrett's reduction: the quotient of x^64 and the polynomial, and the polynomial itself.
    barrett: [u64; 2],
    crc: &'static Crc,
}

/// Function that computes the remainder of a sequence of blocks. The arguments are the constants, the address of the
/// blocks, and their number, at least 1. A block is two words in memory order.
pub type Remainder = unsafe extern "C" fn(&Folding, *const u64, u64) -> u64;

/// Function that computes the remainder of one block, given the constants and the block's two words.
pub type RemainderOfBlock = unsafe extern "C" fn(&Folding, u64, u64) -> u64;

impl Folding {
    /// Computes the constants. `polynomial` excludes the term of the highest power, x^`width`; `width` is at most 32.
    const fn new(width: u32, polynomial: u64, crc: &'static Crc) -> Self {
        // Multiplication by x^(32 - width) gives every polynomial the degree 32. The remainder is multiplied by the
        // same factor, which does not change its reflected bits.
        let polynomial = 1 << 32 | polynomial << (32 - width);
        // Returns x^power modulo the polynomial, as a reflected word.
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
        // Divides x^64 by long division. The division starts with the first 33 digits of x^64, a 1 and zeros, and then
        // brings down 32 more zeros.
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
            crc,
        }
    }

    /// Returns the CRC of this number of zero bytes.
    pub fn of_zeros(&self, bytes: usize) -> u64 {
        self.crc.compute(&vec![0; bytes])
    }

    /// Returns the function for any number of blocks, if the CPU supports PCLMULQDQ.
    pub fn remainder(&self) -> Option<Remainder> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("pclmulqdq") {
            return Some(x86::remainder);
        }
        None
    }

    /// Returns the function for one block, if the CPU supports PCLMULQDQ.
    pub fn remainder_of_block(&self) -> Option<RemainderOfBlock> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("pclmulqdq") {
            return Some(x86::remainder_of_block);
        }
        None
    }
}

pub(super) static FOLDING_ARC: Folding = Folding::new(16, 0x8005, &CRC16_ARC);
pub(super) static FOLDING_32: Folding = Folding::new(32, 0x04c1_1db7, &CRC32);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x,
        _mm_slli_si128, _mm_srli_si128, _mm_unpackhi_epi64, _mm_xor_si128,
    };

    use crate::hash::crc::Folding;

    /// Combines two words to a 128-bit register.
    #[target_feature(enable = "pclmulqdq")]
    fn pair(low: u64, high: u64) -> __m128i {
        _mm_set_epi64x(high as i64, low as i64)
    }

    /// Computes the remainder of 128 bits times x^32. The next steps wait for this result, so the code is optimised for
    /// latency: independent operations overlap, and values stay in 128-bit registers.
    #[target_feature(enable = "pclmulqdq")]
    fn reduce(folding: &Folding, block: __m128i) -> u64 {
        let down = pair(folding.down[0], folding.down[1]);
        let barrett = pair(folding.barrett[0], folding.barrett[1]);
        let half = pair(0xffff_ffff, 0);
        // Reduces 128 bits to 96. The low word holds the higher powers.
        let rest = _mm_slli_si128::<4>(_mm_srli_si128::<8>(block));
        let rest = _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(block, down), rest);
        // Reduces 96 bits to 64, in the high word.
        let folded = _mm_clmulepi64_si128::<0x10>(rest, down);
        let rest = _mm_xor_si128(folded, rest);
        let rest = _mm_unpackhi_epi64(rest, rest);
        // Reduces 64 bits to 32 by Barrett's reduction: subtracts the quotient of the upper half times the polynomial.
        let quotient = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(rest, half), barrett);
        let taken = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(quotient, half), barrett);
        (_mm_cvtsi128_si64(_mm_xor_si128(rest, taken)) as u64) >> 32
    }

    /// See [`super::RemainderOfBlock`].
    ///
    /// # Safety
    /// The CPU supports PCLMULQDQ.
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
    /// The CPU supports PCLMULQDQ; `words` points to `blocks` blocks, at least one.
    #[target_feature(enable = "pclmulqdq")]
    pub(super) unsafe extern "C" fn remainder(
        folding: &Folding,
        words: *const u64,
        blocks: u64,
    ) -> u64 {
        // SAFETY: guaranteed by the caller. The loads are of single words, because native code has just stored single
        // words. With equal sizes, store-to-load forwarding works.
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
