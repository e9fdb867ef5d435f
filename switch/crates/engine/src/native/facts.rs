// SPDX-License-Identifier: Apache-2.0
//! Facts that code generation uses: which metadata fields a function keeps, and what is certain at each place of the
//! code.
//!
//! In the function that parses a packet and runs ingress, metadata fields start as 0. No other code reads them, except
//! where the program says so (egress, selectors, digests, field lists). They are *kept*: each edge of the code carries
//! the facts that are certain on it. These are values of fields, registers that hold fields, and the validity of
//! headers. Where edges meet, the facts that are certain on all of them remain.
//!
//! A kept field that is in a register on all edges is *near*. If it is read before the next call, the edges pass it in
//! a register, so that a value that one table's action writes becomes the next table's key without a load. Fields that
//! are not near are loaded from memory again. (Passing all kept fields on all edges took a quarter of all
//! instructions.)
//!
//! A kept field is stored only if it is loaded somewhere. The function is built twice; the first build finds that out.
//! A condition whose outcome is certain is not tested.

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

/// Fields of more 64-bit words than this are not kept.
const MOST_WORDS: u16 = 4;

/// A metadata field.
#[derive(Debug)]
struct Field {
    slot: Slot,
    /// May be kept: it is 0 when a packet is parsed, and only machine code writes it.
    keepable: bool,
    /// Code that does not keep it reads it from the header vector.
    observed: Cell<bool>,
    /// The function that keeps it loads it from memory.
    reread: Cell<bool>,
}

/// Facts about a whole program, shared by the functions that are built from it.
#[derive(Debug)]
pub(super) struct Facts {
    /// Metadata fields by offset. No two fields share a byte, and the unused bits of their bytes are always 0.
    fields: Vec<Field>,
    /// Some code uses a metadata instance as a whole, as if it were a header.
    pub(super) whole: Cell<bool>,
    /// Byte ranges of the headers with a `varbit` field.
    varbit: Vec<Range<u32>>,
    /// Headers outside of stacks and unions, by offset: byte range, id, and whether the header is read where it may be
    /// invalid.
    headers: Vec<(Range<u32>, HeaderId, Cell<bool>)>,
    /// Cleared if the program's metadata must all stay in memory.
    pub(super) keep: Cell<bool>,
    /// Set after the first build, when `reread` is known for all fields.
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

    /// Marks the fields that runtime functions and the traffic manager read.
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

    /// Returns the number of the metadata field that contains a slot, and the number of its bits below the slot.
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

    /// Returns whether a slot lies in a header with a `varbit` field.
    pub(super) fn is_beside_varbit(&self, slot: Slot) -> bool {
        self.varbit.iter().any(|header| header.contains(&slot.byte))
    }

    /// Returns whether a slot is a whole metadata field.
    pub(super) fn is_field(&self, slot: Slot) -> bool {
        self.field(slot)
            .is_some_and(|(index, _)| self.fields[index].slot.width == slot.width)
    }

    /// Returns the metadata fields that are read from the header vector by code that does not keep them: all fields
    /// if some code uses a metadata instance as a whole.
    pub(super) fn observed(&self) -> Vec<Slot> {
        let fields = self.fields.iter();
        let observed = fields.filter(|field| self.whole.get() || field.observed.get());
        observed.map(|field| field.slot).collect()
    }

    /// Returns whether code that does not keep a metadata field reads it from the header vector.
    pub(super) fn is_observed(&self, slot: Slot) -> bool {
        let field = self.index(slot).map(|index| &self.fields[index]);
        self.whole.get() || field.is_some_and(|field| field.observed.get())
    }

    /// Returns the number of the metadata field that contains a slot.
    pub(super) fn index(&self, slot: Slot) -> Option<usize> {
        self.field(slot).map(|(index, _)| index)
    }

    /// Marks the field or header that contains a slot as read from the header vector.
    fn observe(&self, slot: Slot) {
        if let Some((_, _, read)) = self.named_header(slot) {
            read.set(true);
        }
        if let Some((index, _)) = self.field(slot) {
            self.fields[index].observed.set(true);
        }
    }
}

/// Facts that are certain at a place of the code.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Kept fields of one word whose value is a constant here.
    fields: BTreeMap<usize, u64>,
    /// Words of other kept fields that are in registers here, least significant first.
    words: BTreeMap<usize, Words>,
    /// Kept fields that are near: since the last call, their variables ([`Flow`]) were written on all paths to here.
    near: BTreeSet<usize>,
    /// Headers whose validity is certain.
    valid: BTreeMap<HeaderId, bool>,
    /// Bytes that the parser has consumed.
    pub(super) parsed: Option<u64>,
    /// Upper bound of the number of parser states entered, if there is one.
    pub(super) entered: Option<u64>,
    /// Estimated likelihood that a packet reaches this place.
    pub(super) weight: f64,
}

