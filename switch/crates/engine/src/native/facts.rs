// SPDX-License-Identifier: Apache-2.0
//! What is known while code is generated: which metadata fields live on the stack instead of
//! the header vector, and what each place of the code may take for granted.
//!
//! In the function that parses a packet and runs ingress, metadata fields begin as 0 and are seen by
//! nobody else but where the program says so (egress, selectors, digests, field lists). They are kept on
//! the function's stack, in the machine's byte order, and written to the header vector only if somebody
//! else looks there. Along every edge of the code goes what is certain on it: values that fields have,
//! and the validity of headers. Where edges meet, what is certain on all of them remains. A condition
//! that is decided by it is not tested.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    Block, InstBuilder, StackSlot, StackSlotData, StackSlotKind, Type, Value,
};
use sluice_program::expr::{Bool, CmpOp, Constant, Data, HeaderRef};
use sluice_program::{CalculationInput, HeaderId, Op, Program, Slot};

use super::checksum::takes_kept_fields;
use super::choice::chooses_by_kept_fields;
use super::lower::Lower;
use super::number::Words;

/// Wider fields than this many words stay in memory.
const MOST_WORDS: u16 = 4;

/// A metadata field.
#[derive(Debug)]
struct Field {
    slot: Slot,
    /// It may live on the stack: it is 0 when a packet is parsed, and nothing but machine code writes it.
    keepable: bool,
    /// Somebody reads it in memory.
    observed: Cell<bool>,
}

/// Facts about a program that code generation asks for again and again.
#[derive(Debug)]
pub(super) struct Facts {
    /// Metadata fields by their place. Each has the bytes it lies in for itself, and its spare bits are
    /// always 0.
    fields: Vec<Field>,
    /// Some code takes a metadata instance as a whole, as if it were a header.
    pub(super) whole: Cell<bool>,
    /// The bytes of each header with a `varbit` field.
    varbit: Vec<Range<u32>>,
    /// Fields may be kept on the stack at all.
    pub(super) keep: Cell<bool>,
}

impl Facts {
    pub(super) fn new(program: &Program) -> Self {
        let headers = program.headers.iter().filter(|header| header.metadata);
        let mut fields: Vec<_> = headers
            .flat_map(|header| {
                let slots = header.metadata_slots.iter();
                slots.map(|slot| Field {
                    slot: slot.moved(header.offset),
                    keepable: slot.width <= MOST_WORDS * 64,
                    observed: Cell::new(false),
                })
            })
            .collect();
        fields.sort_by_key(|field| field.slot.bit());
        let packet_headers = program.headers.iter().filter(|header| !header.metadata);
        let varbit = packet_headers
            .filter(|header| program.header_type(header.ty).varbit.is_some())
            .map(|header| header.offset..header.offset + header.bytes);
        let mut facts = Self {
            fields,
            whole: Cell::new(false),
            varbit: varbit.collect(),
            keep: Cell::new(true),
        };
        let standard = &program.standard_metadata;
        let given = [
            Some(standard.ingress_port),
            Some(standard.packet_length),
            Some(standard.instance_type),
            standard.ingress_global_timestamp,
        ];
        let preserved = program.field_lists.iter().flat_map(|list| &list.fields);
        let metered = program.tables.iter().filter_map(|table| table.meter);
        let metered: Vec<Slot> = metered.map(|(_, slot)| slot).collect();
        for slot in given.iter().flatten().chain(preserved).chain(&metered) {
            if let Some((index, _)) = facts.field(*slot) {
                facts.fields[index].keepable = false;
            }
        }
        facts.observe_inputs(program);
        facts
    }

    /// What runtime functions and the traffic manager read.
    fn observe_inputs(&self, program: &Program) {
        let standard = &program.standard_metadata;
        self.observe(standard.egress_spec);
        if let Some(slot) = standard.mcast_grp {
            self.observe(slot);
        }
        let lists = program.field_lists.iter();
        lists
            .flat_map(|list| &list.fields)
            .for_each(|slot| self.observe(*slot));
        for (_, slot) in program.digests.iter().flat_map(|digest| &digest.fields) {
            self.observe(*slot);
        }
        let calculations = program
            .calculations
            .iter()
            .filter(|calculation| !takes_kept_fields(program, calculation));
        let selectors = program
            .profiles
            .iter()
            .filter_map(|profile| profile.selector.as_ref())
            .filter(|selector| !chooses_by_kept_fields(program, selector));
        let inputs = calculations
            .flat_map(|calculation| &calculation.input)
            .chain(selectors.flat_map(|selector| &selector.input));
        for input in inputs {
            match input {
                CalculationInput::Field(_, slot) => self.observe(*slot),
                CalculationInput::Header(id) if program.header(*id).metadata => {
                    self.whole.set(true);
                }
                _ => {}
            }
        }
    }

