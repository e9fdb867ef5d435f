// SPDX-License-Identifier: Apache-2.0
//! Match by priority. The matching entry with the highest priority wins. If priorities are equal, the entry that
//! was inserted first wins. The classifier finds the entry's slot.

use std::ops::Range;
use std::sync::Arc;

use sluice_classifier::{Classifier, MAX_KEY_BYTES, Precedence, Rule};
use sluice_program::{MatchKind, Table};

use super::linear::LinearSearch;
use crate::slab::{Record, Slab};

#[derive(Debug)]
pub(crate) enum Ordered {
    Classified(Classifier),
    /// For keys that are longer than the classifier supports.
    Linear(LinearSearch),
}

impl Ordered {
    pub(super) fn new(table: &Table, slab: &Arc<Slab>) -> Self {
        let ranges = table.key.iter().filter(|key| key.kind == MatchKind::Range);
        let ranges: Vec<Range<usize>> = ranges
            .map(|key| key.offset..key.offset + key.bytes())
            .collect();
        if table.key_bytes <= MAX_KEY_BYTES {
            Self::Classified(Classifier::new(table.key_bytes, &ranges))
        } else {
            Self::Linear(LinearSearch::new(ranges, slab))
        }
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        match self {
            Self::Linear(linear) => linear.insert(entry),
            Self::Classified(classifier) => {
                classifier.insert(rule(entry), precedence(entry), entry.slot());
            }
        }
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        match self {
            Self::Linear(linear) => linear.remove(entry),
            Self::Classified(classifier) => {
                classifier.remove(rule(entry), precedence(entry));
            }
        }
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        match self {
            Self::Linear(linear) => linear.lookup(key),
            Self::Classified(classifier) => classifier.lookup(key),
        }
    }
}

fn rule(entry: Record<'_>) -> Rule<'_> {
    Rule {
        value: entry.value(),
        bounds: entry.second(),
    }
}

fn precedence(entry: Record<'_>) -> Precedence {
    Precedence {
        priority: entry.rank(),
        sequence: entry.sequence(),
    }
}
