// SPDX-License-Identifier: Apache-2.0
//! The integer types in which expressions are evaluated. These are machine words where the loader has proved that a
//! word suffices, and big integers elsewhere. One evaluator serves all these types.

use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Not, Sub};

use ethnum::I256;
use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{ToPrimitive, Zero};
use sluice_program::FieldSlot;
use sluice_program::expr::{Constant, MAX_SHIFT};

use crate::bits;

/// Arithmetic in one integer class. This arithmetic cannot overflow; see [`sluice_program::expr::NumberClass`].
pub trait Number:
    Clone
    + Ord
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
{
    /// Converts a word.
    fn from_i64(value: i64) -> Self;
    /// Converts a constant of the program. The constant fits into the class.
    fn from_constant(value: &Constant) -> Self;
    /// Reads the value of a slot, as a signed number if the slot is signed.
    fn load(buffer: &[u8], slot: FieldSlot) -> Self;
    /// Converts unsigned words, most significant first.
    fn from_words(words: &[u64]) -> Self;
    /// Writes the value modulo 2^width.
    fn store(&self, buffer: &mut [u8], slot: FieldSlot);
    /// Returns the value modulo 2^64.
    fn low_u64(&self) -> u64;
    /// Returns the value if it is between 0 and `u64::MAX`.
    fn to_u64(&self) -> Option<u64>;
    /// Returns 2^bits.
    fn power(bits: u32) -> Self;
    /// Shifts to the left. `count` is smaller than the number of bits of the class.
    fn shift_left(self, count: u32) -> Self;
    /// Shifts to the right and keeps the sign.
    fn shift_right(self, count: u32) -> Self;
    /// Returns the quotient, truncated toward 0, and the remainder. The divisor must not be 0.
    fn divide(self, by: Self) -> (Self, Self);

    /// Returns whether the number is 0.
    fn is_zero(&self) -> bool {
        *self == Self::from_i64(0)
    }

    /// Returns the value as a shift count. Negative values and values above [`MAX_SHIFT`] become `MAX_SHIFT`.
    fn to_shift(&self) -> u32 {
        let count = self.to_u64().unwrap_or(u64::MAX);
        count.min(u64::from(MAX_SHIFT)) as u32
    }

    /// Returns the value modulo 2^bits.
    fn modulo_power(self, bits: u32) -> Self {
        self & (Self::power(bits) - Self::from_i64(1))
    }
}

/// Returns a slot's value as right-aligned bytes in an array that is large enough for the class.
fn padded<const N: usize>(buffer: &[u8], slot: FieldSlot) -> [u8; N] {
    let mut out = [0; N];
    bits::load_padded(buffer, slot, &mut out[N - slot.bytes()..]);
    out
}

macro_rules! machine_number {
    ($ty:ty, $bits:expr, $load:expr, $store:expr) => {
        impl Number for $ty {
            #[inline]
            fn from_i64(value: i64) -> Self {
                value.into()
            }

            #[inline]
            fn from_constant(value: &Constant) -> Self {
                match value {
                    Constant::Small(small) => *small as $ty,
                    // A constant is big only if it does not fit in i128. Only `I256` and `BigInt` hold such constants.
                    Constant::Big(big) => big.to_i128().unwrap_or(0) as $ty,
                }
            }

            #[inline]
            fn load(buffer: &[u8], slot: FieldSlot) -> Self {
                #[allow(clippy::redundant_closure_call)]
                $load(buffer, slot)
            }

            #[inline]
            fn from_words(words: &[u64]) -> Self {
                words.iter().fold(0, |value: $ty, word| {
                    value.checked_shl(64).unwrap_or(0) | *word as $ty
                })
            }

            #[inline]
            fn store(&self, buffer: &mut [u8], slot: FieldSlot) {
                #[allow(clippy::redundant_closure_call)]
                $store(*self, buffer, slot)
            }

            #[inline]
            fn low_u64(&self) -> u64 {
                *self as u64
            }

            #[inline]
            fn to_u64(&self) -> Option<u64> {
                u64::try_from(*self).ok()
            }

            #[inline]
            fn power(bits: u32) -> Self {
                (1 as $ty).checked_shl(bits).unwrap_or(0)
            }

            #[inline]
            fn shift_left(self, count: u32) -> Self {
                self.checked_shl(count).unwrap_or(0)
            }

            #[inline]
            fn shift_right(self, count: u32) -> Self {
                self >> count.min($bits - 1)
            }

            #[inline]
            fn divide(self, by: Self) -> (Self, Self) {
                (self.wrapping_div(by), self.wrapping_rem(by))
            }

            /// Does not compute 2^bits, which would overflow if `bits` is the type's own width.
            #[inline]
            fn modulo_power(self, bits: u32) -> Self {
                if bits >= $bits {
                    self
                } else {
                    self & ((1 as $ty) << bits).wrapping_sub(1)
                }
            }
        }
    };
}

machine_number!(
    i64,
    64,
    |buffer, slot: FieldSlot| -> i64 {
        if bits::fits_u64(slot) {
            let value = bits::load_u64(buffer, slot);
            if slot.signed {
                sign_extend(value, slot.width)
            } else {
                value as i64
            }
        } else {
            let value = bits::load_u128(buffer, slot) as u64;
            if slot.signed {
                sign_extend(value, slot.width)
            } else {
                value as i64
            }
        }
    },
    |value: i64, buffer, slot| {
        if bits::fits_u64(slot) {
            bits::store_u64(buffer, slot, value as u64);
        } else if bits::fits_u128(slot) {
            bits::store_u128(buffer, slot, i128::from(value) as u128);
        } else {
            store_wide(value < 0, &value.to_be_bytes(), buffer, slot);
        }
    }
);

