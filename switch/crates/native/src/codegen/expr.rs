// SPDX-License-Identifier: Apache-2.0
//! Generates code for expressions. An expression has no side effects. So both operands of `&&`, and both values of
//! `?:`, are computed where that is cheaper than a branch.

use std::rc::Rc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use sluice_program::expr::{
    Arith, ArithOp, Bool, Bounds, CastOp, CmpOp, Data, HeaderRef, MAX_SHIFT, UnionRef,
};
use sluice_program::{HeaderId, ParamSlot, RegisterId, UnionId};

use crate::codegen::lower::Lower;
use crate::codegen::number::{Words, constant_words, signed_words, whole_words};
use crate::runtime::calls::{self, NONE, WideOp};

/// Size limit of an expression, in words. A larger expression is reported as not compiled, because its code is long and
/// mostly calls runtime functions.
const MOST_WORDS: usize = 64;

/// Source of an action's parameters.
#[derive(Clone, Debug)]
pub(crate) enum Params {
    /// No parameters.
    None,
    /// The address of the parameters' words, which is known only at run time.
    At(Value),
    /// The parameters' words, known at compile time.
    Known(Rc<[u64]>),
}

/// The header or union to which a reference leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IdSource<T> {
    /// Known at compile time.
    Fixed(T),
    /// Selected at run time. The value is the id, or [`NONE`].
    Found(Value),
}

/// Returns an upper bound of the number of bits of a value: the value is less than 2 to the power of this number.
fn most_bits(data: &Data) -> u32 {
    match data {
        // If the subtrahend is never negative, the difference is not above the minuend.
        Data::Arith(ArithOp::Sub, operands) if operands.1.bounds().below.is_none() => {
            operands.0.bounds().above
        }
        _ => data.bounds().above,
    }
}

