// SPDX-License-Identifier: Apache-2.0
//! Evaluates conditions at compile time from facts that are certain, and derives facts from the outcome of conditions.

use sluice_program::FieldSlot;
use sluice_program::expr::{Bool, CmpOp, Constant, Data, HeaderRef};

use crate::codegen::lower::Lower;

/// Returns a constant as an unsigned word, or `None` if it does not fit.
fn word(constant: &Constant) -> Option<u64> {
    match constant {
        Constant::Small(value) => u64::try_from(*value).ok(),
        Constant::Big(_) => None,
    }
}

impl Lower<'_> {
    /// Returns the outcome of a condition, if it is certain.
    pub(crate) fn holds(&self, condition: &Bool) -> Option<bool> {
        match condition {
            Bool::Const(value) => Some(*value),
            Bool::Valid(HeaderRef::Fixed(id)) => self.known.valid(*id),
            Bool::Cmp(op, _, operands) => {
                let (left, right) = (self.certain(&operands.0)?, self.certain(&operands.1)?);
                Some(match op {
                    CmpOp::Eq => left == right,
                    CmpOp::Ne => left != right,
                    CmpOp::Lt => left < right,
                    CmpOp::Le => left <= right,
                    CmpOp::Gt => left > right,
                    CmpOp::Ge => left >= right,
                })
            }
            Bool::NonZero(arith) => Some(self.certain(&arith.data)? != 0),
            Bool::BoolEq(operands) => Some(self.holds(&operands.0)? == self.holds(&operands.1)?),
            Bool::Not(inner) => Some(!self.holds(inner)?),
            Bool::And(operands) => match (self.holds(&operands.0), self.holds(&operands.1)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Bool::Or(operands) => match (self.holds(&operands.0), self.holds(&operands.1)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the value of an expression if the value is certain: a constant, or an unsigned field that is kept in
    /// registers.
    fn certain(&self, data: &Data) -> Option<u64> {
        match data {
            Data::Const(value) => word(value),
            Data::Field(slot) if !slot.signed => {
                let (index, low) = self.facts.field(*slot)?;
                let value = self.known.field(index)?;
                Some(value >> low & u64::MAX >> (64 - slot.width))
            }
            _ => None,
        }
    }

    /// Records the facts that follow from the outcome of a condition.
    pub(crate) fn learn(&mut self, condition: &Bool, holds: bool) {
        match condition {
            Bool::Valid(HeaderRef::Fixed(id)) => self.known.set_valid(*id, holds),
            Bool::Cmp(op @ (CmpOp::Eq | CmpOp::Ne), _, operands) => {
                let equal = holds == (*op == CmpOp::Eq);
                match &**operands {
                    (Data::Field(slot), Data::Const(value))
                    | (Data::Const(value), Data::Field(slot)) => {
                        if let Some(value) = word(value) {
                            self.learn_field(*slot, value, equal);
                        }
                    }
                    _ => {}
                }
            }
            Bool::NonZero(arith) => {
                if let Data::Field(slot) = &arith.data {
                    self.learn_field(*slot, 0, !holds);
                }
            }
            _ => {}
        }
    }

    /// Records that a field is equal, or not equal, to a value. A one-bit field that is not equal to one value has the
    /// other value.
    fn learn_field(&mut self, slot: FieldSlot, value: u64, equal: bool) {
        let Some((index, _)) = self.facts.field(slot) else {
            return;
        };
        if !self.keeps(index)
            || slot.signed
            || slot.width > 64
            || self.facts.fields[index].slot.width != slot.width
        {
            return;
        }
        let most = u64::MAX >> (64 - slot.width);
        match (equal, most) {
            (true, _) if value <= most => {
                self.known.fields.insert(index, value);
            }
            (false, 1) if value <= 1 => {
                self.known.fields.insert(index, 1 - value);
            }
            _ => {}
        }
    }
}