machine_number!(
    i128,
    128,
    |buffer, slot: FieldSlot| -> i128 {
        let value = if bits::fits_u128(slot) {
            bits::load_u128(buffer, slot)
        } else {
            u128::from_be_bytes(padded(buffer, slot))
        };
        let unused = 128 - slot.width;
        if slot.signed {
            (value << unused) as i128 >> unused
        } else {
            value as i128
        }
    },
    |value: i128, buffer, slot| {
        if bits::fits_u128(slot) {
            bits::store_u128(buffer, slot, value as u128);
        } else {
            store_wide(value < 0, &value.to_be_bytes(), buffer, slot);
        }
    }
);

fn sign_extend(value: u64, width: u16) -> i64 {
    let unused = 64 - width;
    (value << unused) as i64 >> unused
}

/// Stores a two's complement number, given as big-endian bytes, in a slot. Extends the number with its sign if the slot
/// is wider.
fn store_wide(negative: bool, bytes: &[u8], buffer: &mut [u8], slot: FieldSlot) {
    let mut wide = vec![if negative { 0xff } else { 0 }; slot.bytes().max(bytes.len())];
    let start = wide.len() - bytes.len();
    wide[start..].copy_from_slice(bytes);
    bits::store_padded(buffer, slot, &wide);
}

impl Number for I256 {
    fn from_i64(value: i64) -> Self {
        Self::from(value)
    }

    fn from_constant(value: &Constant) -> Self {
        match value {
            Constant::Small(small) => Self::from(*small),
            Constant::Big(big) => {
                let (sign, words) = big.to_u64_digits();
                let value = words
                    .iter()
                    .rev()
                    .fold(Self::ZERO, |sum, word| sum << 64 | Self::from(*word));
                if sign == Sign::Minus { -value } else { value }
            }
        }
    }

    fn load(buffer: &[u8], slot: FieldSlot) -> Self {
        let value = Self::from_be_bytes(padded(buffer, slot));
        let unused = 256 - u32::from(slot.width);
        if slot.signed {
            value << unused >> unused
        } else {
            value
        }
    }

    fn from_words(words: &[u64]) -> Self {
        words
            .iter()
            .fold(Self::ZERO, |value, word| value << 64 | Self::from(*word))
    }

    fn store(&self, buffer: &mut [u8], slot: FieldSlot) {
        let bytes = self.to_be_bytes();
        if slot.bytes() <= bytes.len() {
            bits::store_padded(buffer, slot, &bytes);
        } else {
            store_wide(self.is_negative(), &bytes, buffer, slot);
        }
    }

    fn low_u64(&self) -> u64 {
        self.as_u64()
    }

    fn to_u64(&self) -> Option<u64> {
        u64::try_from(*self).ok()
    }

    fn power(bits: u32) -> Self {
        if bits < 256 {
            Self::ONE << bits
        } else {
            Self::ZERO
        }
    }

    fn shift_left(self, count: u32) -> Self {
        if count < 256 {
            self << count
        } else {
            Self::ZERO
        }
    }

    fn shift_right(self, count: u32) -> Self {
        self >> count.min(255)
    }

    fn divide(self, by: Self) -> (Self, Self) {
        (self.wrapping_div(by), self.wrapping_rem(by))
    }

    fn modulo_power(self, bits: u32) -> Self {
        if bits >= 256 {
            self
        } else {
            self & Self::power(bits).wrapping_sub(Self::ONE)
        }
    }
}

impl Number for BigInt {
    fn from_i64(value: i64) -> Self {
        Self::from(value)
    }

    fn from_constant(value: &Constant) -> Self {
        value.to_big()
    }

    fn load(buffer: &[u8], slot: FieldSlot) -> Self {
        let mut bytes = vec![0; slot.bytes()];
        bits::load_padded(buffer, slot, &mut bytes);
        let value = Self::from_bytes_be(Sign::Plus, &bytes);
        let sign = u64::from(slot.width) - 1;
        if slot.signed && value.bit(sign) {
            value - Self::power(slot.width.into())
        } else {
            value
        }
    }

    fn from_words(words: &[u64]) -> Self {
        words
            .iter()
            .fold(Self::zero(), |value, word| (value << 64) + *word)
    }

    fn store(&self, buffer: &mut [u8], slot: FieldSlot) {
        let bytes = self.clone().modulo_power(slot.width.into()).to_bytes_be().1;
        bits::store_padded(buffer, slot, &bytes);
    }

    fn low_u64(&self) -> u64 {
        ToPrimitive::to_u64(&self.clone().modulo_power(64)).unwrap_or(0)
    }

    fn to_u64(&self) -> Option<u64> {
        ToPrimitive::to_u64(self)
    }

    fn power(bits: u32) -> Self {
        Self::from(1) << bits
    }

    fn shift_left(self, count: u32) -> Self {
        // A value that is shifted left by `MAX_SHIFT` bits is 0 modulo 2^width for every possible width.
        if count < MAX_SHIFT {
            self << count
        } else {
            Self::zero()
        }
    }

    fn shift_right(self, count: u32) -> Self {
        self >> count
    }

    fn divide(self, by: Self) -> (Self, Self) {
        self.div_rem(&by)
    }
}
