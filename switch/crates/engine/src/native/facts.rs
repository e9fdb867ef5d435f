// SPDX-License-Identifier: Apache-2.0
//! What is known while code is generated: which metadata fields are the function's own, and what each
//! place of the code may take for granted.
//!
//! In the function that parses a packet and runs ingress, metadata fields begin as 0 and are seen by
//! nobody else but where the program says so (egress, selectors, digests, field lists). They are
//! *kept*: along every edge of the code goes what is certain on it, values that fields have, registers
//! that hold them, and the validity of headers. Where edges meet, what is certain on all of them remains; other
//! fields are read from memory again. (As variables of the function they would be copied wherever edges meet,
//! which took a quarter of all instructions.) A field is written only if somebody reads it from
//! memory: the function is built twice, at first to find that out. A condition that is decided by what
//! is certain is not tested.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cranelift_codegen::ir::{Block, InstBuilder, Value};
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
    /// It may be kept: it is 0 when a packet is parsed, and nothing but machine code writes it.
    keepable: bool,
    /// Somebody else reads it in memory.
    observed: Cell<bool>,
    /// The function that keeps it reads it from memory.
    reread: Cell<bool>,
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
    /// Headers that can be named in code, by their place; and whether one is read where it may not be valid.
    headers: Vec<(Range<u32>, HeaderId, Cell<bool>)>,
    /// Fields may be kept at all.
    pub(super) keep: Cell<bool>,
    /// It is known which kept fields are read from memory.
    pub(super) pruned: Cell<bool>,
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
                    reread: Cell::new(false),
                })
            })
            .collect();
        fields.sort_by_key(|field| field.slot.bit());
        let packet_headers = program.headers.iter().filter(|header| !header.metadata);
        let varbit = packet_headers
            .filter(|header| program.header_type(header.ty).varbit.is_some())
            .map(|header| header.offset..header.offset + header.bytes);
        let mut facts = Self {
            headers: named_headers(program),
            fields,
            whole: Cell::new(false),
            varbit: varbit.collect(),
            keep: Cell::new(true),
            pruned: Cell::new(false),
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

    /// The metadata fields at which somebody looks in the header vector: all of them where an instance is taken as a
    /// whole.
    pub(super) fn observed(&self) -> Vec<Slot> {
        let fields = self.fields.iter();
        let observed = fields.filter(|field| self.whole.get() || field.observed.get());
        observed.map(|field| field.slot).collect()
    }

    /// Whether somebody looks at a metadata field in the header vector.
    pub(super) fn is_observed(&self, slot: Slot) -> bool {
        let field = self.index(slot).map(|index| &self.fields[index]);
        self.whole.get() || field.is_some_and(|field| field.observed.get())
    }

    /// Bytes of the header vector, first and end, in order, that may be read before they are written; headers with a
    /// `varbit` field are not among them.
    pub(super) fn read_unwritten(&self, program: &Program) -> Vec<(u32, u32)> {
        let all = self.whole.get() || !self.pruned.get();
        let fields = self.fields.iter();
        let fields = fields.filter(|field| all || field.observed.get() || field.reread.get());
        let fields =
            fields.map(|field| (field.slot.byte, field.slot.byte + whole_bytes(field.slot)));
        let named = self.headers.iter();
        let written = named.filter(|(_, _, read)| !read.get() && !all);
        let written: BTreeSet<HeaderId> = written.map(|(_, id, _)| *id).collect();
        let headers = program.headers.iter().zip(0..);
        let headers = headers.filter(|(header, id)| {
            let plain = program.header_type(header.ty).varbit.is_none();
            !header.metadata && plain && header.bytes != 0 && !written.contains(&HeaderId(*id))
        });
        let headers = headers.map(|(header, _)| (header.offset, header.offset + header.bytes));
        let mut runs: Vec<(u32, u32)> = fields.chain(headers).collect();
        runs.sort_unstable();
        runs
    }

    /// The header outside of stacks and unions in which a slot lies.
    fn named_header(&self, slot: Slot) -> Option<&(Range<u32>, HeaderId, Cell<bool>)> {
        let after = self
            .headers
            .partition_point(|(bytes, ..)| bytes.start <= slot.byte);
        let header = &self.headers[after.checked_sub(1)?];
        header.0.contains(&slot.byte).then_some(header)
    }

    /// The number of the metadata field in which a slot lies.
    pub(super) fn index(&self, slot: Slot) -> Option<usize> {
        self.field(slot).map(|(index, _)| index)
    }

    /// Somebody looks at a slot in the header vector.
    fn observe(&self, slot: Slot) {
        if let Some((_, _, read)) = self.named_header(slot) {
            read.set(true);
        }
        if let Some((index, _)) = self.field(slot) {
            self.fields[index].observed.set(true);
        }
    }
}

/// Bytes in which a field lies.
fn whole_bytes(slot: Slot) -> u32 {
    (u32::from(slot.lead) + u32::from(slot.width)).div_ceil(8)
}

/// The headers outside of stacks and unions, of which code always says which one it means; of them none is read yet.
fn named_headers(program: &Program) -> Vec<(Range<u32>, HeaderId, Cell<bool>)> {
    let stacked = program.stacks.iter().flat_map(|stack| &stack.headers);
    let stacked: BTreeSet<HeaderId> = stacked.copied().collect();
    let headers = program.headers.iter().zip(0..);
    let named = headers.filter(|(header, id)| {
        !header.metadata && header.union.is_none() && !stacked.contains(&HeaderId(*id))
    });
    let mut named: Vec<_> = named
        .map(|(header, id)| {
            let bytes = header.offset..header.offset + header.bytes;
            (bytes, HeaderId(id), Cell::new(false))
        })
        .collect();
    named.sort_by_key(|(bytes, ..)| bytes.start);
    named
}

