// SPDX-License-Identifier: Apache-2.0
//! Finds hashes whose value affects only which member of a group a flow gets.
//!
//! A program that balances load often hashes a flow into a metadata field that only a selector uses. The switch may
//! choose any member of the group, as long as the same flow always gets the same member. So the hash may be replaced by
//! any other that spreads flows as evenly. All engines replace it by a cheaper one ([`Calculation::unseen`]).
//!
//! The router's own `multipath.p4` is such a program. With the cheaper hash, the packet rate with groups is 0.88 of the
//! rate with a single path. With CRC-32, the packet rate with groups is 0.83 of that rate.
//!
//! [`Calculation::unseen`]: crate::Calculation::unseen

use std::ops::Range;

use crate::action::{LValue, Op};
use crate::control::KeySource;
use crate::expr::{Arith, Bool, Data, HeaderRef, UnionRef};
use crate::externs::CalculationInput;
use crate::ids::HeaderId;
use crate::layout::FieldSlot;
use crate::parser::{KeyPart, ParserOp};
use crate::program::{Program, StandardMetadata};

/// Marks the calculations whose value only selectors use.
pub(crate) fn note(program: &mut Program) {
    let sights = Sights::of(program);
    let mut unseen: Vec<bool> = program
        .calculations
        .iter()
        .map(|calculation| calculation.algorithm.only_spreads())
        .collect();
    for checksum in &program.checksums {
        unseen[checksum.calculation.index()] = false;
    }
    for op in ops(program) {
        if let Op::Hash {
            target,
            calculation,
            ..
        } = op
        {
            let hidden = matches!(target, LValue::Field(slot) if sights.hide(program, *slot));
            unseen[calculation.index()] &= hidden;
        }
    }
    for (calculation, unseen) in program.calculations.iter_mut().zip(unseen) {
        calculation.unseen = unseen;
    }
}

/// Returns all operations of a program.
fn ops(program: &Program) -> impl Iterator<Item = &Op> {
    let parsers = program.states.iter().flat_map(|state| &state.ops);
    let parsers = parsers.filter_map(|op| match op {
        ParserOp::Run(op) => Some(&**op),
        _ => None,
    });
    let actions = program.actions.iter().flat_map(|action| &action.ops);
    actions.chain(parsers).chain(&program.deparser.ops)
}

/// The bits of the PHV that a program reads, separately for selectors and for all other code.
#[derive(Default)]
struct Sights {
    /// Ranges of bits that any other code than the selectors of `chosen_by` reads.
    bits: Vec<Range<usize>>,
    /// Ranges of bits that are inputs of selectors. Only selectors whose hash algorithm only spreads flows.
    chosen_by: Vec<Range<usize>>,
}

impl Sights {
    fn of(program: &Program) -> Self {
        let mut sights = Self::default();
        for op in ops(program) {
            sights.op(program, op);
        }
        for state in &program.states {
            for op in &state.ops {
                sights.parser_op(program, op);
            }
            for part in &state.key {
                if let KeyPart::Field(slot) = part {
                    sights.slot(*slot);
                }
            }
        }
        for conditional in &program.conditionals {
            sights.bool(program, &conditional.condition);
        }
        for key in program.tables.iter().flat_map(|table| &table.key) {
            match key.source {
                KeySource::Field(_, slot) | KeySource::Metadata(slot) => sights.slot(slot),
                KeySource::Valid(_) => {}
            }
        }
        for checksum in &program.checksums {
            sights.slot(checksum.target);
            if let Some(condition) = &checksum.condition {
                sights.bool(program, condition);
            }
        }
        for calculation in &program.calculations {
            sights.inputs(program, &calculation.input);
        }
        let digests = program.digests.iter().flat_map(|digest| &digest.fields);
        digests.for_each(|(_, slot)| sights.slot(*slot));
        let lists = program.field_lists.iter().flat_map(|list| &list.fields);
        lists.for_each(|slot| sights.slot(*slot));
        sights.standard(&program.standard_metadata);
        let profiles = program.profiles.iter();
        for selector in profiles.filter_map(|profile| profile.selector.as_ref()) {
            for input in &selector.input {
                match input {
                    CalculationInput::Field(_, slot) if selector.algorithm.only_spreads() => {
                        sights.chosen_by.push(bits(*slot));
                    }
                    other => sights.inputs(program, std::slice::from_ref(other)),
                }
            }
        }
        sights
    }

