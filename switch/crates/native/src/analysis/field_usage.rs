// SPDX-License-Identifier: Apache-2.0
//! Records how a whole program uses metadata fields and headers. A compiled function may keep some fields in registers.
//! But a field that other code reads, such as another function or the runtime, must be in the header vector in memory.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use sluice_program::{CalculationInput, FieldSlot, HeaderId, Program};

use crate::analysis::calculation_input::{chooses_by_kept_fields, takes_kept_fields};

/// Size of the largest field that is kept in registers, in 64-bit words.
const MOST_WORDS: u16 = 4;

/// A metadata field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) slot: FieldSlot,
    /// Whether the field may be kept in registers. This requires that the field is 0 when parsing starts, and that only
    /// machine code writes the field.
    pub(crate) keepable: bool,
    /// Whether some function that does not keep the field in registers reads it from the header vector.
    pub(crate) observed: Cell<bool>,
    /// Whether the function that keeps the field in registers also loads it from memory somewhere.
    pub(crate) reread: Cell<bool>,
}

/// Usage of fields and headers over a whole program. All functions that are built from the program share this value.
#[derive(Debug)]
pub(crate) struct FieldUsage {
    /// Metadata fields by offset. No two fields share a byte, and the unused bits of their bytes are always 0.
    pub(crate) fields: Vec<Field>,
    /// Whether some code uses a metadata instance as a whole, like a header.
    pub(crate) whole: Cell<bool>,
    /// Byte ranges of the headers with a `varbit` field.
    pub(crate) varbit: Vec<Range<u32>>,
    /// Headers outside of stacks and unions, by offset. For each header: byte range, id, and whether code reads the
    /// header where the header may be invalid.
    pub(crate) headers: Vec<(Range<u32>, HeaderId, Cell<bool>)>,
    /// Whether metadata fields may be kept in registers at all.
    pub(crate) keep: Cell<bool>,
    /// Whether `reread` has its final value for all fields. True after the first build.
    pub(crate) pruned: Cell<bool>,
}

impl FieldUsage {
    pub(crate) fn new(program: &Program) -> Self {
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
        let metered: Vec<FieldSlot> = metered.map(|(_, slot)| slot).collect();
        for slot in given.iter().flatten().chain(preserved).chain(&metered) {
            if let Some((index, _)) = facts.field(*slot) {
                facts.fields[index].keepable = false;
            }
        }
        facts.observe_inputs(program);
        facts
    }

    /// Marks as observed the fields that runtime functions and the traffic manager read.
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

    /// Returns the number of the metadata field that contains a slot, and how many bits of the field lie below the
    /// slot.
    pub(crate) fn field(&self, slot: FieldSlot) -> Option<(usize, u32)> {
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
    pub(crate) fn is_beside_varbit(&self, slot: FieldSlot) -> bool {
        self.varbit.iter().any(|header| header.contains(&slot.byte))
    }

    /// Returns whether a slot is a whole metadata field.
    pub(crate) fn is_field(&self, slot: FieldSlot) -> bool {
        self.field(slot)
            .is_some_and(|(index, _)| self.fields[index].slot.width == slot.width)
    }

    /// Returns the metadata fields that some code reads from the header vector without keeping them in registers.
    /// Returns all fields if some code uses a metadata instance as a whole.
    pub(crate) fn observed(&self) -> Vec<FieldSlot> {
        let fields = self.fields.iter();
        let observed = fields.filter(|field| self.whole.get() || field.observed.get());
        observed.map(|field| field.slot).collect()
    }

    /// Returns whether some code reads a metadata field from the header vector without keeping it in registers.
    pub(crate) fn is_observed(&self, slot: FieldSlot) -> bool {
        let field = self.index(slot).map(|index| &self.fields[index]);
        self.whole.get() || field.is_some_and(|field| field.observed.get())
    }

    /// Returns the number of the metadata field that contains a slot.
    pub(crate) fn index(&self, slot: FieldSlot) -> Option<usize> {
        self.field(slot).map(|(index, _)| index)
    }

    /// Marks the field or header that contains a slot as read from the header vector.
    pub(crate) fn observe(&self, slot: FieldSlot) {
        if let Some((_, _, read)) = self.named_header(slot) {
            read.set(true);
        }
        if let Some((index, _)) = self.field(slot) {
            self.fields[index].observed.set(true);
        }
    }

    /// Returns the header outside of stacks and unions that contains a slot.
    pub(crate) fn named_header(
        &self,
        slot: FieldSlot,
    ) -> Option<&(Range<u32>, HeaderId, Cell<bool>)> {
        let after = self
            .headers
            .partition_point(|(bytes, ..)| bytes.start <= slot.byte);
        let header = &self.headers[after.checked_sub(1)?];
        header.0.contains(&slot.byte).then_some(header)
    }
}

/// Returns the headers outside of stacks and unions, by offset, and marks them as not read. Code refers to these
/// headers by constant ids, so each read can be recorded when the code is generated.
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
