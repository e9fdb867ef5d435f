// SPDX-License-Identifier: Apache-2.0
//! Keeps metadata fields in registers, and tracks the facts that are certain on each edge of the code.
//!
//! In the function that parses a packet and runs ingress, metadata fields start as 0. The program says where other code
//! reads metadata fields: in egress, selectors, digests and field lists. So the function *keeps* metadata fields: it
//! has them in registers, and stores to memory only those that other code reads.
//!
//! For each edge of the code, the facts that are certain there are recorded: values of fields, registers that hold
//! fields, and validity of headers. Where edges meet, only the facts that are certain on all of them remain.
//!
//! A kept field that is in a register on all edges is *near*. If code reads a near field before the next call, the
//! edges pass the field in a register. For example, the action of one table writes a value that is the key of the next
//! table. Then the next table needs no load. Fields that are not near are loaded from memory again. (An earlier version
//! passed all kept fields on all edges. Passing fields took a quarter of all instructions.)
//!
//! A kept field is stored only if some code loads it. The first build of the function shows which fields are loaded, so
//! the function is built twice. A condition whose outcome is certain is not tested.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use sluice_program::expr::HeaderRef;
use sluice_program::{FieldSlot, HeaderId, Op};

use crate::analysis::known::Words;
use crate::codegen::lower::Lower;

impl Lower<'_> {
    /// Begins to keep metadata fields in registers. Must be called where all metadata is 0 and no header is valid.
    pub(crate) fn keep_fields(&mut self) {
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

    /// Returns the same as [`field`](crate::analysis::field_usage::FieldUsage::field) if the function keeps the field.
    /// Otherwise returns `None` and marks the field as read from the header vector.
    pub(crate) fn kept(&self, slot: FieldSlot) -> Option<(usize, u32)> {
        let (index, low) = self.facts.field(slot)?;
        if self.keeps(index) {
            return Some((index, low));
        }
        self.facts.fields[index].observed.set(true);
        None
    }

    /// Returns whether this function keeps a metadata field in registers.
    pub(crate) fn keeps(&self, index: usize) -> bool {
        self.flow.kept.get(index) == Some(&true)
    }

    /// Records that a slot is read from the header vector. Does nothing if the slot lies in a kept field.
    pub(crate) fn note_load(&self, slot: FieldSlot) {
        self.kept(slot);
    }

    /// Records that a header's bytes are read where the header may be invalid. Does nothing if the header is certainly
    /// valid here.
    pub(crate) fn note_read(&self, slot: FieldSlot) {
        if let Some((_, id, read)) = self.facts.named_header(slot)
            && self.known.valid(*id) != Some(true)
        {
            read.set(true);
        }
    }

    /// Returns whether a slot lies in a kept field.
    pub(crate) fn is_kept(&self, slot: FieldSlot) -> bool {
        let index = self.facts.index(slot);
        index.is_some_and(|index| self.keeps(index))
    }

    /// Returns a kept field's words. If the field is neither constant nor near, loads it from memory.
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

    /// Returns the words of a near field. Reads them from the field's variables, which are in registers.
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

    /// Writes a kept field's words to its variables. The field is near from here on.
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

    /// Returns the value of a slot if the slot lies in a kept field, else `None`.
    pub(crate) fn load_kept(&mut self, slot: FieldSlot) -> Option<Words> {
        let (index, low) = self.kept(slot)?;
        let words = self.kept_words(index);
        if slot.width == self.facts.fields[index].slot.width {
            return Some(words);
        }
        let shifted = self.shift_right(&words, low, false);
        let value = self.resize(shifted, usize::from(slot.width).div_ceil(64));
        Some(self.modulo(value, slot.width.into()))
    }

    /// Writes words to a slot if the slot lies in a kept field. Returns whether it lies in one.
    pub(crate) fn store_kept(&mut self, slot: FieldSlot, words: &[Value]) -> bool {
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

    /// Forgets the facts that may no longer hold after an operation.
    pub(crate) fn forget_written(&mut self, op: &Op) {
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
                // The target is a field of a stack element, so no metadata changes.
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
    pub(crate) fn forget_field(&mut self, slot: FieldSlot) {
        if let Some((index, _)) = self.facts.field(slot) {
            self.known.fields.remove(&index);
            self.known.words.remove(&index);
            self.known.near.remove(&index);
        }
    }
}
