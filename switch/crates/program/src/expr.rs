// SPDX-License-Identifier: Apache-2.0
//! Defines expressions over unbounded integers, booleans and header references.
//!
//! BMv2 computes with integers of unlimited size, and p4c adds masks and casts to get P4's fixed widths. Big integers
//! would be correct here too, but slow. So the loader bounds the value of each node (see [`Data::bounds`]), and gives
//! each arithmetic expression the narrowest [`NumberClass`] in which no intermediate value can overflow. The engine
//! evaluates the expression in this class. The result is the same as with big integers, and no memory is allocated for
//! values of up to 255 bits.

pub mod simplify;

use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive;

use crate::ids::{HeaderId, RegisterId, StackId, UnionId, UnionStackId};
use crate::layout::{FieldSlot, ParamSlot};

/// Smallest shift count that is treated as dropping all bits. The result is then 0, or -1 for a right shift of a
/// negative number. Every field has fewer bits than this, so the result is exact modulo 2^width.
pub const MAX_SHIFT: u32 = 1 << 16;

/// Type of machine integer in which no intermediate value of an expression overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberClass {
    /// Every intermediate value fits in an `i64`.
    I64,
    /// Every intermediate value fits in an `i128`.
    I128,
    /// Every intermediate value fits in 256 bits, signed.
    I256,
    /// Some intermediate value may need more than 256 bits.
    Big,
}

/// An integer constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// A value that fits in an `i128`.
    Small(i128),
    /// A value that does not fit in an `i128`.
    Big(Box<BigInt>),
}

impl From<BigInt> for Constant {
    fn from(value: BigInt) -> Self {
        match value.to_i128() {
            Some(small) => Self::Small(small),
            None => Self::Big(Box::new(value)),
        }
    }
}

impl Constant {
    /// Returns the value as a big integer.
    pub fn to_big(&self) -> BigInt {
        match self {
            Self::Small(value) => BigInt::from(*value),
            Self::Big(value) => (**value).clone(),
        }
    }

    /// Returns `Some(n)` if the value is 2^n - 1 with n > 0.
    pub fn mask_bits(&self) -> Option<u32> {
        let value = self.to_big();
        if value.sign() != Sign::Plus {
            return None;
        }
        let bits = value.bits();
        (value + 1u8 == BigInt::from(1) << bits)
            .then(|| u32::try_from(bits).ok())
            .flatten()
    }

    /// Returns the value if it is between 0 and `u32::MAX`.
    pub fn to_u32(&self) -> Option<u32> {
        match self {
            Self::Small(value) => u32::try_from(*value).ok(),
            Self::Big(_) => None,
        }
    }
}

/// Arithmetic operator with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`, truncating; 0 if the divisor is 0, which P4 leaves undefined.
    Div,
    /// `%`; 0 if the divisor is 0, which P4 leaves undefined.
    Mod,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `>>`, arithmetic.
    Shr,
    /// `<<` with unlimited precision; see [`MAX_SHIFT`].
    Shl,
}

/// A cast to a given width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastOp {
    /// The value modulo 2^width, in two's complement.
    TwosComplement,
    /// The value clamped to 0 .. 2^width - 1.
    SaturateUnsigned,
    /// The value clamped to -2^(width-1) .. 2^(width-1) - 1.
    SaturateSigned,
}

/// A comparison of two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// An expression with an integer value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A constant.
    Const(Constant),
    /// A field at a fixed position in the PHV.
    Field(FieldSlot),
    /// A field of a header that is selected at run time. The slot is relative to the start of this header.
    HeaderField(HeaderRef, FieldSlot),
    /// An action's parameter.
    Param(ParamSlot),
    /// A cell of a register: the register, the index, and the cell's width in bits.
    Register(RegisterId, Box<Arith>, u16),
    /// Index of the last element that the parser extracted into the stack; -1 if there is none.
    LastIndex(StackId),
    /// Number of elements in the stack.
    StackSize(StackId),
    /// Bitwise complement: -x - 1.
    Complement(Box<Data>),
    /// Arithmetic with two operands.
    Arith(ArithOp, Box<(Data, Data)>),
    /// `(left << right) mod 2^width`: a left shift together with the mask that p4c adds. Evaluating both in one step
    /// needs no intermediate value wider than `width`.
    ShlMod(Box<(Data, Arith)>, u32),
    /// A cast to a width in bits.
    Cast(CastOp, Box<Data>, u32),
    /// A boolean as 0 or 1.
    FromBool(Box<Bool>),
    /// `condition ? left : right`.
    Choose(Box<(Bool, Data, Data)>),
}