    /// The metadata field in which a slot lies, and how many bits of the field lie below it.
    fn field(&self, slot: Slot) -> Option<(usize, u32)> {
        let after = self
            .fields
            .partition_point(|field| field.slot.bit() <= slot.bit());
        let index = after.checked_sub(1)?;
        let own = self.fields[index].slot;
        let (end, last) = (
            own.bit() + usize::from(own.width),
            slot.bit() + usize::from(slot.width),
        );
        (last <= end).then(|| (index, (end - last) as u32))
    }

    /// Whether a slot lies in a header with a `varbit` field.
    pub(super) fn is_beside_varbit(&self, slot: Slot) -> bool {
        self.varbit.iter().any(|header| header.contains(&slot.byte))
    }

    /// Whether a slot is a metadata field, all of it.
    pub(super) fn is_field(&self, slot: Slot) -> bool {
        self.field(slot)
            .is_some_and(|(index, _)| self.fields[index].slot.width == slot.width)
    }

    /// The metadata fields at which somebody looks in the header vector.
    pub(super) fn observed(&self) -> Vec<Slot> {
        let observed = self.fields.iter().filter(|field| field.observed.get());
        observed.map(|field| field.slot).collect()
    }

    /// Somebody looks at a slot in the header vector.
    fn observe(&self, slot: Slot) {
        if let Some((index, _)) = self.field(slot) {
            self.fields[index].observed.set(true);
        }
    }
}

/// What is certain of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certain {
    Constant(u64),
    /// It is this value of the code.
    Same(Value),
}

/// What is certain at a place of the code.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Values of kept fields of one word.
    fields: BTreeMap<usize, Certain>,
    /// Headers that are valid, or are not.
    valid: BTreeMap<HeaderId, bool>,
}

impl Known {
    /// What is also certain in `other`.
    pub(super) fn meet(&mut self, other: &Self) {
        self.fields
            .retain(|field, value| other.fields.get(field) == Some(value));
        self.valid
            .retain(|header, valid| other.valid.get(header) == Some(valid));
    }

    pub(super) fn valid(&self, header: HeaderId) -> Option<bool> {
        self.valid.get(&header).copied()
    }

    pub(super) fn set_valid(&mut self, header: HeaderId, valid: bool) {
        self.valid.insert(header, valid);
    }

    pub(super) fn forget_valid(&mut self, header: HeaderId) {
        self.valid.remove(&header);
    }

    /// Any header may have become valid or not.
    pub(super) fn forget_validity(&mut self) {
        self.valid.clear();
    }
}

/// Where kept fields lie, and what is certain on edges to blocks that have not begun.
#[derive(Default)]
pub(super) struct Flow {
    /// Where each metadata field begins on the stack; `None` where it is in the header vector. Nothing at
    /// all in functions that keep no fields.
    places: Vec<Option<u32>>,
    /// The stack that they lie on.
    stack: Option<StackSlot>,
    pub(super) incoming: BTreeMap<Block, Known>,
}

/// The pieces of a field on the stack: types and offsets, least significant first.
fn pieces(width: u16) -> Vec<(Type, u32)> {
    match width {
        0..=8 => vec![(I8, 0)],
        9..=16 => vec![(I16, 0)],
        17..=32 => vec![(I32, 0)],
        _ => (0..width.div_ceil(64))
            .map(|word| (I64, u32::from(word) * 8))
            .collect(),
    }
}

/// A constant as an unsigned word.
fn word(constant: &Constant) -> Option<u64> {
    match constant {
        Constant::Small(value) => u64::try_from(*value).ok(),
        Constant::Big(_) => None,
    }
}

