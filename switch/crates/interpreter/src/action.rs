// SPDX-License-Identifier: Apache-2.0
//! Runs actions, operation by operation.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use num_bigint::BigInt;
use sluice_engine::number::Number;
use sluice_engine::{CloneRequest, Extern, Trace, TraceStep, bits};
use sluice_program::action::{LValue, LogPart};
use sluice_program::expr::{Arith, HeaderRef};
use sluice_program::{Action, FieldSlot, MeterUnit, Op, RegisterId};
use sluice_tables::{ActionRef, Color};

use crate::eval::in_class;
use crate::machine::{Flow, Machine};

impl<T: Trace> Machine<'_, T> {
    /// Runs an action with an entry's parameters. Actions that use registers are atomic, as in BMv2. For this, an
    /// action locks all its registers at the start and releases them at the end.
    pub(crate) fn run_action(&mut self, entry: ActionRef<'_>) -> Flow {
        let program = self.program;
        let action: &Action = program.action(entry.action);
        let externs = self.context.externs;
        let uses_registers = !action.registers.is_empty();
        let _held = uses_registers.then(|| externs.hold_registers(&action.registers));
        let mut steps = 0;
        let mut next = 0;
        while let Some(op) = action.ops.get(next) {
            steps += 1;
            if steps > self.config.max_action_steps {
                self.worker.counters.action_limit += 1;
                break;
            }
            next = match op {
                Op::Jump(target) => *target,
                Op::JumpUnless(condition, target) => {
                    if self.bool(condition, entry.params) {
                        next + 1
                    } else {
                        *target
                    }
                }
                Op::Exit => return Flow::Exit,
                other => {
                    self.run_op(other, entry.params);
                    next + 1
                }
            };
        }
        Flow::Continue
    }

    /// Runs one operation. Ignores jumps and `exit`, which [`run_action`](Self::run_action) handles.
    pub(crate) fn run_op(&mut self, op: &Op, params: &[u64]) {
        match op {
            Op::Move { to, from } => move_bits(&mut self.packet.phv.bytes, *to, *from),
            Op::Assign(target, value) => self.assign(target, value, params),
            Op::AssignVarbit(to, from) => self.assign_varbit(to, from, params),
            Op::AssignHeader(to, from) => {
                if let (Some(to), Some(from)) = (self.header(to, params), self.header(from, params))
                {
                    self.packet.phv.copy_header(self.program, to, from);
                }
            }
            Op::AssignUnion(to, from) => {
                if let (Some(to), Some(from)) = (self.union(to, params), self.union(from, params)) {
                    self.packet.phv.assign_union(self.program, to, from);
                }
            }
            Op::AssignStack(to, from) => self.packet.phv.assign_stack(self.program, *to, *from),
            Op::AssignUnionStack(to, from) => {
                self.packet.phv.assign_union_stack(self.program, *to, *from)
            }
            Op::AddHeader(header) => self.add_header(header, params),
            Op::RemoveHeader(header) => self.remove_header(header, params),
            Op::Push(stack, count) => {
                let count = self.index(count, params);
                self.packet.phv.push(self.program, *stack, count);
            }
            Op::Pop(stack, count) => {
                let count = self.index(count, params);
                self.packet.phv.pop(self.program, *stack, count);
            }
            Op::PushUnion(stack, count) => {
                let count = self.index(count, params);
                self.packet.phv.push_union(self.program, *stack, count);
            }
            Op::PopUnion(stack, count) => {
                let count = self.index(count, params);
                self.packet.phv.pop_union(self.program, *stack, count);
            }
            Op::MarkToDrop(copy) => {
                let standard = &self.program.standard_metadata;
                let (egress_spec, group) =
                    copy.unwrap_or((standard.egress_spec, standard.mcast_grp));
                self.mark_to_drop(egress_spec, group);
                self.note(TraceStep::Extern(Extern::MarkToDrop));
            }
            Op::Log(parts, arguments) => self.log(parts, arguments, params),
            Op::Assert(condition) => {
                if !self.bool(condition, params) {
                    self.worker.counters.assertions_failed += 1;
                    self.note(TraceStep::AssertionFailed);
                    self.sink.log("an assertion failed");
                }
            }
            Op::Jump(_) | Op::JumpUnless(..) | Op::Exit => {}
            _ => self.run_extern(op, params),
        }
    }

    /// Runs an operation on a counter, meter, register or hash, or records a request to the traffic manager.
    fn run_extern(&mut self, op: &Op, params: &[u64]) {
        match op {
            Op::Count(id, index) => {
                let index = self.index(index, params) as usize;
                match self.context.externs.counter(*id, index) {
                    Some(cell) => {
                        if !self.config.dry_run {
                            cell.count(self.packet.ingress_length);
                        }
                        self.note(TraceStep::Extern(Extern::Count(*id, index)));
                    }
                    None => self.out_of_range(),
                }
            }
            Op::ExecuteMeter(id, index, target) => {
                let index = self.index(index, params) as usize;
                let amount = match self.program.meter(*id).unit {
                    MeterUnit::Packets => 1,
                    MeterUnit::Bytes => self.packet.ingress_length,
                };
                match self.context.externs.meter(*id, index) {
                    Some(meter) => {
                        let bytes = self.packet.ingress_length;
                        let color = if self.config.dry_run {
                            Color::Green
                        } else {
                            meter.execute(amount, bytes, self.context.now_us)
                        };
                        self.store(target, &(color as i64), params);
                        self.note(TraceStep::Extern(Extern::Meter(*id, index, color)));
                    }
                    None => self.out_of_range(),
                }
            }
            Op::RegisterRead(target, id, index) => self.read_register(target, *id, index, params),
            Op::RegisterWrite(id, index, value) => self.write_register(*id, index, value, params),
            Op::Hash {
                target,
                base,
                calculation,
                max,
            } => {
                let hash = self.calculate(*calculation);
                let (base, max) = (self.low_u64(base, params), self.low_u64(max, params));
                let value = (hash % max.max(1)).wrapping_add(base);
                self.note(TraceStep::Extern(Extern::Hash(*calculation, value)));
                self.store(target, &i128::from(value), params);
            }
            Op::Random(target, low, high) => {
                let (low, high) = (self.low_u64(low, params), self.low_u64(high, params));
                if low <= high {
                    let value = self.worker.random.between(low, high);
                    self.note(TraceStep::Extern(Extern::Random(value)));
                    self.store(target, &i128::from(value), params);
                }
            }
            Op::Digest(id) => {
                self.packet.request().digest = Some(*id);
                self.note(TraceStep::Extern(Extern::Digest(*id)));
            }
            Op::Clone { session, preserve } => {
                let session = (self.low_u64(session, params) & 0x7fff) as u32;
                let preserve = *preserve;
                self.packet.request().clone = Some(CloneRequest { session, preserve });
                self.note(TraceStep::Extern(Extern::Clone(session)));
            }
            Op::Resubmit(list) => {
                self.packet.request().resubmit = Some(*list);
                self.note(TraceStep::Extern(Extern::Resubmit));
            }
            Op::Recirculate(list) => {
                self.packet.request().recirculate = Some(*list);
                self.note(TraceStep::Extern(Extern::Recirculate));
            }
            Op::Truncate(length) => {
                let length = usize::try_from(self.index(length, params)).unwrap_or(usize::MAX);
                self.packet.truncate = self.packet.truncate.min(length);
                self.note(TraceStep::Extern(Extern::Truncate(length)));
            }
            _ => {}
        }
    }

    #[inline]
    fn assign(&mut self, target: &LValue, value: &Arith, params: &[u64]) {
        in_class!(value.class, N => {
            let value = self.data::<N>(&value.data, params);
            self.store(target, &value, params);
        });
    }

    /// Writes a value to a target, modulo 2^width. A write to a header beyond the end of its stack has no effect.
    #[inline]
    pub(crate) fn store<N: Number>(&mut self, target: &LValue, value: &N, params: &[u64]) {
        match target {
            LValue::Field(slot) => value.store(&mut self.packet.phv.bytes, *slot),
            LValue::HeaderField(header, slot) => match self.header(header, params) {
                Some(id) => {
                    let slot = slot.moved(self.program.header(id).offset);
                    value.store(&mut self.packet.phv.bytes, slot);
                }
                None => self.out_of_range(),
            },
        }
    }

    fn read_register(&mut self, target: &LValue, id: RegisterId, index: &Arith, params: &[u64]) {
        let index = self.index(index, params) as usize;
        match self.context.externs.register(id, index) {
            Some([word]) => {
                let word = word.load(Ordering::Relaxed);
                self.store(target, &i128::from(word), params);
                self.note(TraceStep::Extern(Extern::RegisterRead(id, index, &[word])));
            }
            Some(words) => {
                let words: Vec<u64> = words
                    .iter()
                    .map(|word| word.load(Ordering::Relaxed))
                    .collect();
                self.store(target, &BigInt::from_words(&words), params);
                self.note(TraceStep::Extern(Extern::RegisterRead(id, index, &words)));
            }
            None => self.out_of_range(),
        }
    }

    fn write_register(&mut self, id: RegisterId, index: &Arith, value: &Arith, params: &[u64]) {
        let index = self.index(index, params) as usize;
        let width = self.program.register(id).width;
        match self.context.externs.register(id, index) {
            Some([word]) => {
                let low = self.low_u64(value, params) & (u64::MAX >> (64 - width));
                if !self.config.dry_run {
                    word.store(low, Ordering::Relaxed);
                }
                self.note(TraceStep::Extern(Extern::RegisterWrite(id, index, &[low])));
            }
            Some(words) => {
                let digits = self.wide_digits(value, width, words.len(), params);
                if !self.config.dry_run {
                    for (word, digit) in words.iter().zip(&digits) {
                        word.store(*digit, Ordering::Relaxed);
                    }
                }
                self.note(TraceStep::Extern(Extern::RegisterWrite(id, index, &digits)));
            }
            None => self.out_of_range(),
        }
    }

    /// Evaluates an expression modulo 2^`width`. Returns the value in `words` words, most significant first.
    fn wide_digits(&self, value: &Arith, width: u16, words: usize, params: &[u64]) -> Vec<u64> {
        let value: BigInt = self
            .data::<BigInt>(&value.data, params)
            .modulo_power(width.into());
        let mut digits = value.to_u64_digits().1;
        digits.resize(words, 0);
        digits.reverse();
        digits
    }

    fn mark_to_drop(&mut self, egress_spec: FieldSlot, group: Option<FieldSlot>) {
        let bytes = &mut self.packet.phv.bytes;
        i64::from(self.config.drop_port).store(bytes, egress_spec);
        if let Some(slot) = group {
            0i64.store(bytes, slot);
        }
    }

    fn add_header(&mut self, header: &HeaderRef, params: &[u64]) {
        match self.header(header, params) {
            Some(id) => self.packet.add_header(self.program, id),
            None => self.out_of_range(),
        }
    }

    fn remove_header(&mut self, header: &HeaderRef, params: &[u64]) {
        match self.header(header, params) {
            Some(id) => self.packet.remove_header(self.program, id),
            None => self.out_of_range(),
        }
    }

    fn assign_varbit(&mut self, to: &HeaderRef, from: &HeaderRef, params: &[u64]) {
        match (self.header(to, params), self.header(from, params)) {
            (Some(to), Some(from)) => {
                let scratch = &mut self.worker.hash_input;
                self.packet.assign_varbit(self.program, to, from, scratch);
            }
            _ => self.out_of_range(),
        }
    }

    fn log(&mut self, parts: &[LogPart], arguments: &[Arith], params: &[u64]) {
        let mut message = String::new();
        for part in parts {
            match part {
                LogPart::Text(text) => message.push_str(text),
                LogPart::Argument(index) => {
                    let value = self.data::<BigInt>(&arguments[*index].data, params);
                    let _ = write!(message, "{value}");
                }
            }
        }
        if !message.is_empty() {
            self.sink.log(&message);
            self.note(TraceStep::Log(&message));
        }
    }
}

/// Copies a value between two slots of equal width.
#[inline]
fn move_bits(bytes: &mut [u8], to: FieldSlot, from: FieldSlot) {
    if to.is_bytes() && from.is_bytes() {
        let start = from.byte as usize;
        bytes.copy_within(start..start + from.bytes(), to.byte as usize);
    } else if bits::fits_u64(to) && bits::fits_u64(from) {
        let value = bits::load_u64(bytes, from);
        bits::store_u64(bytes, to, value);
    } else {
        let mut value = vec![0; from.bytes()];
        bits::load_padded(bytes, from, &mut value);
        bits::store_padded(bytes, to, &value);
    }
}