/// An expression with a boolean value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bool {
    /// A constant.
    Const(bool),
    /// Whether a header is valid.
    Valid(HeaderRef),
    /// Whether a union has a valid member.
    ValidUnion(UnionRef),
    /// A comparison, with the class of numbers in which both operands fit.
    Cmp(CmpOp, NumberClass, Box<(Data, Data)>),
    /// Equality of headers: both are valid and have equal fields, or both are invalid.
    HeaderEq(Box<(HeaderRef, HeaderRef)>),
    /// Equality of unions: in both, the same member is valid and has equal fields, or in both, no member is valid.
    UnionEq(Box<(UnionRef, UnionRef)>),
    /// Equality of the `varbit` fields of two headers, in both length and content.
    VarbitEq(HeaderId, HeaderId),
    /// Equality of booleans.
    BoolEq(Box<(Bool, Bool)>),
    /// Whether an integer is not 0.
    NonZero(Box<Arith>),
    /// Conjunction; the right operand is not evaluated if the left one is false.
    And(Box<(Bool, Bool)>),
    /// Disjunction.
    Or(Box<(Bool, Bool)>),
    /// Negation.
    Not(Box<Bool>),
    /// `condition ? left : right`.
    Choose(Box<(Bool, Bool, Bool)>),
}

/// A header, fixed or selected at run time. If the index is out of range, a read returns an invalid header, and a write
/// has no effect (P4_16 section 8.18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderRef {
    /// A fixed header.
    Fixed(HeaderId),
    /// The element of a stack at an index.
    Element(StackId, Box<Arith>),
    /// The last element that the parser extracted into a stack.
    Last(StackId),
    /// A member of a union, by the member's index.
    Member(UnionRef, usize),
}

/// A union, fixed or selected at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnionRef {
    /// A fixed union.
    Fixed(UnionId),
    /// The element of a union stack at an index.
    Element(UnionStackId, Box<Arith>),
    /// The last element that the parser extracted into a union stack.
    Last(UnionStackId),
}

/// An integer expression, with the class in which it is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arith {
    /// The narrowest class in which the expression cannot overflow.
    pub class: NumberClass,
    /// The expression.
    pub data: Data,
}

impl From<Data> for Arith {
    fn from(data: Data) -> Self {
        Self {
            class: data.class(),
            data,
        }
    }
}

/// Bounds of a value: -2^`below` <= value < 2^`above`. If the value is never negative, `below` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The exponent of the lower bound; see [`Bounds`].
    pub below: Option<u32>,
    /// The exponent of the upper bound; see [`Bounds`].
    pub above: u32,
}

impl Bounds {
    const fn unsigned(bits: u32) -> Self {
        Self {
            below: None,
            above: bits,
        }
    }

    const fn signed(bits: u32) -> Self {
        Self {
            below: Some(bits.saturating_sub(1)),
            above: bits.saturating_sub(1),
        }
    }

    const fn both(bits: u32) -> Self {
        Self {
            below: Some(bits),
            above: bits,
        }
    }

    /// Returns the larger of the two exponents.
    fn magnitude(self) -> u32 {
        self.above.max(self.below.unwrap_or(0))
    }

    fn join(self, other: Self) -> Self {
        let below = match (self.below, other.below) {
            (None, b) => b,
            (a, None) => a,
            (Some(a), Some(b)) => Some(a.max(b)),
        };
        Self {
            below,
            above: self.above.max(other.above),
        }
    }

    fn class(self) -> NumberClass {
        match self.magnitude() {
            0..=63 => NumberClass::I64,
            64..=127 => NumberClass::I128,
            128..=255 => NumberClass::I256,
            _ => NumberClass::Big,
        }
    }
}

impl Data {
    /// Builds a constant from a machine integer.
    pub fn constant(value: i128) -> Self {
        Self::Const(Constant::Small(value))
    }

    /// Returns the narrowest class in which neither this node nor any of its descendants overflows.
    pub fn class(&self) -> NumberClass {
        self.analyse().1
    }

    /// Returns the bounds of this expression's value.
    pub fn bounds(&self) -> Bounds {
        self.analyse().0
    }

