// SPDX-License-Identifier: Apache-2.0
//! Evaluates expressions.
//!
//! [`Machine::data`] is the only evaluator of integers. It is generic over the integer class. [`in_class!`] selects the
//! class that the loader determined for the expression.

use std::sync::atomic::Ordering;

use sluice_engine::Trace;
use sluice_engine::number::Number;
use sluice_program::expr::{Arith, ArithOp, Bool, CastOp, CmpOp, Data, HeaderRef, UnionRef};
use sluice_program::{HeaderId, ParamSlot, UnionId};

use crate::machine::Machine;

/// Evaluates `$body` with `$n` as the integer type of the class.
macro_rules! in_class {
    ($class:expr, $n:ident => $body:expr) => {
        match $class {
            sluice_program::expr::NumberClass::I64 => {
                type $n = i64;
                $body
            }
            sluice_program::expr::NumberClass::I128 => {
                type $n = i128;
                $body
            }
            sluice_program::expr::NumberClass::I256 => {
                type $n = ethnum::I256;
                $body
            }
            sluice_program::expr::NumberClass::Big => {
                type $n = num_bigint::BigInt;
                $body
            }
        }
    };
}
pub(crate) use in_class;

/// Returns the words of an action parameter.
#[inline]
fn param(params: &[u64], slot: ParamSlot) -> &[u64] {
    let first = usize::from(slot.word);
    &params[first..first + slot.words()]
}

impl<T: Trace> Machine<'_, T> {
    /// Evaluates an expression as an index or length. A value that is negative or exceeds 64 bits becomes `u64::MAX`.
    pub(crate) fn index(&self, arith: &Arith, params: &[u64]) -> u64 {
        in_class!(arith.class, N => self.data::<N>(&arith.data, params).to_u64().unwrap_or(u64::MAX))
    }

    /// Evaluates an expression modulo 2^64.
    pub(crate) fn low_u64(&self, arith: &Arith, params: &[u64]) -> u64 {
        in_class!(arith.class, N => self.data::<N>(&arith.data, params).low_u64())
    }

    /// Evaluates an integer expression.
    pub(crate) fn data<N: Number>(&self, data: &Data, params: &[u64]) -> N {
        let phv = &self.packet.phv;
        match data {
            Data::Const(value) => N::from_constant(value),
            Data::Field(slot) => N::load(&phv.bytes, *slot),
            Data::Param(slot) => N::from_words(param(params, *slot)),
            Data::HeaderField(header, slot) => match self.header(header, params) {
                Some(id) => N::load(&phv.bytes, slot.moved(self.program.header(id).offset)),
                None => N::from_i64(0),
            },
            Data::Register(id, index, _) => {
                let index = self.index(index, params) as usize;
                match self.context.externs.register(*id, index) {
                    Some([word]) => N::from_words(&[word.load(Ordering::Relaxed)]),
                    Some(words) => {
                        let words: Vec<u64> = words
                            .iter()
                            .map(|word| word.load(Ordering::Relaxed))
                            .collect();
                        N::from_words(&words)
                    }
                    None => N::from_i64(0),
                }
            }
            Data::LastIndex(stack) => N::from_i64(phv.filled(*stack) as i64 - 1),
            Data::StackSize(stack) => N::from_i64(phv.filled(*stack) as i64),
            Data::Complement(inner) => !self.data::<N>(inner, params),
            Data::Arith(op, operands) => {
                let left = self.data::<N>(&operands.0, params);
                arith(*op, left, self.data::<N>(&operands.1, params))
            }
            Data::ShlMod(operands, width) => {
                let (value, count) = &**operands;
                let count =
                    in_class!(count.class, M => self.data::<M>(&count.data, params).to_shift());
                match width.checked_sub(count) {
                    None | Some(0) => N::from_i64(0),
                    Some(kept) => self
                        .data::<N>(value, params)
                        .modulo_power(kept)
                        .shift_left(count),
                }
            }
            Data::Cast(op, inner, width) => cast(*op, self.data::<N>(inner, params), *width),
            Data::FromBool(condition) => N::from_i64(i64::from(self.bool(condition, params))),
            Data::Choose(parts) => {
                let (condition, left, right) = &**parts;
                self.data(
                    if self.bool(condition, params) {
                        left
                    } else {
                        right
                    },
                    params,
                )
            }
        }
    }

    /// Evaluates a boolean expression.
    pub(crate) fn bool(&self, condition: &Bool, params: &[u64]) -> bool {
        match condition {
            Bool::Const(value) => *value,
            Bool::Valid(header) => self
                .header(header, params)
                .is_some_and(|id| self.packet.phv.is_valid(id)),
            Bool::ValidUnion(union) => self.valid_member(union, params).is_some(),
            Bool::Cmp(op, class, operands) => {
                let (left, right) = &**operands;
                in_class!(*class, N => {
                    compare(*op, &self.data::<N>(left, params), &self.data::<N>(right, params))
                })
            }
            Bool::HeaderEq(operands) => {
                match (
                    self.header(&operands.0, params),
                    self.header(&operands.1, params),
                ) {
                    (Some(l), Some(r)) => self.packet.phv.headers_equal(self.program, l, r),
                    (Some(one), None) | (None, Some(one)) => !self.packet.phv.is_valid(one),
                    (None, None) => true,
                }
            }
            Bool::UnionEq(operands) => self.unions_equal(&operands.0, &operands.1, params),
            Bool::VarbitEq(left, right) => {
                self.packet.phv.varbits_equal(self.program, *left, *right)
            }
            Bool::BoolEq(operands) => {
                self.bool(&operands.0, params) == self.bool(&operands.1, params)
            }
            Bool::NonZero(arith) => {
                in_class!(arith.class, N => !self.data::<N>(&arith.data, params).is_zero())
            }
            Bool::And(operands) => self.bool(&operands.0, params) && self.bool(&operands.1, params),
            Bool::Or(operands) => self.bool(&operands.0, params) || self.bool(&operands.1, params),
            Bool::Not(inner) => !self.bool(inner, params),
            Bool::Choose(parts) => {
                let (condition, left, right) = &**parts;
                self.bool(
                    if self.bool(condition, params) {
                        left
                    } else {
                        right
                    },
                    params,
                )
            }
        }
    }

    /// Resolves a reference to a header. Returns `None` if the index is beyond the end of the stack.
    #[inline]
    pub(crate) fn header(&self, header: &HeaderRef, params: &[u64]) -> Option<HeaderId> {
        match header {
            HeaderRef::Fixed(id) => Some(*id),
            HeaderRef::Element(stack, index) => {
                let index = usize::try_from(self.index(index, params)).ok()?;
                self.program.stack(*stack).headers.get(index).copied()
            }
            HeaderRef::Last(stack) => {
                let last = self.packet.phv.filled(*stack).checked_sub(1)?;
                self.program.stack(*stack).headers.get(last).copied()
            }
            HeaderRef::Member(union, member) => {
                let id = self.union(union, params)?;
                self.program.union(id).headers.get(*member).copied()
            }
        }
    }

    /// Resolves a reference to a union. Returns `None` if the index is beyond the end of the stack.
    pub(crate) fn union(&self, union: &UnionRef, params: &[u64]) -> Option<UnionId> {
        match union {
            UnionRef::Fixed(id) => Some(*id),
            UnionRef::Element(stack, index) => {
                let index = usize::try_from(self.index(index, params)).ok()?;
                self.program.union_stack(*stack).unions.get(index).copied()
            }
            UnionRef::Last(stack) => {
                let last = self.packet.phv.union_filled(*stack).checked_sub(1)?;
                self.program.union_stack(*stack).unions.get(last).copied()
            }
        }
    }

    /// Returns a union's valid member, if there is one: the member's position in the union, and its header id.
    fn valid_member(&self, union: &UnionRef, params: &[u64]) -> Option<(usize, HeaderId)> {
        let headers = &self.program.union(self.union(union, params)?).headers;
        headers
            .iter()
            .copied()
            .enumerate()
            .find(|(_, id)| self.packet.phv.is_valid(*id))
    }

    fn unions_equal(&self, left: &UnionRef, right: &UnionRef, params: &[u64]) -> bool {
        match (
            self.valid_member(left, params),
            self.valid_member(right, params),
        ) {
            (Some((i, l)), Some((j, r))) => {
                i == j && self.packet.phv.headers_equal(self.program, l, r)
            }
            (None, None) => true,
            _ => false,
        }
    }
}

