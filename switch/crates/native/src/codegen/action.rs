// SPDX-License-Identifier: Apache-2.0
//! Generates code for actions and their operations.

use std::collections::BTreeMap;
use std::rc::Rc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, TrapCode, Value};
use cranelift_frontend::Variable;
use sluice_engine::Counters;
use sluice_program::action::{LValue, LogPart};
use sluice_program::expr::{Arith, HeaderRef};
use sluice_program::{Action, ActionId, FieldListId, HeaderId, Op};

use crate::codegen::expr::{IdSource, Params};
use crate::codegen::lower::Lower;
use crate::codegen::number::{Words, signed_words};
use crate::runtime::calls::{self, NONE};

/// Headers of at most this size are copied and cleared by inline code instead of a runtime function.
const INLINE_BYTES: u32 = 256;

/// Trap code at the end of unreachable code.
const NEVER: TrapCode = TrapCode::unwrap_user(1);

/// Reachability of the end of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Control can reach the end, and the builder is at the end.
    Open,
    /// Control cannot reach the end. The builder is in a block that has ended.
    Closed,
}

/// Counter of the operations that an action has executed. Used only in actions that might exceed the limit.
#[derive(Clone, Copy)]
struct Steps {
    taken: Variable,
    /// Block to which the action jumps when it exceeds the limit.
    over: Block,
}