impl Lower<'_> {
    /// Evaluates an expression modulo 2^(64 * words).
    pub(crate) fn data(&mut self, data: &Data, words: usize, params: &Params) -> Words {
        match data {
            Data::Const(value) => self.constants(&constant_words(value, words)),
            Data::Field(slot) => {
                let value = self.load_slot(self.phv, *slot);
                self.extend(value, u32::from(slot.width), slot.signed, words)
            }
            Data::HeaderField(header, slot) => {
                let place = self.header(header, params);
                let value = self.load_in_header(place, *slot);
                self.extend(value, u32::from(slot.width), slot.signed, words)
            }
            Data::Param(slot) => {
                let value = self.param(*slot, params);
                self.resize(value, words)
            }
            Data::Register(id, index, width) => {
                let value = self.read_register(*id, index, *width, params);
                self.resize(value, words)
            }
            Data::LastIndex(stack) => {
                let filled = self.filled(stack.index());
                let last = self.b.ins().iadd_imm_s(filled, -1);
                self.resize_signed(vec![last], words)
            }
            Data::StackSize(stack) => {
                let filled = self.filled(stack.index());
                self.resize(vec![filled], words)
            }
            Data::Complement(inner) => {
                let value = self.data(inner, words, params);
                self.complement(&value)
            }
            Data::Arith(op, operands) => self.arith(*op, &operands.0, &operands.1, words, params),
            Data::ShlMod(operands, width) => {
                let (value, count) = &**operands;
                let needed = words.min(width.div_ceil(64) as usize);
                let value = self.data(value, needed, params);
                let shifted = self.shift(value, count, params);
                let kept = self.modulo(shifted, *width);
                self.resize(kept, words)
            }
            Data::Cast(op, inner, width) => self.cast(*op, inner, *width, words, params),
            Data::FromBool(condition) => {
                let flag = self.bool(condition, params);
                let value = self.widen(flag);
                self.resize(vec![value], words)
            }
            Data::Choose(parts) => {
                let (condition, left, right) = &**parts;
                let condition = self.bool(condition, params);
                let left = self.data(left, words, params);
                let right = self.data(right, words, params);
                self.choose(condition, &left, &right)
            }
        }
    }

    /// Evaluates an expression exactly. The whole value must fit in `words` words.
    pub(crate) fn whole(&mut self, data: &Data, words: usize, params: &Params) -> Words {
        let bounds = data.bounds();
        if words > MOST_WORDS {
            let bits = words * 64;
            self.not_compiled.push(format!(
                "an expression of {bits} bits, computed by runtime functions"
            ));
        }
        let own = whole_words(bounds).min(words);
        let value = self.data(data, own, params);
        match bounds.below {
            None => self.resize(value, words),
            Some(_) => self.resize_signed(value, words),
        }
    }

    /// Extends a field's value to `words` words, or truncates it.
    fn extend(&mut self, mut value: Words, width: u32, signed: bool, words: usize) -> Words {
        if !signed {
            return self.resize(value, words);
        }
        let top = value.len() - 1;
        let bits = width - 64 * top as u32;
        value[top] = self.sign_extend(value[top], bits);
        self.resize_signed(value, words)
    }

    /// Loads a field of a header. The value is 0 if the header does not exist.
    fn load_in_header(
        &mut self,
        place: IdSource<HeaderId>,
        slot: sluice_program::FieldSlot,
    ) -> Words {
        match place {
            IdSource::Fixed(id) => {
                let slot = slot.moved(self.program.header(id).offset);
                self.load_slot(self.phv, slot)
            }
            IdSource::Found(id) => {
                let (exists, base) = self.header_base(id);
                let value = self.load_slot(base, slot);
                let zero = self.int(0);
                let words = value.into_iter();
                words
                    .map(|word| self.b.ins().select(exists, word, zero))
                    .collect()
            }
        }
    }

    /// For a header that is selected at run time, returns whether it exists, and the address of its fields. If the
    /// header does not exist, the address is that of the program's first header.
    pub(crate) fn header_base(&mut self, id: Value) -> (Value, Value) {
        let (exists, id) = self.existing(id);
        let headers = &self.program.headers;
        let offsets = headers.iter().map(|header| u64::from(header.offset));
        let offsets = self.statics.words(offsets.collect());
        let offset = self.constant_at(offsets, id);
        (exists, self.b.ins().iadd(self.phv, offset))
    }

    /// Returns whether an id differs from [`NONE`]. Also returns an id that is safe to use: the id itself, or 0 if the
    /// id is `NONE`.
    pub(crate) fn existing(&mut self, id: Value) -> (Value, Value) {
        let none = self.int(NONE);
        let exists = self.compare(IntCC::NotEqual, id, none);
        let zero = self.int(0);
        (exists, self.b.ins().select(exists, id, zero))
    }

    fn param(&mut self, slot: ParamSlot, params: &Params) -> Words {
        let words = slot.words();
        let first = usize::from(slot.word);
        if let (Params::At(address), 1) = (params, words) {
            // The bits above a parameter in its word are 0. So a narrower load yields the same value.
            let ty = match slot.width {
                0..=8 => I8,
                9..=16 => I16,
                17..=32 => I32,
                _ => I64,
            };
            return vec![self.load_wide(ty, *address, first as u32 * 8)];
        }
        (0..words)
            .map(|index| {
                let word = first + words - 1 - index;
                match params {
                    Params::At(address) => self.load(I64, *address, word as u32 * 8),
                    Params::Known(known) => self.int(known[word]),
                    Params::None => self.int(0),
                }
            })
            .collect()
    }

    fn read_register(
        &mut self,
        id: RegisterId,
        index: &Arith,
        width: u16,
        params: &Params,
    ) -> Words {
        let place = self.register(id, index, params);
        let words = u32::from(width).div_ceil(64);
        let nothing = self.int(0);
        let exists = self.compare(IntCC::NotEqual, place, nothing);
        let zeros = self.statics.words(vec![0; words as usize]);
        let zeros = self.int(zeros as u64);
        let place = self.b.ins().select(exists, place, zeros);
        (0..words)
            .map(|word| self.load(I64, place, (words - 1 - word) * 8))
            .collect()
    }

    /// Returns the address of a register cell, or 0 if the index is beyond the end of the array.
    pub(crate) fn register(&mut self, id: RegisterId, index: &Arith, params: &Params) -> Value {
        let index = self.index(index, params);
        let id = self.int(id.0.into());
        self.call(calls::register as *const (), &[id, index], 1)[0]
    }

    fn arith(
        &mut self,
        op: ArithOp,
        left: &Data,
        right: &Data,
        words: usize,
        params: &Params,
    ) -> Words {
        if op == ArithOp::Shl {
            let value = self.data(left, words, params);
            return self.shift(value, &Arith::from(right.clone()), params);
        }
        if op == ArithOp::Shr {
            return self.shift_down(left, right, words, params);
        }
        if matches!(op, ArithOp::Div | ArithOp::Mod) {
            return self.divide(op, left, right, words, params);
        }
        let left = self.data(left, words, params);
        let right = self.data(right, words, params);
        match op {
            ArithOp::Add => self.add(&left, &right),
            ArithOp::Sub => self.sub(&left, &right),
            ArithOp::Mul => self.mul(&left, &right),
            ArithOp::And => self.bitwise(&left, &right, |lower, a, b| lower.b.ins().band(a, b)),
            ArithOp::Or => self.bitwise(&left, &right, |lower, a, b| lower.b.ins().bor(a, b)),
            _ => self.bitwise(&left, &right, |lower, a, b| lower.b.ins().bxor(a, b)),
        }
    }

    /// Shifts left. A count that is negative, or at least [`MAX_SHIFT`], shifts all bits out.
    fn shift(&mut self, value: Words, count: &Arith, params: &Params) -> Words {
        if let Data::Const(count) = &count.data {
            let count = count.to_u32().unwrap_or(MAX_SHIFT).min(MAX_SHIFT);
            return self.shift_left(&value, count);
        }
        let count = self.index(count, params);
        self.shift_left_by(&value, count)
    }

    fn shift_down(&mut self, left: &Data, right: &Data, words: usize, params: &Params) -> Words {
        let bounds = left.bounds();
        let negative = bounds.below.is_some();
        let value = self.whole(left, whole_words(bounds).max(words), params);
        let value = if let Data::Const(count) = right {
            let count = count.to_u32().unwrap_or(MAX_SHIFT).min(MAX_SHIFT);
            self.shift_right(&value, count, negative)
        } else {
            // The runtime shifts values of several words in two's complement, so the value needs a sign bit.
            let value = match value.len() {
                1 => value,
                _ => self.whole(left, signed_words(bounds).max(words), params),
            };
            let count = self.index(&Arith::from(right.clone()), params);
            self.shift_right_by(&value, count, negative)
        };
        self.resize(value, words)
    }

    fn divide(
        &mut self,
        op: ArithOp,
        left: &Data,
        right: &Data,
        words: usize,
        params: &Params,
    ) -> Words {
        let (l, r) = (left.bounds(), right.bounds());
        let unsigned = l.below.is_none() && r.below.is_none();
        if unsigned && l.above <= 64 && r.above <= 64 {
            let value = self.data(left, 1, params)[0];
            let by = self.data(right, 1, params)[0];
            let (zero, one) = (self.int(0), self.int(1));
            let nothing = self.compare(IntCC::Equal, by, zero);
            let safe = self.b.ins().select(nothing, one, by);
            let result = if op == ArithOp::Div {
                self.b.ins().udiv(value, safe)
            } else {
                self.b.ins().urem(value, safe)
            };
            let result = self.b.ins().select(nothing, zero, result);
            return self.resize(vec![result], words);
        }
        let all = signed_words(l).max(signed_words(r)).max(words);
        let value = self.whole(left, all, params);
        let by = self.whole(right, all, params);
        let what = if op == ArithOp::Div {
            WideOp::Div
        } else {
            WideOp::Mod
        };
        let result = self.wide(what, &value, &by);
        self.resize(result, words)
    }

    fn cast(
        &mut self,
        op: CastOp,
        inner: &Data,
        width: u32,
        words: usize,
        params: &Params,
    ) -> Words {
        if op == CastOp::TwosComplement {
            let own = width.div_ceil(64) as usize;
            let value = self.data(inner, own, params);
            return self.extend(value, width, true, words);
        }
        let bounds = inner.bounds();
        let room = (width as usize + 1) / 64 + 1;
        let all = signed_words(bounds).max(room).max(words);
        let value = self.whole(inner, all, params);
        let (low, high) = if op == CastOp::SaturateUnsigned {
            (vec![self.int(0); all], self.ones(width, all))
        } else {
            let high = self.ones(width - 1, all);
            (self.complement(&high), high)
        };
        let mut value = value;
        if bounds.below.is_some() || op == CastOp::SaturateSigned {
            let below = self.less(&value, &low, true);
            value = self.choose(below, &low, &value);
        }
        if most_bits(inner) > width || op == CastOp::SaturateSigned {
            let above = self.less(&high, &value, true);
            value = self.choose(above, &high, &value);
        }
        self.resize(value, words)
    }

    /// Evaluates an expression as an index or length. A value that is negative, or 2^64 or more, becomes `u64::MAX`.
    pub(crate) fn index(&mut self, arith: &Arith, params: &Params) -> Value {
        let bounds = arith.data.bounds();
        let value = self.whole(&arith.data, whole_words(bounds), params);
        let most = self.int(u64::MAX);
        if bounds.below.is_none() && bounds.above <= 64 {
            return value[0];
        }
        let zero = self.int(0);
        let fits = if value.len() == 1 {
            self.compare(IntCC::SignedGreaterThanOrEqual, value[0], zero)
        } else {
            let high = value[1..].to_vec();
            self.is_zero(&high)
        };
        self.b.ins().select(fits, value[0], most)
    }

    /// Evaluates an expression modulo 2^64.
    pub(crate) fn low(&mut self, arith: &Arith, params: &Params) -> Value {
        self.data(&arith.data, 1, params)[0]
    }

    /// Evaluates a boolean expression to a byte that is 0 or 1.
    pub(crate) fn bool(&mut self, condition: &Bool, params: &Params) -> Value {
        if let Some(holds) = self.holds(condition) {
            return self.byte(holds);
        }
        match condition {
            Bool::Const(value) => self.byte(*value),
            Bool::Valid(header) => match self.header(header, params) {
                IdSource::Fixed(id) => self.is_valid(id),
                IdSource::Found(id) => {
                    let (exists, id) = self.existing(id);
                    let valid = self.is_valid_at(id);
                    self.b.ins().band(exists, valid)
                }
            },
            Bool::ValidUnion(union) => {
                let union = self.union_id(union, params);
                self.ask(calls::valid_union as *const (), &[union])
            }
            Bool::Cmp(op, _, operands) => self.cmp(*op, &operands.0, &operands.1, params),
            Bool::HeaderEq(operands) => {
                let left = self.header_id(&operands.0, params);
                let right = self.header_id(&operands.1, params);
                self.ask(calls::headers_equal as *const (), &[left, right])
            }
            Bool::UnionEq(operands) => {
                let left = self.union_id(&operands.0, params);
                let right = self.union_id(&operands.1, params);
                self.ask(calls::unions_equal as *const (), &[left, right])
            }
            Bool::VarbitEq(left, right) => {
                let (left, right) = (self.int(left.0.into()), self.int(right.0.into()));
                self.ask(calls::varbits_equal as *const (), &[left, right])
            }
            Bool::BoolEq(operands) => {
                let left = self.bool(&operands.0, params);
                let right = self.bool(&operands.1, params);
                self.compare(IntCC::Equal, left, right)
            }
            Bool::NonZero(arith) => {
                let words = whole_words(arith.data.bounds());
                let value = self.data(&arith.data, words, params);
                let zero = self.is_zero(&value);
                self.not(zero)
            }
            Bool::And(operands) => {
                let left = self.bool(&operands.0, params);
                let right = self.bool(&operands.1, params);
                self.both(left, right)
            }
            Bool::Or(operands) => {
                let left = self.bool(&operands.0, params);
                let right = self.bool(&operands.1, params);
                self.b.ins().bor(left, right)
            }
            Bool::Not(inner) => {
                let value = self.bool(inner, params);
                self.not(value)
            }
            Bool::Choose(parts) => {
                let (condition, left, right) = &**parts;
                let condition = self.bool(condition, params);
                let left = self.bool(left, params);
                let right = self.bool(right, params);
                self.b.ins().select(condition, left, right)
            }
        }
    }

    pub(crate) fn not(&mut self, flag: Value) -> Value {
        match self.constant(flag) {
            Some(constant) => self.byte(constant == 0),
            None => self.b.ins().bxor_imm_u(flag, 1),
        }
    }

    /// Calls a runtime function that returns a truth value. Converts the result to a byte that is 0 or 1.
    fn ask(&mut self, function: *const (), args: &[Value]) -> Value {
        let answer = self.call(function, args, 1)[0];
        let zero = self.int(0);
        self.compare(IntCC::NotEqual, answer, zero)
    }

    /// Compares a field in memory with a constant in wire byte order, so no bytes need to be swapped at run time.
    /// Returns `None` if the field or the constant does not allow this.
    fn same_bytes(&mut self, field: &Data, constant: &Data) -> Option<Value> {
        let (Data::Field(slot), Data::Const(constant)) = (field, constant) else {
            return None;
        };
        let ty = match slot.width {
            8 => I8,
            16 => I16,
            32 => I32,
            64 => I64,
            _ => return None,
        };
        let bounds = Data::Const(constant.clone()).bounds();
        let fits = bounds.below.is_none() && bounds.above <= slot.width.into();
        if slot.lead != 0 || slot.signed || !fits || self.is_kept(*slot) {
            return None;
        }
        // This load replaces `load_slot`, so it must also record that metadata or a header is read from memory.
        self.note_load(*slot);
        self.note_read(*slot);
        let number = constant_words(constant, 1)[0].swap_bytes() >> (64 - slot.width);
        let raw = self.load(ty, self.phv, slot.byte);
        let number = self.b.ins().iconst(ty, number as i64);
        Some(self.b.ins().icmp(IntCC::Equal, raw, number))
    }

    fn cmp(&mut self, op: CmpOp, left: &Data, right: &Data, params: &Params) -> Value {
        if matches!(op, CmpOp::Eq | CmpOp::Ne) {
            let same = self.same_bytes(left, right);
            if let Some(same) = same.or_else(|| self.same_bytes(right, left)) {
                return match op {
                    CmpOp::Eq => same,
                    _ => self.not(same),
                };
            }
        }
        let (l, r) = (left.bounds(), right.bounds());
        let negative = l.below.is_some() || r.below.is_some();
        let words = |bounds: Bounds| {
            if negative {
                signed_words(bounds)
            } else {
                whole_words(bounds)
            }
        };
        let words = words(l).max(words(r));
        let left = self.whole(left, words, params);
        let right = self.whole(right, words, params);
        let result = match op {
            CmpOp::Eq | CmpOp::Ne => self.equal(&left, &right),
            CmpOp::Lt | CmpOp::Ge => self.less(&left, &right, negative),
            CmpOp::Gt | CmpOp::Le => self.less(&right, &left, negative),
        };
        match op {
            CmpOp::Eq | CmpOp::Lt | CmpOp::Gt => result,
            CmpOp::Ne | CmpOp::Ge | CmpOp::Le => self.not(result),
        }
    }

    // References to headers and unions. Some references can be resolved only at run time.

    /// Returns the id at an index of a constant list, or `NONE` if the index is beyond the end of the list.
    fn select_id(&mut self, ids: Vec<u64>, index: Value) -> Value {
        let length = self.int(ids.len() as u64);
        let inside = self.compare(IntCC::UnsignedLessThan, index, length);
        let zero = self.int(0);
        let none = self.int(NONE);
        let index = self.b.ins().select(inside, index, zero);
        let ids = if ids.is_empty() { vec![NONE] } else { ids };
        let address = self.statics.words(ids);
        let id = self.constant_at(address, index);
        self.b.ins().select(inside, id, none)
    }

    /// Resolves a reference to a header.
    pub(crate) fn header(&mut self, header: &HeaderRef, params: &Params) -> IdSource<HeaderId> {
        let program = self.program;
        let ids = |stack: &sluice_program::StackId| {
            let headers = program.stack(*stack).headers.iter();
            headers.map(|id| u64::from(id.0)).collect()
        };
        match header {
            HeaderRef::Fixed(id) => IdSource::Fixed(*id),
            HeaderRef::Element(stack, index) => {
                let index = self.index(index, params);
                IdSource::Found(self.select_id(ids(stack), index))
            }
            HeaderRef::Last(stack) => {
                let filled = self.filled(stack.index());
                let last = self.b.ins().iadd_imm_s(filled, -1);
                IdSource::Found(self.select_id(ids(stack), last))
            }
            HeaderRef::Member(union, member) => match self.union(union, params) {
                IdSource::Fixed(id) => match program.union(id).headers.get(*member) {
                    Some(id) => IdSource::Fixed(*id),
                    None => IdSource::Found(self.int(NONE)),
                },
                IdSource::Found(id) => {
                    let unions = program.unions.iter();
                    let member = |union: &sluice_program::Union| {
                        let header = union.headers.get(*member);
                        header.map_or(NONE, |id| u64::from(id.0))
                    };
                    IdSource::Found(self.select_id(unions.map(member).collect(), id))
                }
            },
        }
    }

    /// Resolves a reference to a union.
    fn union(&mut self, union: &UnionRef, params: &Params) -> IdSource<UnionId> {
        let program = self.program;
        let ids = |stack: &sluice_program::UnionStackId| {
            let unions = program.union_stack(*stack).unions.iter();
            unions.map(|id| u64::from(id.0)).collect()
        };
        match union {
            UnionRef::Fixed(id) => IdSource::Fixed(*id),
            UnionRef::Element(stack, index) => {
                let index = self.index(index, params);
                IdSource::Found(self.select_id(ids(stack), index))
            }
            UnionRef::Last(stack) => {
                let filled = self.filled(program.stacks.len() + stack.index());
                let last = self.b.ins().iadd_imm_s(filled, -1);
                IdSource::Found(self.select_id(ids(stack), last))
            }
        }
    }

    /// Records that an instance is used as a whole. If the instance is metadata, no metadata fields can be kept in
    /// registers.
    pub(crate) fn as_header(&mut self, id: HeaderId) {
        if self.program.header(id).metadata {
            self.facts.whole.set(true);
        }
    }

    /// Resolves a reference to a header. Returns the header's id, or `NONE`.
    pub(crate) fn header_id(&mut self, header: &HeaderRef, params: &Params) -> Value {
        match self.header(header, params) {
            IdSource::Fixed(id) => {
                self.as_header(id);
                self.int(id.0.into())
            }
            IdSource::Found(id) => id,
        }
    }

    /// Resolves a reference to a union. Returns the union's id, or `NONE`.
    pub(crate) fn union_id(&mut self, union: &UnionRef, params: &Params) -> Value {
        match self.union(union, params) {
            IdSource::Fixed(id) => self.int(id.0.into()),
            IdSource::Found(id) => id,
        }
    }
}
