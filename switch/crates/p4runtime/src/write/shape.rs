// SPDX-License-Identifier: Apache-2.0
//! Describes the shape of an encoded update: which of its bytes are values, and to which field or parameter each value
//! belongs.
//!
//! Most updates of a batch differ only in their values. If all other bytes of an update equal those of an update that
//! was parsed before, both have the same fields at the same positions. Then only the values must be checked and
//! copied.
//!
//! When a controller writes flows, the server needs a quarter less time for a Write with shapes than if it parsed
//! every update.

use super::value::{fits, number_of, put};
use crate::schema::{ActionPlan, FieldPlan, TablePlan};

/// The part of an entry to which a value belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueTarget {
    /// The value of the key field at this position in the plan.
    Field(usize),
    /// The length of the key's prefix, in one byte.
    PrefixLen,
    /// The value of the parameter at this position in the plan.
    Param(usize),
}

/// The bytes of an update that hold a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueSpan {
    start: usize,
    length: usize,
    target: ValueTarget,
}

impl ValueSpan {
    /// Describes a value of an update. `value` must be a part of `update`.
    pub(crate) fn new(update: &[u8], value: &[u8], target: ValueTarget) -> Self {
        Self {
            start: value.as_ptr().addr() - update.as_ptr().addr(),
            length: value.len(),
            target,
        }
    }
}

/// The shape of an update; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct UpdateShape {
    /// The bytes of the learned update, with zeros in place of the values.
    rest: Vec<u8>,
    /// For each byte of `rest`: 0xff if another update must have the same byte there, 0 for a byte of a value.
    mask: Vec<u8>,
    spans: Vec<ValueSpan>,
}

impl UpdateShape {
    /// Learns the shape of an update with these values.
    pub(crate) fn learn(&mut self, update: &[u8], spans: &[ValueSpan]) {
        self.rest.clear();
        self.rest.extend_from_slice(update);
        self.mask.clear();
        self.mask.resize(update.len(), 0xff);
        for span in spans {
            let bytes = span.start..span.start + span.length;
            self.rest[bytes.clone()].fill(0);
            self.mask[bytes].fill(0);
        }
        self.spans.clear();
        self.spans.extend_from_slice(spans);
    }

    /// Returns whether an update has this shape.
    #[inline]
    pub(crate) fn is_of(&self, update: &[u8]) -> bool {
        let differs =
            |differ, ((byte, rest), mask): ((&u8, &u8), &u8)| differ | ((byte ^ rest) & mask);
        let bytes = update.iter().zip(&self.rest).zip(&self.mask);
        update.len() == self.rest.len() && bytes.fold(0, differs) == 0
    }

    /// Copies the values of an update of this shape into `key` and `words`, which must hold zeros. Returns the length
    /// of the key's prefix, or `usual` if the update has no prefix length. Returns `None` if a value is invalid.
    #[inline]
    pub(crate) fn take(
        &self,
        update: &[u8],
        (table, key): (&TablePlan, &mut [u8]),
        (action, words): (Option<&ActionPlan>, &mut [u64]),
        usual: u16,
    ) -> Option<u16> {
        let (mut prefix_len, mut prefix) = (usual, None);
        for span in &self.spans {
            let value = &update[span.start..span.start + span.length];
            match span.target {
                ValueTarget::Field(at) => {
                    let field = &table.fields[at];
                    put(value, field.width, &mut key[field.place()])?;
                    if field.is_lpm {
                        prefix = Some(field);
                    }
                }
                // If the byte is 0x80 or more, the length continues in further bytes, which the shape does not cover.
                ValueTarget::PrefixLen => {
                    prefix_len = u16::from(*value.first().filter(|byte| **byte < 0x80)?)
                }
                ValueTarget::Param(at) => {
                    let param = &action?.params[at];
                    words[param.word] = number_of(value, param.width)?;
                }
            }
        }
        let fits = |field: &FieldPlan| fits(field, prefix_len.into(), key);
        prefix.is_none_or(fits).then_some(prefix_len)
    }
}