/// What is certain at a place of the code.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Values of kept fields of one word.
    fields: BTreeMap<usize, u64>,
    /// The words of other kept fields, least significant first, as far as they are at hand.
    words: BTreeMap<usize, Words>,
    /// Headers that are valid, or are not.
    valid: BTreeMap<HeaderId, bool>,
    /// Bytes that the parser took so far.
    pub(super) parsed: Option<u64>,
    /// How likely it is that a packet comes here, as a guess.
    pub(super) weight: f64,
}

impl Known {
    /// Where all packets come, and nothing is certain.
    pub(super) fn of_all() -> Self {
        Self {
            weight: 1.0,
            ..Self::default()
        }
    }

    /// What is also certain in `other`.
    pub(super) fn meet(&mut self, other: &Self) {
        self.fields
            .retain(|field, value| other.fields.get(field) == Some(value));
        // What is at hand on all edges comes from a block before all of them.
        self.words
            .retain(|field, words| other.words.get(field) == Some(words));
        self.valid
            .retain(|header, valid| other.valid.get(header) == Some(valid));
        self.parsed = self.parsed.filter(|taken| other.parsed == Some(*taken));
        self.weight += other.weight;
    }

    /// The value of a kept field, by its number.
    pub(super) fn field(&self, index: usize) -> Option<u64> {
        self.fields.get(&index).copied()
    }

    /// Nothing is in registers any more.
    pub(super) fn forget_words(&mut self) {
        self.words.clear();
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

/// What kept fields are, and what is certain on edges to blocks that have not begun.
#[derive(Default)]
pub(super) struct Flow {
    /// Which metadata fields are kept. Nothing at all in functions that keep none.
    kept: Vec<bool>,
    pub(super) incoming: BTreeMap<Block, Known>,
}

/// A constant as an unsigned word.
fn word(constant: &Constant) -> Option<u64> {
    match constant {
        Constant::Small(value) => u64::try_from(*value).ok(),
        Constant::Big(_) => None,
    }
}

impl Lower<'_> {
    /// From here on metadata fields are kept: called where they are all 0 and no header is valid.
    pub(super) fn keep_fields(&mut self) {
        for (index, field) in self.facts.fields.iter().enumerate() {
            self.flow.kept.push(field.keepable);
            if field.keepable && field.slot.width <= 64 {
                self.known.fields.insert(index, 0);
            }
        }
        for (index, header) in self.program.headers.iter().enumerate() {
            if !header.metadata {
                self.known.set_valid(HeaderId(index as u32), false);
            }
        }
    }

    /// The kept field in which a slot lies, and the bits below; notes who looks at the header vector.
    fn kept(&self, slot: Slot) -> Option<(usize, u32)> {
        let (index, low) = self.facts.field(slot)?;
        if self.keeps(index) {
            return Some((index, low));
        }
        self.facts.fields[index].observed.set(true);
        None
    }

    /// Whether a metadata field is kept in this function.
    fn keeps(&self, index: usize) -> bool {
        self.flow.kept.get(index) == Some(&true)
    }

    /// Notes that a slot which is not kept is looked at in the header vector.
    pub(super) fn note_load(&self, slot: Slot) {
        self.kept(slot);
    }

    /// Notes that a header's bytes are looked at, whether it is valid or not.
    pub(super) fn note_read(&self, slot: Slot) {
        if let Some((_, id, read)) = self.facts.named_header(slot)
            && self.known.valid(*id) != Some(true)
        {
            read.set(true);
        }
    }

    /// Whether a slot lies in a kept field.
    pub(super) fn is_kept(&self, slot: Slot) -> bool {
        let index = self.facts.index(slot);
        index.is_some_and(|index| self.keeps(index))
    }

    /// A kept field's words.
    fn kept_words(&mut self, index: usize) -> Words {
        if let Some(value) = self.known.field(index) {
            return vec![self.int(value)];
        }
        if let Some(words) = self.known.words.get(&index) {
            return words.clone();
        }
        let field = &self.facts.fields[index];
        field.reread.set(true);
        let words = if field.observed.get() {
            self.load_memory(self.phv, field.slot)
        } else {
            self.load_own(field.slot)
        };
        self.known.words.insert(index, words.clone());
        words
    }

    /// Writes a kept field, if somebody reads it from memory.
    fn store_field(&mut self, index: usize, words: &[Value]) {
        let field = &self.facts.fields[index];
        if field.observed.get() {
            self.store_memory(self.phv, field.slot, words);
        } else if !self.facts.pruned.get() || field.reread.get() {
            self.store_own(field.slot, words);
        }
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
        let certain = match value[..] {
            [word] => self.constant(word),
            _ => None,
        };
        self.known.words.remove(&index);
        match certain {
            Some(constant) => {
                if self.known.fields.insert(index, constant) == Some(constant) {
                    return true;
                }
            }
            None => {
                self.known.fields.remove(&index);
                self.known.words.insert(index, value.clone());
            }
        }
        self.store_field(index, &value);
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
                let value = self.known.field(index)?;
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

    /// Nothing is certain any more of a field.
    pub(super) fn forget_field(&mut self, slot: Slot) {
        if let Some((index, _)) = self.facts.field(slot) {
            self.known.fields.remove(&index);
            self.known.words.remove(&index);
        }
    }
}

/// Whether a program's ingress may ask for a clone, which is parsed without entering ingress.
pub(super) fn clones(program: &Program) -> bool {
    let ops = program.actions.iter().flat_map(|action| &action.ops);
    ops.chain(&program.deparser.ops)
        .any(|op| matches!(op, Op::Clone { .. }))
}
