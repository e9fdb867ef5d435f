// SPDX-License-Identifier: Apache-2.0
//! Generates arithmetic on two's complement numbers. A number has a fixed number of 64-bit words, least significant
//! first.
//!
//! Expressions have infinite precision. Their results are truncated only when they are stored. Addition, subtraction,
//! multiplication, left shifts and bitwise operations are exact modulo a power of two. So these operations need only as
//! many words as the result. Comparison, division, right shifts and saturation need the whole value. The loader
//! determines the bounds of each value. The bounds give the number of words.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use num_bigint::BigInt;
use sluice_program::expr::{Bounds, Constant};

pub(crate) use crate::analysis::known::Words;
use crate::codegen::lower::Lower;
use crate::runtime::calls::{self, WideOp};

/// Returns the number of words that hold a whole value. A value that is never negative is unsigned. Any other value is
/// in two's complement.
pub(crate) fn whole_words(bounds: Bounds) -> usize {
    match bounds.below {
        None => bounds.above.div_ceil(64).max(1) as usize,
        Some(_) => signed_words(bounds),
    }
}

/// Returns the number of words that hold a whole value in two's complement.
pub(crate) fn signed_words(bounds: Bounds) -> usize {
    let magnitude = bounds.above.max(bounds.below.unwrap_or(0));
    (magnitude as usize + 1).div_ceil(64)
}

/// Returns a constant modulo 2^(64 * words), least significant word first.
pub(crate) fn constant_words(value: &Constant, words: usize) -> Vec<u64> {
    let bytes = value.to_big().to_signed_bytes_le();
    let sign = match bytes.last() {
        Some(top) if *top >= 0x80 => 0xff,
        _ => 0,
    };
    let byte = |index: usize| bytes.get(index).copied().unwrap_or(sign);
    (0..words)
        .map(|word| u64::from_le_bytes(std::array::from_fn(|i| byte(word * 8 + i))))
        .collect()
}

