// SPDX-License-Identifier: Apache-2.0
//! Values that are certain at a point of the code.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::{Block, Value};
use cranelift_frontend::Variable;
use sluice_program::HeaderId;

/// A number in 64-bit words, least significant first.
pub(crate) type Words = Vec<Value>;

/// Facts that are certain at a point of the code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Kept fields of one word whose value is a constant here.
    pub(crate) fields: BTreeMap<usize, u64>,
    /// Words of other kept fields that are in registers here, least significant first.
    pub(crate) words: BTreeMap<usize, Words>,
    /// Kept fields that are near: since the last call, their variables ([`Flow`]) were written on all paths to here.
    pub(crate) near: BTreeSet<usize>,
    /// Headers whose validity is certain.
    pub(crate) valid: BTreeMap<HeaderId, bool>,
    /// Bytes that the parser has consumed.
    pub(crate) parsed: Option<u64>,
    /// Upper bound of the number of parser states entered, if there is one.
    pub(crate) entered: Option<u64>,
    /// Estimated likelihood that a packet reaches this place.
    pub(crate) weight: f64,
}

impl Known {
    /// Returns the facts of a place that all packets reach: nothing is certain.
    pub(crate) fn of_all() -> Self {
        Self {
            weight: 1.0,
            ..Self::default()
        }
    }

    /// Keeps only the facts that are also certain in `other`, and adds the weights.
    pub(crate) fn meet(&mut self, other: &Self) {
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
    pub(crate) fn field(&self, index: usize) -> Option<u64> {
        self.fields.get(&index).copied()
    }

    /// Forgets which fields are in registers, as after a call. Constants remain near.
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

/// Kept fields of a function, and the facts on edges to blocks that have not begun.
#[derive(Default)]
pub(crate) struct Flow {
    /// Whether each metadata field is kept. Empty in functions that keep none.
    pub(crate) kept: Vec<bool>,
    /// Variables for the words of each kept field, least significant first. They hold the field's value as of their
    /// last write. They are used only while the field is near; otherwise the field is loaded from memory.
    pub(crate) variables: Vec<Vec<Variable>>,
    /// FieldUsage that are certain on all edges so far to each block that has not begun.
    pub(crate) incoming: BTreeMap<Block, Known>,
}