    fn analyse(&self) -> (Bounds, NumberClass) {
        let (bounds, inner) = match self {
            Self::Const(value) => (constant_bounds(value), NumberClass::I64),
            Self::Field(slot) | Self::HeaderField(_, slot) => {
                let bits = u32::from(slot.width);
                let bounds = if slot.signed {
                    Bounds::signed(bits)
                } else {
                    Bounds::unsigned(bits)
                };
                (bounds, NumberClass::I64)
            }
            Self::Param(param) => (Bounds::unsigned(u32::from(param.width)), NumberClass::I64),
            Self::Register(_, _, width) => (Bounds::unsigned(u32::from(*width)), NumberClass::I64),
            Self::LastIndex(_) => (Bounds::both(32), NumberClass::I64),
            Self::StackSize(_) => (Bounds::unsigned(32), NumberClass::I64),
            Self::FromBool(_) => (Bounds::unsigned(1), NumberClass::I64),
            Self::Complement(inner) => {
                let (bounds, class) = inner.analyse();
                (Bounds::both(bounds.magnitude()), class)
            }
            Self::Arith(op, operands) => {
                let (left, left_class) = operands.0.analyse();
                let (right, right_class) = operands.1.analyse();
                (
                    arith_bounds(*op, left, right, &operands.1),
                    left_class.max(right_class),
                )
            }
            // The evaluation first masks off the bits that the shift would push out. So no intermediate value is wider
            // than the result.
            Self::ShlMod(operands, width) => {
                let (_, class) = operands.0.analyse();
                (Bounds::unsigned(*width), class)
            }
            Self::Cast(op, inner, width) => {
                let (_, class) = inner.analyse();
                let bounds = match op {
                    CastOp::SaturateUnsigned => Bounds::unsigned(*width),
                    CastOp::TwosComplement | CastOp::SaturateSigned => Bounds::signed(*width),
                };
                (bounds, class.max(Bounds::unsigned(width + 1).class()))
            }
            Self::Choose(parts) => {
                let (left, left_class) = parts.1.analyse();
                let (right, right_class) = parts.2.analyse();
                (left.join(right), left_class.max(right_class))
            }
        };
        (bounds, inner.max(bounds.class()))
    }
}

fn constant_bounds(value: &Constant) -> Bounds {
    let value = value.to_big();
    let bits = u32::try_from(value.bits()).unwrap_or(u32::MAX);
    if value.sign() == Sign::Minus {
        Bounds::both(bits)
    } else {
        Bounds::unsigned(bits)
    }
}

fn arith_bounds(op: ArithOp, left: Bounds, right: Bounds, right_data: &Data) -> Bounds {
    let wider = left.magnitude().max(right.magnitude());
    let never_negative = left.below.is_none() && right.below.is_none();
    match op {
        ArithOp::Add if never_negative => Bounds::unsigned(wider + 1),
        ArithOp::Add | ArithOp::Sub => Bounds::both(wider + 1),
        ArithOp::Mul => {
            let bits = left.magnitude().saturating_add(right.magnitude());
            if never_negative {
                Bounds::unsigned(bits)
            } else {
                Bounds::both(bits + 1)
            }
        }
        ArithOp::Div | ArithOp::Mod if never_negative => Bounds::unsigned(wider),
        ArithOp::Div | ArithOp::Mod => Bounds::both(wider + 1),
        // If one operand is never negative, the result is between 0 and this operand.
        ArithOp::And if right.below.is_none() && left.below.is_none() => {
            Bounds::unsigned(left.above.min(right.above))
        }
        ArithOp::And if right.below.is_none() => Bounds::unsigned(right.above),
        ArithOp::And if left.below.is_none() => Bounds::unsigned(left.above),
        ArithOp::Or | ArithOp::Xor if never_negative => Bounds::unsigned(wider),
        ArithOp::And | ArithOp::Or | ArithOp::Xor => Bounds::both(wider),
        ArithOp::Shr => left,
        ArithOp::Shl => {
            let count = match right_data {
                Data::Const(count) => count.to_u32().unwrap_or(MAX_SHIFT),
                _ => 1u32.checked_shl(right.above).unwrap_or(MAX_SHIFT),
            };
            let bits = left.magnitude().saturating_add(count.min(MAX_SHIFT));
            if left.below.is_none() {
                Bounds::unsigned(bits)
            } else {
                Bounds::both(bits)
            }
        }
    }
}