impl Known {
    /// Returns the facts of a place that all packets reach: nothing is certain.
    pub(super) fn of_all() -> Self {
        Self {
            weight: 1.0,
            ..Self::default()
        }
    }

    /// Keeps only the facts that are also certain in `other`, and adds the weights.
    pub(super) fn meet(&mut self, other: &Self) {
        // Words that are the same values on all edges are defined in a block that dominates the edges.
        self.words
            .retain(|field, words| other.words.get(field) == Some(words));
        // If the more likely path has a constant that the other has not, passing the field costs as much as loading it.
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

    /// Returns the value of a kept field, by its number, if it is a constant here.
    pub(super) fn field(&self, index: usize) -> Option<u64> {
        self.fields.get(&index).copied()
    }

    /// Forgets which fields are in registers, as after a call. Constants remain near.
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

    /// Forgets the validity of all headers.
    pub(super) fn forget_validity(&mut self) {
        self.valid.clear();
    }
}

/// Kept fields of a function, and the facts on edges to blocks that have not begun.
#[derive(Default)]
pub(super) struct Flow {
    /// Whether each metadata field is kept. Empty in functions that keep none.
    kept: Vec<bool>,
    /// Variables for the words of each kept field, least significant first. They hold the field's value as of their
    /// last write. They are used only while the field is near; otherwise the field is loaded from memory.
    variables: Vec<Vec<Variable>>,
    /// Facts that are certain on all edges so far to each block that has not begun.
    pub(super) incoming: BTreeMap<Block, Known>,
}

impl Lower<'_> {
    /// Begins to keep metadata fields. Must be called where they are all 0 and no header is valid.
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

    /// As [`Facts::field`], for kept fields. A field that is not kept is marked as read from the header vector.
    fn kept(&self, slot: Slot) -> Option<(usize, u32)> {
        let (index, low) = self.facts.field(slot)?;
        if self.keeps(index) {
            return Some((index, low));
        }
        self.facts.fields[index].observed.set(true);
        None
    }

    /// Returns whether this function keeps a metadata field.
    fn keeps(&self, index: usize) -> bool {
        self.flow.kept.get(index) == Some(&true)
    }

    /// Notes that a slot is read from the header vector, unless it is kept.
    pub(super) fn note_load(&self, slot: Slot) {
        self.kept(slot);
    }

    /// Notes that a header's bytes are read, unless the header is certainly valid here.
    pub(super) fn note_read(&self, slot: Slot) {
        if let Some((_, id, read)) = self.facts.named_header(slot)
            && self.known.valid(*id) != Some(true)
        {
            read.set(true);
        }
    }

    /// Returns whether a slot lies in a kept field.
    pub(super) fn is_kept(&self, slot: Slot) -> bool {
        let index = self.facts.index(slot);
        index.is_some_and(|index| self.keeps(index))
    }

    /// Returns a kept field's words. Loads them if the field is neither constant nor near.
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

    /// Returns the words of a near field from its variables.
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

    /// Writes a kept field's words to its variables: the field is near from here on.
    fn keep_near(&mut self, index: usize, words: &[Value]) {
        for (variable, word) in self.flow.variables[index].iter().zip(words) {
            self.b.def_var(*variable, *word);
        }
        self.known.near.insert(index);
    }

    /// Stores a kept field to memory, if some code loads it.
    fn store_field(&mut self, index: usize, words: &[Value]) {
        let field = &self.facts.fields[index];
        if field.observed.get() {
            self.store_memory(self.phv, field.slot, words);
        } else if !self.facts.pruned.get() || field.reread.get() {
            self.store_own(field.slot, words);
        }
    }

    /// Returns the value of a slot that lies in a kept field, else `None`.
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

    /// Writes a slot if it lies in a kept field, and returns whether it does.
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

    /// Forgets the facts that an operation may change.
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
                // A field in a header of a stack is not metadata.
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

    /// Forgets the value of a field.
    pub(super) fn forget_field(&mut self, slot: Slot) {
        if let Some((index, _)) = self.facts.field(slot) {
            self.known.fields.remove(&index);
            self.known.words.remove(&index);
            self.known.near.remove(&index);
        }
    }
}

/// Returns whether a program may request clones. A clone is parsed without entering ingress.
pub(super) fn clones(program: &Program) -> bool {
    let ops = program.actions.iter().flat_map(|action| &action.ops);
    ops.chain(&program.deparser.ops)
        .any(|op| matches!(op, Op::Clone { .. }))
}