    /// Returns whether only selectors read a metadata field.
    fn hide(&self, program: &Program, slot: FieldSlot) -> bool {
        let own = bits(slot);
        let mut instances = program.headers.iter().filter(|header| header.metadata);
        let in_metadata = instances.any(|header| {
            let all = bits_of(header.offset, header.bytes);
            all.start <= own.start && own.end <= all.end
        });
        let meets = |other: &Range<usize>| other.start < own.end && own.start < other.end;
        in_metadata && self.chosen_by.contains(&own) && !self.bits.iter().any(meets)
    }

    fn slot(&mut self, slot: FieldSlot) {
        self.bits.push(bits(slot));
    }

    /// Adds all fields of a header to the parts that the program reads.
    fn header(&mut self, program: &Program, id: HeaderId) {
        let header = program.header(id);
        self.bits.push(bits_of(header.offset, header.bytes));
    }

    fn inputs(&mut self, program: &Program, inputs: &[CalculationInput]) {
        for input in inputs {
            match input {
                CalculationInput::Field(_, slot) => self.slot(*slot),
                CalculationInput::Varbit(id) | CalculationInput::Header(id) => {
                    self.header(program, *id);
                }
                CalculationInput::Constant(..) | CalculationInput::Payload => {}
            }
        }
    }

    /// Adds the fields that the architecture reads.
    fn standard(&mut self, standard: &StandardMetadata) {
        let StandardMetadata {
            ingress_port,
            egress_spec,
            egress_port,
            packet_length,
            instance_type,
            mcast_grp,
            egress_rid,
            parser_error,
            checksum_error,
            ingress_global_timestamp,
            egress_global_timestamp,
            enq_timestamp,
            enq_qdepth,
            deq_timedelta,
            deq_qdepth,
            qid,
            priority,
        } = standard;
        let always = [
            ingress_port,
            egress_spec,
            egress_port,
            packet_length,
            instance_type,
        ];
        let maybe = [
            mcast_grp,
            egress_rid,
            parser_error,
            checksum_error,
            ingress_global_timestamp,
            egress_global_timestamp,
            enq_timestamp,
            enq_qdepth,
            deq_timedelta,
            deq_qdepth,
            qid,
            priority,
        ];
        let slots = always.into_iter().chain(maybe.into_iter().flatten());
        slots.for_each(|slot| self.slot(*slot));
    }

    fn parser_op(&mut self, program: &Program, op: &ParserOp) {
        match op {
            ParserOp::ExtractVarbit(_, value) | ParserOp::Advance(value) => {
                self.arith(program, value);
            }
            ParserOp::Verify(condition, value) => {
                self.bool(program, condition);
                self.arith(program, value);
            }
            ParserOp::Extract(_) | ParserOp::Run(_) | ParserOp::Lookahead { .. } => {}
        }
    }

    fn op(&mut self, program: &Program, op: &Op) {
        match op {
            // If an assignment reads a field only to compute the new value of the same field, this does not count as
            // reading it. Expressions have no side effects, so the value does not get anywhere else.
            Op::Assign(LValue::Field(to), value) => {
                let known = self.bits.len();
                self.arith(program, value);
                let own = bits(*to);
                let mut index = 0;
                self.bits.retain(|bits| {
                    index += 1;
                    index <= known || *bits != own
                });
            }
            Op::Assign(to, value) | Op::ExecuteMeter(_, value, to) => {
                self.target(program, to);
                self.arith(program, value);
            }
            Op::RegisterRead(to, _, value) => {
                self.target(program, to);
                self.arith(program, value);
            }
            Op::Move { from, .. } => self.slot(*from),
            Op::AssignVarbit(one, other) | Op::AssignHeader(one, other) => {
                self.header_ref(program, one);
                self.header_ref(program, other);
            }
            Op::AssignUnion(one, other) => {
                self.union_ref(program, one);
                self.union_ref(program, other);
            }
            Op::AddHeader(header) | Op::RemoveHeader(header) => self.header_ref(program, header),
            Op::Push(_, value)
            | Op::Pop(_, value)
            | Op::PushUnion(_, value)
            | Op::PopUnion(_, value)
            | Op::Count(_, value)
            | Op::Truncate(value)
            | Op::Clone { session: value, .. } => self.arith(program, value),
            Op::JumpUnless(condition, _) | Op::Assert(condition) => self.bool(program, condition),
            Op::RegisterWrite(_, one, other) => {
                self.arith(program, one);
                self.arith(program, other);
            }
            Op::Hash {
                target, base, max, ..
            } => {
                self.target(program, target);
                self.arith(program, base);
                self.arith(program, max);
            }
            Op::Random(target, low, high) => {
                self.target(program, target);
                self.arith(program, low);
                self.arith(program, high);
            }
            Op::Log(_, values) => values.iter().for_each(|value| self.arith(program, value)),
            Op::AssignStack(..)
            | Op::AssignUnionStack(..)
            | Op::Jump(_)
            | Op::Exit
            | Op::MarkToDrop(_)
            | Op::Digest(_)
            | Op::Resubmit(_)
            | Op::Recirculate(_) => {}
        }
    }

