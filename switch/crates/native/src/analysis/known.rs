// SPDX-License-Identifier: Apache-2.0
//! Tracks the facts that are certain at a point of the code: values of fields, validity of headers, and progress of the
//! parser.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::{Block, Value};
use cranelift_frontend::Variable;
use sluice_program::HeaderId;

/// A number in 64-bit words, least significant first.
pub(crate) type Words = Vec<Value>;

/// Facts that are certain at a point of the code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Values of one-word fields that are kept in registers and have a constant value here, by field number.
    pub(crate) fields: BTreeMap<usize, u64>,
    /// Words of other fields that are in registers here, least significant first, by field number.
    pub(crate) words: BTreeMap<usize, Words>,
    /// Near fields: kept fields whose variables ([`Flow`]) were written after the last call, on every path to this
    /// point.
    pub(crate) near: BTreeSet<usize>,
    /// Headers whose validity is certain.
    pub(crate) valid: BTreeMap<HeaderId, bool>,
    /// Number of bytes that the parser has consumed. `None` if unknown.
    pub(crate) parsed: Option<u64>,
    /// Upper bound of the number of parser states that the packet has entered. `None` if unknown.
    pub(crate) entered: Option<u64>,
    /// Estimated likelihood that a packet reaches this point.
    pub(crate) weight: f64,
}

impl Known {
    /// Returns the facts at a point that all packets reach and where nothing is certain.
    pub(crate) fn of_all() -> Self {
        Self {
            weight: 1.0,
            ..Self::default()
        }
    }

    /// Keeps only the facts that are also certain in `other`. Adds the weight of `other`.
    pub(crate) fn meet(&mut self, other: &Self) {
        // If both edges have the same words, the words were computed in a block that dominates both edges. So the words
        // can be used where the edges meet.
        self.words
            .retain(|field, words| other.words.get(field) == Some(words));
        // A field is not near if it has a constant value only on the more likely edge. That edge would have to write
        // the constant to a register, which costs as much as loading the field later.
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

    /// Returns the value of the kept field with this number, if it is a constant here.
    pub(crate) fn field(&self, index: usize) -> Option<u64> {
        self.fields.get(&index).copied()
    }

    /// Forgets which fields are in registers. Needed after a call, which overwrites registers. Fields with a constant
    /// value remain near, because the constant can be loaded again.
    pub(crate) fn forget_words(&mut self) {
        self.words.clear();
        let constants = &self.fields;
        self.near.retain(|field| constants.contains_key(field));
    }

    pub(crate) fn valid(&self, header: HeaderId) -> Option<bool> {
        self.valid.get(&header).copied()
    }

    pub(crate) fn set_valid(&mut self, header: HeaderId, valid: bool) {
        self.valid.insert(header, valid);
    }

    pub(crate) fn forget_valid(&mut self, header: HeaderId) {
        self.valid.remove(&header);
    }

    /// Forgets the validity of all headers.
    pub(crate) fn forget_validity(&mut self) {
        self.valid.clear();
    }
}

/// Metadata fields that a function keeps in registers, and the facts on edges to blocks for which no code was generated
/// yet.
#[derive(Default)]
pub(crate) struct Flow {
    /// For each metadata field, whether the function keeps the field in registers. Empty if the function keeps no
    /// fields.
    pub(crate) kept: Vec<bool>,
    /// Variables for the words of each kept field, least significant first. A variable holds the last value that the
    /// code wrote to it. This value may be out of date while the field is not near ([`Known::near`]). Then the code
    /// loads the field from memory instead.
    pub(crate) variables: Vec<Vec<Variable>>,
    /// For each block for which no code was generated yet: the facts that are certain on all edges to the block so far.
    pub(crate) incoming: BTreeMap<Block, Known>,
}