impl Lower<'_> {
    /// From here on metadata fields are kept on the stack: called where they are all 0 and no header is
    /// valid.
    pub(super) fn keep_fields(&mut self) {
        let facts = self.facts;
        let mut bytes = 0;
        for (index, field) in facts.fields.iter().enumerate() {
            let place = field.keepable.then(|| {
                let pieces = pieces(field.slot.width);
                let start = u32::next_multiple_of(bytes, pieces[0].0.bytes());
                bytes = start + pieces.iter().map(|(ty, _)| ty.bytes()).sum::<u32>();
                start
            });
            self.flow.places.push(place);
            if place.is_some() && field.slot.width <= 64 {
                self.known.fields.insert(index, Certain::Constant(0));
            }
        }
        let bytes = bytes.next_multiple_of(16);
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4);
        let slot = self.b.create_sized_stack_slot(data);
        self.flow.stack = Some(slot);
        let start = self.b.ins().stack_addr(I64, slot, 0);
        self.clear(start, 0, bytes);
        for (index, header) in self.program.headers.iter().enumerate() {
            if !header.metadata {
                self.known.set_valid(HeaderId(index as u32), false);
            }
        }
    }

    /// The kept field in which a slot lies, and the bits below; notes who looks at the header vector.
    fn kept(&self, slot: Slot) -> Option<(usize, u32)> {
        let (index, low) = self.facts.field(slot)?;
        match self.flow.places.get(index) {
            Some(Some(_)) => Some((index, low)),
            _ => {
                self.facts.fields[index].observed.set(true);
                None
            }
        }
    }

    /// A kept field's pieces: types and addresses.
    fn kept_pieces(&mut self, index: usize) -> Vec<(Type, Value)> {
        let (Some(slot), Some(start)) = (self.flow.stack, self.flow.places[index]) else {
            return Vec::new();
        };
        let pieces = pieces(self.facts.fields[index].slot.width).into_iter();
        pieces
            .map(|(ty, offset)| {
                let offset = (start + offset) as i32;
                (ty, self.b.ins().stack_addr(I64, slot, offset))
            })
            .collect()
    }

    /// A kept field's words.
    fn kept_words(&mut self, index: usize) -> Words {
        match self.known.fields.get(&index) {
            Some(Certain::Constant(value)) => return vec![self.int(*value)],
            Some(Certain::Same(value)) => return vec![*value],
            None => {}
        }
        let pieces = self.kept_pieces(index).into_iter();
        let words: Words = pieces
            .map(|(ty, place)| {
                let value = self.load(ty, place, 0);
                match ty {
                    I64 => value,
                    _ => self.b.ins().uextend(I64, value),
                }
            })
            .collect();
        if let [word] = words[..] {
            self.known.fields.insert(index, Certain::Same(word));
        }
        words
    }

    /// The value of a slot that lies in a kept field.
    pub(super) fn load_kept(&mut self, slot: Slot) -> Option<Words> {
        let (index, low) = self.kept(slot)?;
        let words = self.kept_words(index);
        if slot.width == self.facts.fields[index].slot.width {
            return Some(words);
        }
        let shifted = self.shift_right(&words, low, false);
        let value = self.resize(shifted, usize::from(slot.width).div_ceil(64));
        Some(self.modulo(value, slot.width.into()))
    }

    /// Writes a slot, if it lies in a kept field.
    pub(super) fn store_kept(&mut self, slot: Slot, words: &[Value]) -> bool {
        let Some((index, low)) = self.kept(slot) else {
            return false;
        };
        let field = self.facts.fields[index].slot;
        let count = usize::from(field.width).div_ceil(64);
        let mut value = self.modulo(words.to_vec(), slot.width.into());
        if slot.width != field.width {
            let old = self.kept_words(index);
            let ones = self.ones(slot.width.into(), count);
            let mask = self.shift_left(&ones, low);
            let mask = self.complement(&mask);
            let kept = self.bitwise(&old, &mask, |lower, a, b| lower.b.ins().band(a, b));
            let placed = self.resize(value, count);
            let placed = self.shift_left(&placed, low);
            value = self.bitwise(&kept, &placed, |lower, a, b| lower.b.ins().bor(a, b));
        }
        let value = self.resize(value, count);
        if let [word] = value[..] {
            let certain = match self.constant(word) {
                Some(constant) => Certain::Constant(constant),
                None => Certain::Same(word),
            };
            self.known.fields.insert(index, certain);
        }
        for ((ty, place), word) in self.kept_pieces(index).into_iter().zip(&value) {
            let narrow = match (ty, self.constant(*word)) {
                (I64, _) => *word,
                (_, Some(constant)) => self.b.ins().iconst(ty, constant as i64),
                _ => self.b.ins().ireduce(ty, *word),
            };
            self.store(narrow, place, 0);
        }
        if self.facts.fields[index].observed.get() {
            self.store_memory(self.phv, field, &value);
        }
        true
    }

    // Conditions.

    /// The outcome of a condition, where it is certain.
    pub(super) fn holds(&self, condition: &Bool) -> Option<bool> {
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

    /// The value of an expression that is a constant or an unsigned kept field, where it is certain.
    fn certain(&self, data: &Data) -> Option<u64> {
        match data {
            Data::Const(value) => word(value),
            Data::Field(slot) if !slot.signed => {
                let (index, low) = self.facts.field(*slot)?;
                let Certain::Constant(value) = self.known.fields.get(&index)? else {
                    return None;
                };
                Some(value >> low & u64::MAX >> (64 - slot.width))
            }
            _ => None,
        }
    }

    /// Takes the outcome of a condition for granted.
    pub(super) fn learn(&mut self, condition: &Bool, holds: bool) {
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

    /// A field is, or is not, equal to a value.
    fn learn_field(&mut self, slot: Slot, value: u64, equal: bool) {
        let Some((index, _)) = self.facts.field(slot) else {
            return;
        };
        let kept = matches!(self.flow.places.get(index), Some(Some(_)));
        if !kept
            || slot.signed
            || slot.width > 64
            || self.facts.fields[index].slot.width != slot.width
        {
            return;
        }
        let most = u64::MAX >> (64 - slot.width);
        match (equal, most) {
            (true, _) if value <= most => {
                self.known.fields.insert(index, Certain::Constant(value));
            }
            (false, 1) if value <= 1 => {
                self.known
                    .fields
                    .insert(index, Certain::Constant(1 - value));
            }
            _ => {}
        }
    }

    /// Nothing is certain any more of what an operation may write.
    pub(super) fn forget_written(&mut self, op: &Op) {
        use sluice_program::action::LValue;
        let mut slots = Vec::new();
        match op {
            Op::Move { to, .. } => slots.push(*to),
            Op::Assign(target, _)
            | Op::ExecuteMeter(_, _, target)
            | Op::RegisterRead(target, ..)
            | Op::Hash { target, .. }
            | Op::Random(target, ..) => match target {
                LValue::Field(slot) => slots.push(*slot),
                LValue::HeaderField(HeaderRef::Fixed(id), slot) => {
                    slots.push(slot.moved(self.program.header(*id).offset));
                }
                // A field of a header of a stack: no metadata.
                LValue::HeaderField(..) => {}
            },
            Op::MarkToDrop(copy) => {
                let standard = &self.program.standard_metadata;
                let (port, group) = copy.unwrap_or((standard.egress_spec, standard.mcast_grp));
                slots.push(port);
                slots.extend(group);
            }
            Op::AddHeader(_)
            | Op::RemoveHeader(_)
            | Op::AssignHeader(..)
            | Op::AssignUnion(..)
            | Op::AssignStack(..)
            | Op::AssignUnionStack(..)
            | Op::AssignVarbit(..)
            | Op::Push(..)
            | Op::Pop(..)
            | Op::PushUnion(..)
            | Op::PopUnion(..) => self.known.forget_validity(),
            _ => {}
        }
        slots.into_iter().for_each(|slot| self.forget_field(slot));
    }

    /// What loads gave is not held in registers any longer: it would be saved around a call.
    pub(super) fn forget_values(&mut self) {
        let fields = &mut self.known.fields;
        fields.retain(|_, certain| matches!(certain, Certain::Constant(_)));
    }

    /// Nothing is certain any more of a field.
    pub(super) fn forget_field(&mut self, slot: Slot) {
        if let Some((index, _)) = self.facts.field(slot) {
            self.known.fields.remove(&index);
        }
    }
}

/// Whether a program's ingress may ask for a clone, which is parsed without entering ingress.
pub(super) fn clones(program: &Program) -> bool {
    let ops = program.actions.iter().flat_map(|action| &action.ops);
    ops.chain(&program.deparser.ops)
        .any(|op| matches!(op, Op::Clone { .. }))
}