#[inline]
fn arith<N: Number>(op: ArithOp, left: N, right: N) -> N {
    match op {
        ArithOp::Add => left + right,
        ArithOp::Sub => left - right,
        ArithOp::Mul => left * right,
        ArithOp::And => left & right,
        ArithOp::Or => left | right,
        ArithOp::Xor => left ^ right,
        ArithOp::Shl => {
            let count = right.to_shift();
            left.shift_left(count)
        }
        ArithOp::Shr => {
            let count = right.to_shift();
            left.shift_right(count)
        }
        ArithOp::Div | ArithOp::Mod if right.is_zero() => N::from_i64(0),
        ArithOp::Div => left.divide(right).0,
        ArithOp::Mod => left.divide(right).1,
    }
}

fn cast<N: Number>(op: CastOp, value: N, width: u32) -> N {
    let one = || N::from_i64(1);
    match op {
        CastOp::TwosComplement => {
            let low = value.modulo_power(width);
            if low.clone().shift_right(width - 1).is_zero() {
                low
            } else {
                low - N::power(width)
            }
        }
        CastOp::SaturateUnsigned => value.clamp(N::from_i64(0), N::power(width) - one()),
        CastOp::SaturateSigned => {
            let half = N::power(width - 1);
            value.clamp(N::from_i64(0) - half.clone(), half - one())
        }
    }
}

#[inline]
fn compare<N: Number>(op: CmpOp, left: &N, right: &N) -> bool {
    match op {
        CmpOp::Eq => left == right,
        CmpOp::Ne => left != right,
        CmpOp::Lt => left < right,
        CmpOp::Le => left <= right,
        CmpOp::Gt => left > right,
        CmpOp::Ge => left >= right,
    }
}
