// SPDX-License-Identifier: Apache-2.0
//! Builds expressions. Simplifies the masks, shifts and casts with which p4c computes in fixed widths.
//!
//! No rule changes the value of an expression. A slice, `(field >> k) & mask`, becomes a narrower field. A left shift
//! with a mask becomes one operation without a wide intermediate value. So most programs need no integer wider than a
//! machine word.

use super::{Arith, ArithOp, Bool, Bounds, CastOp, CmpOp, Data, NumberClass};
use crate::layout::FieldSlot;

/// Builds `left op right`.
pub fn arith(op: ArithOp, left: Data, right: Data) -> Data {
    match (op, &right) {
        (ArithOp::And, Data::Const(mask)) => match mask.mask_bits() {
            Some(bits) => truncate(left, right, bits),
            None => binary(op, left, right),
        },
        (ArithOp::Shr, Data::Const(count)) => match count.to_u32() {
            Some(count) => shift_right(left, right, count),
            None => binary(op, left, right),
        },
        _ => binary(op, left, right),
    }
}

fn binary(op: ArithOp, left: Data, right: Data) -> Data {
    Data::Arith(op, Box::new((left, right)))
}

/// Builds `value & (2^bits - 1)`. `mask` is the constant 2^bits - 1.
fn truncate(value: Data, mask: Data, bits: u32) -> Data {
    let Bounds { below, above } = value.bounds();
    if below.is_none() && above <= bits {
        return value;
    }
    let narrow = |slot: &FieldSlot| slot.slice(0, bits);
    match value {
        Data::Field(slot) => match narrow(&slot) {
            Some(slot) => Data::Field(slot),
            None => binary(ArithOp::And, value, mask),
        },
        Data::HeaderField(header, slot) => match narrow(&slot) {
            Some(slot) => Data::HeaderField(header, slot),
            None => binary(ArithOp::And, Data::HeaderField(header, slot), mask),
        },
        Data::Arith(ArithOp::Shl, operands) => {
            let (left, right) = *operands;
            Data::ShlMod(Box::new((left, Arith::from(right))), bits)
        }
        other => binary(ArithOp::And, other, mask),
    }
}

/// Builds `value >> count`. `right` is `count` as a constant.
fn shift_right(value: Data, right: Data, count: u32) -> Data {
    let top = |slot: &FieldSlot| -> Option<FieldSlot> {
        let width = u32::from(slot.width);
        (!slot.signed && count < width)
            .then(|| slot.slice(count, width - count))
            .flatten()
    };
    match value {
        Data::Field(slot) => match top(&slot) {
            Some(slot) => Data::Field(slot),
            None => binary(ArithOp::Shr, value, right),
        },
        Data::HeaderField(header, slot) => match top(&slot) {
            Some(slot) => Data::HeaderField(header, slot),
            None => binary(ArithOp::Shr, Data::HeaderField(header, slot), right),
        },
        other => binary(ArithOp::Shr, other, right),
    }
}

/// Builds a cast to `width` bits.
pub fn cast(op: CastOp, value: Data, width: u32) -> Data {
    let Bounds { below, above } = value.bounds();
    let fits = match op {
        CastOp::SaturateUnsigned => below.is_none() && above <= width,
        CastOp::TwosComplement | CastOp::SaturateSigned => {
            above < width && below.is_none_or(|below| below < width)
        }
    };
    match value {
        value if fits => value,
        Data::Arith(ArithOp::Shl, operands) if op == CastOp::TwosComplement => {
            let (left, right) = *operands;
            let shifted = Data::ShlMod(Box::new((left, Arith::from(right))), width);
            Data::Cast(op, Box::new(shifted), width)
        }
        value => Data::Cast(op, Box::new(value), width),
    }
}

/// Builds the comparison `left op right`, in the class that holds both operands.
pub fn compare(op: CmpOp, left: Data, right: Data) -> Bool {
    let class: NumberClass = left.class().max(right.class());
    Bool::Cmp(op, class, Box::new((left, right)))
}

/// Converts a boolean to an integer.
pub fn from_bool(condition: Bool) -> Data {
    match condition {
        Bool::NonZero(arith) if arith.data.bounds() == Bounds::unsigned(1) => arith.data,
        other => Data::FromBool(Box::new(other)),
    }
}

/// Builds the condition that an integer is not 0.
pub fn non_zero(data: Data) -> Bool {
    match data {
        Data::FromBool(condition) => *condition,
        other => Bool::NonZero(Box::new(Arith::from(other))),
    }
}