impl Lower<'_> {
    pub(crate) fn constants(&mut self, words: &[u64]) -> Words {
        words.iter().map(|word| self.int(*word)).collect()
    }

    /// Returns 2^bits - 1.
    pub(crate) fn ones(&mut self, bits: u32, words: usize) -> Words {
        let value: BigInt = (BigInt::from(1) << bits) - 1;
        self.constants(&constant_words(&value.into(), words))
    }

    /// Truncates a value to `words` words, or extends it with zeros.
    pub(crate) fn resize(&mut self, mut value: Words, words: usize) -> Words {
        value.truncate(words);
        while value.len() < words {
            value.push(self.int(0));
        }
        value
    }

    /// Truncates a value to `words` words, or extends it with its sign.
    pub(crate) fn resize_signed(&mut self, mut value: Words, words: usize) -> Words {
        value.truncate(words);
        if value.len() < words {
            let sign = self.sar(value[value.len() - 1], 63);
            value.resize(words, sign);
        }
        value
    }

    pub(crate) fn bitwise(
        &mut self,
        left: &Words,
        right: &Words,
        op: impl Fn(&mut Self, Value, Value) -> Value,
    ) -> Words {
        let pairs = left.iter().zip(right);
        pairs.map(|(left, right)| op(self, *left, *right)).collect()
    }

    pub(crate) fn complement(&mut self, value: &Words) -> Words {
        value.iter().map(|word| self.b.ins().bnot(*word)).collect()
    }

    pub(crate) fn add(&mut self, left: &Words, right: &Words) -> Words {
        let mut carry = None;
        let mut sum = Vec::new();
        for (left, right) in left.iter().zip(right) {
            let mut word = self.b.ins().iadd(*left, *right);
            let mut over = self.compare(IntCC::UnsignedLessThan, word, *left);
            if let Some(carry) = carry {
                let with = self.b.ins().iadd(word, carry);
                let again = self.compare(IntCC::UnsignedLessThan, with, word);
                over = self.b.ins().bor(over, again);
                word = with;
            }
            sum.push(word);
            carry = Some(self.widen(over));
        }
        sum
    }

    pub(crate) fn sub(&mut self, left: &Words, right: &Words) -> Words {
        let mut borrow = None;
        let mut difference = Vec::new();
        for (left, right) in left.iter().zip(right) {
            let mut word = self.b.ins().isub(*left, *right);
            let mut under = self.compare(IntCC::UnsignedLessThan, *left, *right);
            if let Some(borrow) = borrow {
                let again = self.compare(IntCC::UnsignedLessThan, word, borrow);
                word = self.b.ins().isub(word, borrow);
                under = self.b.ins().bor(under, again);
            }
            difference.push(word);
            borrow = Some(self.widen(under));
        }
        difference
    }

    /// Generates a call of [`calls::wide`].
    pub(crate) fn wide(&mut self, what: WideOp, left: &Words, right: &Words) -> Words {
        let words = left.len();
        let place = self.stack(16 * words);
        for (index, word) in left.iter().chain(right).enumerate() {
            self.store(*word, place, index as u32 * 8);
        }
        let (what, count) = (self.int(what as u64), self.int(words as u64));
        self.call_bare(calls::wide as *const (), &[what, place, count], 0);
        (0..words)
            .map(|index| self.load(I64, place, index as u32 * 8))
            .collect()
    }

    pub(crate) fn mul(&mut self, left: &Words, right: &Words) -> Words {
        match (&left[..], &right[..]) {
            ([left], [right]) => vec![self.b.ins().imul(*left, *right)],
            _ => self.wide(WideOp::Mul, left, right),
        }
    }

    /// Generates a left shift by a constant.
    pub(crate) fn shift_left(&mut self, value: &Words, count: u32) -> Words {
        let (skip, bits) = ((count / 64) as usize, count % 64);
        let word = |index: usize| index.checked_sub(skip).and_then(|index| value.get(index));
        let mut shifted = Vec::new();
        for index in 0..value.len() {
            let high = match word(index) {
                Some(word) => self.shl(*word, bits),
                None => self.int(0),
            };
            let below = index.checked_sub(1).and_then(word).copied();
            shifted.push(match below {
                Some(below) if bits > 0 => {
                    let low = self.shr(below, 64 - bits);
                    self.b.ins().bor(high, low)
                }
                _ => high,
            });
        }
        shifted
    }

    /// Generates a right shift by a constant. If `negative` is set, the value is in two's complement. Otherwise the
    /// value is never negative.
    pub(crate) fn shift_right(&mut self, value: &Words, count: u32, negative: bool) -> Words {
        let (skip, bits) = ((count / 64) as usize, count % 64);
        let top = value[value.len() - 1];
        let fill = if negative {
            self.sar(top, 63)
        } else {
            self.int(0)
        };
        let word = |index: usize| value.get(index).copied().unwrap_or(fill);
        (0..value.len())
            .map(|index| {
                let (low, high) = (word(index + skip), word(index + skip + 1));
                if bits == 0 {
                    return low;
                }
                let low = self.shr(low, bits);
                let high = self.shl(high, 64 - bits);
                self.b.ins().bor(low, high)
            })
            .collect()
    }

    /// Generates a left shift by a number below 2^64.
    pub(crate) fn shift_left_by(&mut self, value: &Words, count: Value) -> Words {
        let [word] = value[..] else {
            let mut right = vec![count];
            right = self.resize(right, value.len());
            return self.wide(WideOp::Shl, value, &right);
        };
        let shifted = self.b.ins().ishl(word, count);
        let zero = self.int(0);
        vec![self.if_below_64(count, shifted, zero)]
    }

    /// Generates a right shift by a number below 2^64. `negative` has the same meaning as for [`Self::shift_right`].
    pub(crate) fn shift_right_by(&mut self, value: &Words, count: Value, negative: bool) -> Words {
        match (&value[..], negative) {
            ([word], false) => {
                let shifted = self.b.ins().ushr(*word, count);
                let zero = self.int(0);
                vec![self.if_below_64(count, shifted, zero)]
            }
            ([word], true) => {
                let most = self.int(63);
                let count = self.if_below_64(count, count, most);
                vec![self.b.ins().sshr(*word, count)]
            }
            _ => {
                let mut right = vec![count];
                right = self.resize(right, value.len());
                self.wide(WideOp::Shr, value, &right)
            }
        }
    }

    fn if_below_64(&mut self, count: Value, then: Value, otherwise: Value) -> Value {
        let limit = self.int(64);
        let below = self.compare(IntCC::UnsignedLessThan, count, limit);
        self.b.ins().select(below, then, otherwise)
    }

    /// Returns the value modulo 2^bits.
    pub(crate) fn modulo(&mut self, value: Words, bits: u32) -> Words {
        let mut kept = Vec::new();
        for (index, word) in value.into_iter().enumerate() {
            kept.push(match bits.saturating_sub(index as u32 * 64) {
                0 => self.int(0),
                left @ 1..64 => self.and(word, u64::MAX >> (64 - left)),
                _ => word,
            });
        }
        kept
    }

    pub(crate) fn is_zero(&mut self, value: &Words) -> Value {
        let mut any = value[0];
        for word in &value[1..] {
            any = self.b.ins().bor(any, *word);
        }
        let zero = self.int(0);
        self.compare(IntCC::Equal, any, zero)
    }

    pub(crate) fn equal(&mut self, left: &Words, right: &Words) -> Value {
        if let ([left], [right]) = (&left[..], &right[..]) {
            return self.compare(IntCC::Equal, *left, *right);
        }
        let differs = self.bitwise(left, right, |lower, a, b| lower.b.ins().bxor(a, b));
        self.is_zero(&differs)
    }

    /// Returns whether the left number is less than the right number. `negative` has the same meaning as for
    /// [`Self::shift_right`].
    pub(crate) fn less(&mut self, left: &Words, right: &Words, negative: bool) -> Value {
        let top = left.len() - 1;
        let mut less = None;
        for index in 0..=top {
            let how = if negative && index == top {
                IntCC::SignedLessThan
            } else {
                IntCC::UnsignedLessThan
            };
            let here = self.compare(how, left[index], right[index]);
            less = Some(match less {
                None => here,
                Some(below) => {
                    let same = self.compare(IntCC::Equal, left[index], right[index]);
                    let below = self.b.ins().band(same, below);
                    self.b.ins().bor(here, below)
                }
            });
        }
        less.expect("a number has a word")
    }

    pub(crate) fn choose(&mut self, condition: Value, left: &Words, right: &Words) -> Words {
        self.bitwise(left, right, |lower, left, right| {
            lower.b.ins().select(condition, left, right)
        })
    }
}
