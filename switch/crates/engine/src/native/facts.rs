// SPDX-License-Identifier: Apache-2.0
//! What is known while code is generated: which metadata fields are the function's own, and what each
//! place of the code may take for granted.
//!
//! In the function that parses a packet and runs ingress, metadata fields begin as 0 and are seen by
//! nobody else but where the program says so (egress, selectors, digests, field lists). They are
//! *kept*: along every edge of the code goes what is certain on it, values that fields have, registers
//! that hold them, and the validity of headers. Where edges meet, what is certain on all of them remains. A field that
//! is in a register on all of them is *near*: if it is read before the next call, the edges bring it along, so that
//! what a table's action writes is the next table's key without a way through memory. Other fields are read from memory
//! again. (If all were brought along wherever edges meet, that took a quarter of all instructions.) A field is written
//! only if somebody reads it from memory: the function is built twice, at first to find that out. A condition that is
//! decided by what is certain is not tested.

mod conditions;
mod unwritten;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Variable;
use sluice_program::expr::HeaderRef;
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
            headers: unwritten::named_headers(program),
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
        for slot in [standard.mcast_grp, standard.priority]
            .into_iter()
            .flatten()
        {
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

/// What is certain at a place of the code.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Values of kept fields of one word.
    fields: BTreeMap<usize, u64>,
    /// The words of other kept fields, least significant first, as far as they are at hand.
    words: BTreeMap<usize, Words>,
    /// Kept fields that are near: their variables ([`Flow`]) were written since the last call.
    near: BTreeSet<usize>,
    /// Headers that are valid, or are not.
    valid: BTreeMap<HeaderId, bool>,
    /// Bytes that the parser took so far.
    pub(super) parsed: Option<u64>,
    /// States of the parser that were entered at most, if that is bounded.
    pub(super) entered: Option<u64>,
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
        // What is at hand on all edges comes from a block before all of them.
        self.words
            .retain(|field, words| other.words.get(field) == Some(words));
        // Where most come with a constant, memory is as near.
        let heavier = if other.weight > self.weight {
            other
        } else {
            &*self
        };
        let constant = &heavier.fields;
        let near = self.near.iter().filter(|field| {
            let same = self.fields.get(field) == other.fields.get(field);
            other.near.contains(field) && (same || !constant.contains_key(field))
        });
        self.near = near.copied().collect();
        self.fields
            .retain(|field, value| other.fields.get(field) == Some(value));
        self.valid
            .retain(|header, valid| other.valid.get(header) == Some(valid));
        self.parsed = self.parsed.filter(|taken| other.parsed == Some(*taken));
        self.entered = self.entered.zip(other.entered).map(|(a, b)| a.max(b));
        self.weight += other.weight;
    }

    /// The value of a kept field, by its number.
    pub(super) fn field(&self, index: usize) -> Option<u64> {
        self.fields.get(&index).copied()
    }

    /// Nothing is in registers any more.
    pub(super) fn forget_words(&mut self) {
        self.words.clear();
        let constants = &self.fields;
        self.near.retain(|field| constants.contains_key(field));
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
    /// The words of each kept field, least significant first, as variables: always what the field is where they were
    /// written last, but used only near there. What would be far is read from memory again.
    variables: Vec<Vec<Variable>>,
    pub(super) incoming: BTreeMap<Block, Known>,
}

impl Lower<'_> {
    /// From here on metadata fields are kept: called where they are all 0 and no header is valid.
    pub(super) fn keep_fields(&mut self) {
        for (index, field) in self.facts.fields.iter().enumerate() {
            self.flow.kept.push(field.keepable);
            let words = u32::from(field.slot.width).div_ceil(64);
            let words = if field.keepable { words } else { 0 };
            let zero = self.b.ins().iconst(I64, 0);
            let variables = (0..words).map(|_| {
                let variable = self.b.declare_var(I64);
                self.b.def_var(variable, zero);
                variable
            });
            self.flow.variables.push(variables.collect());
            if field.keepable {
                self.known.near.insert(index);
            }
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
        let words = if self.known.near.contains(&index) {
            self.near_words(index)
        } else {
            field.reread.set(true);
            let words = if field.observed.get() {
                self.load_memory(self.phv, field.slot)
            } else {
                self.load_own(field.slot)
            };
            self.keep_near(index, &words);
            words
        };
        self.known.words.insert(index, words.clone());
        words
    }

    /// A kept field's words as registers that all ways to this place have.
    fn near_words(&mut self, index: usize) -> Words {
        let mut bits = u32::from(self.facts.fields[index].slot.width);
        let mut words = Words::new();
        for word in 0..self.flow.variables[index].len() {
            let value = self.b.use_var(self.flow.variables[index][word]);
            self.note_bits(value, bits.min(64));
            bits = bits.saturating_sub(64);
            words.push(value);
        }
        words
    }

    /// Has a kept field's words at hand where ways meet.
    fn keep_near(&mut self, index: usize, words: &[Value]) {
        for (variable, word) in self.flow.variables[index].iter().zip(words) {
            self.b.def_var(*variable, *word);
        }
        self.known.near.insert(index);
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
        self.keep_near(index, &value);
        self.store_field(index, &value);
        true
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
            self.known.near.remove(&index);
        }
    }
}

/// Whether a program's ingress may ask for a clone, which is parsed without entering ingress.
pub(super) fn clones(program: &Program) -> bool {
    let ops = program.actions.iter().flat_map(|action| &action.ops);
    ops.chain(&program.deparser.ops)
        .any(|op| matches!(op, Op::Clone { .. }))
}