    fn target(&mut self, program: &Program, target: &LValue) {
        if let LValue::HeaderField(header, _) = target {
            self.header_ref(program, header);
        }
    }

    fn arith(&mut self, program: &Program, value: &Arith) {
        self.data(program, &value.data);
    }

    fn data(&mut self, program: &Program, data: &Data) {
        match data {
            Data::Field(slot) => self.slot(*slot),
            Data::HeaderField(header, _) => self.header_ref(program, header),
            Data::Register(_, index, _) => self.arith(program, index),
            Data::Complement(inner) | Data::Cast(_, inner, _) => self.data(program, inner),
            Data::Arith(_, both) => {
                self.data(program, &both.0);
                self.data(program, &both.1);
            }
            Data::ShlMod(both, _) => {
                self.data(program, &both.0);
                self.arith(program, &both.1);
            }
            Data::FromBool(condition) => self.bool(program, condition),
            Data::Choose(parts) => {
                self.bool(program, &parts.0);
                self.data(program, &parts.1);
                self.data(program, &parts.2);
            }
            Data::Const(_) | Data::Param(_) | Data::LastIndex(_) | Data::StackSize(_) => {}
        }
    }

    fn bool(&mut self, program: &Program, condition: &Bool) {
        match condition {
            Bool::Valid(header) => self.header_ref(program, header),
            Bool::ValidUnion(union) => self.union_ref(program, union),
            Bool::Cmp(_, _, both) => {
                self.data(program, &both.0);
                self.data(program, &both.1);
            }
            Bool::HeaderEq(both) => {
                self.header_ref(program, &both.0);
                self.header_ref(program, &both.1);
            }
            Bool::UnionEq(both) => {
                self.union_ref(program, &both.0);
                self.union_ref(program, &both.1);
            }
            Bool::BoolEq(both) | Bool::And(both) | Bool::Or(both) => {
                self.bool(program, &both.0);
                self.bool(program, &both.1);
            }
            Bool::NonZero(value) => self.arith(program, value),
            Bool::Not(inner) => self.bool(program, inner),
            Bool::Choose(parts) => {
                self.bool(program, &parts.0);
                self.bool(program, &parts.1);
                self.bool(program, &parts.2);
            }
            Bool::Const(_) | Bool::VarbitEq(..) => {}
        }
    }

    fn header_ref(&mut self, program: &Program, header: &HeaderRef) {
        match header {
            HeaderRef::Fixed(id) => self.header(program, *id),
            HeaderRef::Element(_, index) => self.arith(program, index),
            HeaderRef::Member(union, _) => self.union_ref(program, union),
            HeaderRef::Last(_) => {}
        }
    }

    fn union_ref(&mut self, program: &Program, union: &UnionRef) {
        if let UnionRef::Element(_, index) = union {
            self.arith(program, index);
        }
    }
}

/// Returns the range of bits that a slot covers.
fn bits(slot: FieldSlot) -> Range<usize> {
    slot.bit()..slot.bit() + usize::from(slot.width)
}

/// Returns the range of bits that a range of bytes covers.
fn bits_of(byte: u32, bytes: u32) -> Range<usize> {
    byte as usize * 8..(byte + bytes) as usize * 8
}