impl Lower<'_> {
    /// Compiles an action. Its `exit` operations jump to the block `exit`.
    pub(crate) fn action(&mut self, id: ActionId, params: &Params, exit: Block) -> End {
        let action: &Action = self.program.action(id);
        let ops = &action.ops;
        if ops.is_empty() {
            return End::Open;
        }
        let holds = !action.registers.is_empty();
        if holds {
            let id = self.int(id.0.into());
            self.call(calls::hold_registers as *const (), &[id], 0);
        }
        let targets = ops.iter().filter_map(|op| match op {
            Op::Jump(target) | Op::JumpUnless(_, target) => Some(*target),
            _ => None,
        });
        let mut blocks = BTreeMap::new();
        for target in targets {
            let block = *blocks
                .entry(target)
                .or_insert_with(|| self.b.create_block());
            debug_assert!(target <= ops.len(), "{block} is beyond the action");
        }
        let end = *blocks
            .entry(ops.len())
            .or_insert_with(|| self.b.create_block());
        let steps = self.steps(ops);
        let backward = has_loop(ops);
        if backward {
            // A later operation may jump back to a label. So at a label, a fact is certain only if no operation of the
            // action changes it.
            ops.iter().for_each(|op| self.forget_written(op));
        }
        let base = self.known.clone();
        let mut open = true;
        let mut ends = false;
        for (index, op) in ops.iter().enumerate() {
            if let Some(block) = blocks.get(&index) {
                if open {
                    self.jump(*block);
                }
                if backward {
                    self.enter_open(*block, base.clone());
                } else {
                    self.enter(*block);
                }
                open = true;
            }
            if !open {
                continue;
            }
            if let Some(steps) = steps {
                self.step(steps);
                ends = true;
            }
            match op {
                Op::Jump(target) => {
                    ends |= *target == ops.len();
                    self.jump(blocks[target]);
                    open = false;
                }
                Op::JumpUnless(condition, target) => {
                    match self.holds(condition) {
                        Some(true) => continue,
                        Some(false) => {
                            ends |= *target == ops.len();
                            self.jump(blocks[target]);
                            open = false;
                            continue;
                        }
                        None => {}
                    }
                    ends |= *target == ops.len();
                    let (after, target) = (self.b.create_block(), blocks[target]);
                    let end = |holds| if holds { after } else { target };
                    self.decide(condition, params, &mut |_, holds| end(holds));
                    self.enter(after);
                }
                Op::Exit => {
                    if holds {
                        self.release(id);
                    }
                    self.jump(exit);
                    open = false;
                }
                other => self.op(other, params),
            }
        }
        if open {
            self.jump(end);
            ends = true;
        }
        if let Some(steps) = steps {
            self.enter(steps.over);
            self.bump(std::mem::offset_of!(Counters, action_limit));
            self.jump(end);
        }
        if backward {
            let labels = blocks.values().filter(|block| **block != end);
            labels.for_each(|block| self.b.seal_block(*block));
        }
        if !ends {
            // No edge leads to this block, but every block must contain an instruction.
            self.enter(end);
            self.b.ins().trap(NEVER);
            return End::Closed;
        }
        self.enter(end);
        if holds {
            self.release(id);
        }
        End::Open
    }

    fn release(&mut self, id: ActionId) {
        let id = self.int(id.0.into());
        self.call(calls::release_registers as *const (), &[id], 0);
    }

    /// Declares a counter of operations. Returns `None` if the operations cannot exceed
    /// [`sluice_engine::Config::max_action_steps`].
    fn steps(&mut self, ops: &[Op]) -> Option<Steps> {
        if !has_loop(ops) && ops.len() <= self.config.max_action_steps as usize {
            return None;
        }
        let taken = self.b.declare_var(I64);
        let zero = self.int(0);
        self.b.def_var(taken, zero);
        let over = self.b.create_block();
        Some(Steps { taken, over })
    }

    /// Counts an operation. Ends the action if the count exceeds the limit.
    fn step(&mut self, steps: Steps) {
        let taken = self.b.use_var(steps.taken);
        let taken = self.b.ins().iadd_imm_s(taken, 1);
        self.b.def_var(steps.taken, taken);
        let most = self.int(self.config.max_action_steps.into());
        let over = self.compare(IntCC::UnsignedGreaterThan, taken, most);
        let after = self.b.create_block();
        self.branch(over, steps.over, after);
        self.enter(after);
    }

    /// Compiles one operation. Generates no code for jumps and `exit`: [`Self::action`] handles these operations, and a
    /// parser state ignores them.
    pub(crate) fn op(&mut self, op: &Op, params: &Params) {
        match op {
            Op::Move { to, from } => {
                let value = self.load_slot(self.phv, *from);
                self.store_slot(self.phv, *to, &value);
            }
            Op::Assign(target, value) => self.assign(target, value, params),
            Op::AssignHeader(to, from) => self.assign_header(to, from, params),
            Op::AddHeader(header) => self.add_header(header, params),
            Op::RemoveHeader(header) => self.remove_header(header, params),
            Op::MarkToDrop(copy) => {
                let standard = &self.program.standard_metadata;
                let (egress_spec, group) =
                    copy.unwrap_or((standard.egress_spec, standard.mcast_grp));
                self.store_constant(egress_spec, self.config.drop_port.into());
                if let Some(slot) = group {
                    self.store_constant(slot, 0);
                }
            }
            Op::Log(parts, arguments) => {
                if !parts.is_empty() {
                    self.log(parts, arguments, params);
                }
            }
            Op::Assert(condition) => {
                let condition = self.bool(condition, params);
                let failed = self.not(condition);
                self.when(failed, |lower| {
                    lower.call(calls::assertion_failed as *const (), &[], 0);
                });
            }
            Op::Jump(_) | Op::JumpUnless(..) | Op::Exit => {}
            Op::AssignVarbit(..)
            | Op::AssignUnion(..)
            | Op::AssignStack(..)
            | Op::AssignUnionStack(..)
            | Op::Push(..)
            | Op::Pop(..)
            | Op::PushUnion(..)
            | Op::PopUnion(..) => self.stack_op(op, params),
            _ => self.extern_op(op, params),
        }
    }

    fn assign(&mut self, target: &LValue, value: &Arith, params: &Params) {
        let width = match target {
            LValue::Field(slot) | LValue::HeaderField(_, slot) => usize::from(slot.width),
        };
        let bounds = value.data.bounds();
        let value = self.data(&value.data, width.div_ceil(64), params);
        if let ([word], None) = (&value[..], bounds.below) {
            self.note_bits(*word, bounds.above);
        }
        self.store_value(target, value, params);
    }

    /// Writes a number to a target. If the target is wider, extends the number with zeros.
    fn store_value(&mut self, target: &LValue, value: Words, params: &Params) {
        match target {
            LValue::Field(slot) => {
                let value = self.resize(value, usize::from(slot.width).div_ceil(64));
                self.store_slot(self.phv, *slot, &value);
            }
            LValue::HeaderField(header, slot) => {
                let value = self.resize(value, usize::from(slot.width).div_ceil(64));
                match self.header(header, params) {
                    IdSource::Fixed(id) => {
                        let slot = slot.moved(self.program.header(id).offset);
                        self.store_slot(self.phv, slot, &value);
                    }
                    IdSource::Found(id) => {
                        let (exists, base) = self.header_base(id);
                        self.either(
                            exists,
                            |lower| lower.store_slot(base, *slot, &value),
                            Self::out_of_range,
                        );
                    }
                }
            }
        }
    }

    /// Logs a message. Passes to the runtime function the address of the message's parts in the program, and the
    /// arguments. Each argument is its number of words, followed by these words in two's complement.
    fn log(&mut self, parts: &Vec<LogPart>, arguments: &[Arith], params: &Params) {
        let mut values = Vec::new();
        for argument in arguments {
            let words = signed_words(argument.data.bounds());
            values.push(self.int(words as u64));
            values.extend(self.whole(&argument.data, words, params));
        }
        let place = self.stack(values.len() * 8);
        for (index, value) in values.iter().enumerate() {
            self.store(*value, place, index as u32 * 8);
        }
        let parts: *const Vec<LogPart> = parts;
        let (parts, count) = (self.int(parts as u64), self.int(values.len() as u64));
        self.call(calls::log as *const (), &[parts, place, count], 0);
    }

    /// Returns whether a header has no `varbit` field and is small enough for inline code.
    fn is_small(&self, id: HeaderId) -> bool {
        let header = self.program.header(id);
        self.program.header_type(header.ty).varbit.is_none() && header.bytes <= INLINE_BYTES
    }

    fn assign_header(&mut self, to: &HeaderRef, from: &HeaderRef, params: &Params) {
        let places = (self.header(to, params), self.header(from, params));
        if let (IdSource::Fixed(to), IdSource::Fixed(from)) = places
            && self.is_small(to)
        {
            self.as_header(to);
            self.as_header(from);
            let valid = self.is_valid(from);
            return self.either(
                valid,
                |lower| {
                    let (target, source) = (lower.program.header(to), lower.program.header(from));
                    let (target, source) = ((lower.phv, target.offset), (lower.phv, source.offset));
                    let bytes = lower.program.header(from).bytes;
                    lower.copy(target, source, bytes);
                    lower.set_valid(to);
                },
                |lower| lower.set_invalid(to),
            );
        }
        let (to, from) = (self.header_id(to, params), self.header_id(from, params));
        self.when_both(to, from, |lower, to, from| {
            lower.call(calls::copy_header as *const (), &[to, from], 0);
            lower.known.forget_validity();
        });
    }

    /// Generates code that runs `then` with both ids, unless one of them is [`NONE`].
    fn when_both(&mut self, left: Value, right: Value, then: impl FnOnce(&mut Self, Value, Value)) {
        let (left_exists, left) = self.existing(left);
        let (right_exists, right) = self.existing(right);
        let both = self.b.ins().band(left_exists, right_exists);
        self.when(both, |lower| then(lower, left, right));
    }

    /// Adds the header's length on the wire to the packet's length if `more` is set, else subtracts the header's
    /// length.
    fn change_length(&mut self, id: HeaderId, more: bool) {
        let ty = self.program.header_type(self.program.header(id).ty);
        let mut bits = self.int(ty.fixed_bits as u64);
        if ty.varbit.is_some() {
            let varbit = self.varbit_bits(id);
            bits = self.b.ins().iadd(bits, varbit);
        }
        let bytes = self.shr(bits, 3);
        let place = self.frame_field(std::mem::offset_of!(
            crate::runtime::frame::Frame<'static>,
            length
        ));
        let old = self.load(I64, place, 0);
        let new = if more {
            self.b.ins().iadd(old, bytes)
        } else {
            self.b.ins().isub(old, bytes)
        };
        self.store(new, place, 0);
    }

    fn add_header(&mut self, header: &HeaderRef, params: &Params) {
        match self.header(header, params) {
            IdSource::Fixed(id) if self.is_small(id) => {
                self.as_header(id);
                let valid = self.is_valid(id);
                let absent = self.not(valid);
                self.when(absent, |lower| {
                    let header = lower.program.header(id);
                    lower.clear(lower.phv, header.offset, header.bytes);
                    lower.set_valid(id);
                    lower.change_length(id, true);
                });
            }
            IdSource::Fixed(id) => {
                self.as_header(id);
                let number = self.int(id.0.into());
                self.call(calls::add_header as *const (), &[number], 0);
                self.known.forget_validity();
                self.known.set_valid(id, true);
            }
            IdSource::Found(id) => self.on_found(id, calls::add_header as *const ()),
        }
    }

    fn remove_header(&mut self, header: &HeaderRef, params: &Params) {
        match self.header(header, params) {
            IdSource::Fixed(id) => {
                let valid = self.is_valid(id);
                self.when(valid, |lower| {
                    lower.set_invalid(id);
                    lower.change_length(id, false);
                });
            }
            IdSource::Found(id) => self.on_found(id, calls::remove_header as *const ()),
        }
    }

    /// Calls a runtime function with the id of a header that is selected at run time. Counts an out-of-range access if
    /// the id is [`NONE`].
    fn on_found(&mut self, id: Value, function: *const ()) {
        let (exists, id) = self.existing(id);
        self.either(
            exists,
            |lower| {
                lower.call(function, &[id], 0);
                lower.known.forget_validity();
            },
            Self::out_of_range,
        );
    }

    /// Compiles an operation on a whole union or stack, or on a `varbit` field.
    fn stack_op(&mut self, op: &Op, params: &Params) {
        let (function, left, right) = match op {
            Op::AssignVarbit(to, from) => return self.assign_varbit(to, from, params),
            Op::AssignUnion(to, from) => {
                let (to, from) = (self.union_id(to, params), self.union_id(from, params));
                return self.when_both(to, from, |lower, to, from| {
                    lower.call(calls::assign_union as *const (), &[to, from], 0);
                    lower.known.forget_validity();
                });
            }
            Op::AssignStack(to, from) => {
                let (to, from) = (self.int(to.0.into()), self.int(from.0.into()));
                (calls::assign_stack as *const (), to, from)
            }
            Op::AssignUnionStack(to, from) => {
                let (to, from) = (self.int(to.0.into()), self.int(from.0.into()));
                (calls::assign_union_stack as *const (), to, from)
            }
            Op::Push(stack, count) => {
                let (stack, count) = (self.int(stack.0.into()), self.index(count, params));
                (calls::push as *const (), stack, count)
            }
            Op::Pop(stack, count) => {
                let (stack, count) = (self.int(stack.0.into()), self.index(count, params));
                (calls::pop as *const (), stack, count)
            }
            Op::PushUnion(stack, count) => {
                let (stack, count) = (self.int(stack.0.into()), self.index(count, params));
                (calls::push_union as *const (), stack, count)
            }
            Op::PopUnion(stack, count) => {
                let (stack, count) = (self.int(stack.0.into()), self.index(count, params));
                (calls::pop_union as *const (), stack, count)
            }
            other => unreachable!("{other:?} is no operation on a stack"),
        };
        self.call(function, &[left, right], 0);
        self.known.forget_validity();
    }

    fn assign_varbit(&mut self, to: &HeaderRef, from: &HeaderRef, params: &Params) {
        let (to, from) = (self.header_id(to, params), self.header_id(from, params));
        let (to_exists, to) = self.existing(to);
        let (from_exists, from) = self.existing(from);
        let both = self.b.ins().band(to_exists, from_exists);
        self.either(
            both,
            |lower| {
                lower.call(calls::assign_varbit as *const (), &[to, from], 0);
            },
            Self::out_of_range,
        );
    }

    /// Compiles an operation on a counter, meter or register, a hash or random number, or a request to the traffic
    /// manager.
    fn extern_op(&mut self, op: &Op, params: &Params) {
        match op {
            Op::Count(id, index) => {
                let index = self.index(index, params);
                self.count(*id, index);
            }
            Op::ExecuteMeter(id, index, target) => {
                let (id, index) = (self.int(id.0.into()), self.index(index, params));
                let color = self.call(calls::execute_meter as *const (), &[id, index], 1)[0];
                let (exists, color) = self.existing(color);
                self.either(
                    exists,
                    |lower| lower.store_value(target, vec![color], params),
                    Self::out_of_range,
                );
            }
            Op::RegisterRead(target, id, index) => {
                let place = self.register(*id, index, params);
                let words = u32::from(self.program.register(*id).width).div_ceil(64);
                self.on_cell(place, |lower| {
                    let value = (0..words)
                        .map(|word| lower.load(I64, place, (words - 1 - word) * 8))
                        .collect();
                    lower.store_value(target, value, params);
                });
            }
            Op::RegisterWrite(id, index, value) => {
                let place = self.register(*id, index, params);
                let width = u32::from(self.program.register(*id).width);
                let words = width.div_ceil(64);
                self.on_cell(place, |lower| {
                    let value = lower.data(&value.data, words as usize, params);
                    let value = lower.modulo(value, width);
                    for (word, value) in value.into_iter().enumerate() {
                        lower.store(value, place, (words - 1 - word as u32) * 8);
                    }
                });
            }
            Op::Hash {
                target,
                base,
                calculation,
                max,
            } => {
                let hash = self.calculation(*calculation);
                let base = self.low(base, params);
                let hash = self.remainder(hash, max, params);
                let value = self.b.ins().iadd(hash, base);
                self.store_value(target, vec![value], params);
            }
            Op::Random(target, low, high) => {
                let (low, high) = (self.low(low, params), self.low(high, params));
                let possible = self.compare(IntCC::UnsignedLessThanOrEqual, low, high);
                self.when(possible, |lower| {
                    let value = lower.call(calls::random as *const (), &[low, high], 1)[0];
                    lower.store_value(target, vec![value], params);
                });
            }
            Op::Digest(id) => {
                let id = self.int(id.0.into());
                self.call(calls::digest as *const (), &[id], 0);
            }
            Op::Clone { session, preserve } => {
                let session = self.low(session, params);
                let preserve = self.field_list(*preserve);
                self.call(calls::clone as *const (), &[session, preserve], 0);
            }
            Op::Resubmit(list) => {
                let list = self.field_list(*list);
                self.call(calls::resubmit as *const (), &[list], 0);
            }
            Op::Recirculate(list) => {
                let list = self.field_list(*list);
                self.call(calls::recirculate as *const (), &[list], 0);
            }
            Op::Truncate(length) => {
                let length = self.index(length, params);
                self.call(calls::truncate as *const (), &[length], 0);
            }
            other => unreachable!("{other:?} is no call of an extern"),
        }
    }

    fn field_list(&mut self, list: Option<FieldListId>) -> Value {
        self.int(list.map_or(NONE, |list| list.0.into()))
    }

    /// Generates code that runs `then` if the address of a register cell is not 0. Otherwise the code counts an
    /// out-of-range access.
    fn on_cell(&mut self, place: Value, then: impl FnOnce(&mut Self)) {
        let zero = self.int(0);
        let exists = self.compare(IntCC::NotEqual, place, zero);
        self.either(exists, then, Self::out_of_range);
    }

    /// Returns `value` modulo `max`. A `max` of 0 counts as 1.
    fn remainder(&mut self, value: Value, max: &Arith, params: &Params) -> Value {
        if let sluice_program::expr::Data::Const(max) = &max.data {
            let max = crate::codegen::number::constant_words(max, 1)[0].max(1);
            if max.is_power_of_two() {
                return self.and(value, max - 1);
            }
        }
        let max = self.low(max, params);
        let one = self.int(1);
        let max = self.b.ins().umax(max, one);
        self.b.ins().urem(value, max)
    }
}

/// Returns whether an operation may jump to itself or to an earlier operation.
fn has_loop(ops: &[Op]) -> bool {
    ops.iter().enumerate().any(|(index, op)| match op {
        Op::Jump(target) | Op::JumpUnless(_, target) => *target <= index,
        _ => false,
    })
}

/// Converts an action's parameters from bytes to words, as [`sluice_program::ParamSlot`] describes.
pub(crate) fn param_words(action: &Action, values: &[Vec<u8>]) -> Rc<[u64]> {
    let mut words = vec![0; action.param_words];
    for (param, value) in action.params.iter().zip(values) {
        let count = param.slot.words();
        let first = usize::from(param.slot.word);
        for (index, byte) in value.iter().rev().enumerate().take(count * 8) {
            words[first + count - 1 - index / 8] |= u64::from(*byte) << (index % 8 * 8);
        }
    }
    words.into()
}
