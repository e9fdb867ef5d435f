// SPDX-License-Identifier: Apache-2.0
//! The shape of an encoded entry: which of its bytes are values, and of what.
//!
//! Updates of a batch mostly differ in nothing but values. One that has all other bytes in common with an update that
//! was read field by field before is known to have the same fields in the same places: what is left is to check
//! and take the values.

use crate::batch::{ends_in_zeros, number_of, put};
use crate::schema::{ActionPlan, FieldPlan, TablePlan};

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// That of a key field, by its position.
    Field(usize),
    /// The length of the key's prefix, in one byte.
    PrefixLen,
    /// That of a parameter, by its position.
    Param(usize),
}

/// A value's place in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    start: usize,
    length: usize,
    of: Of,
}

impl Piece {
    /// Of a value that is part of an update.
    pub fn new(update: &[u8], value: &[u8], of: Of) -> Self {
        Self {
            start: value.as_ptr().addr() - update.as_ptr().addr(),
            length: value.len(),
            of,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Shape {
    /// The bytes that are no values; zeros in the values' places.
    rest: Vec<u8>,
    /// Ones where these count.
    mask: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Shape {
    /// Becomes the shape of an update whose values are these.
    pub fn learn(&mut self, update: &[u8], pieces: &[Piece]) {
        self.rest.clear();
        self.rest.extend_from_slice(update);
        self.mask.clear();
        self.mask.resize(update.len(), 0xff);
        for piece in pieces {
            let place = piece.start..piece.start + piece.length;
            self.rest[place.clone()].fill(0);
            self.mask[place].fill(0);
        }
        self.pieces.clear();
        self.pieces.extend_from_slice(pieces);
    }

    /// Whether an update has this shape.
    #[inline]
    pub fn is_of(&self, update: &[u8]) -> bool {
        let differs =
            |differ, ((byte, rest), mask): ((&u8, &u8), &u8)| differ | ((byte ^ rest) & mask);
        let bytes = update.iter().zip(&self.rest).zip(&self.mask);
        update.len() == self.rest.len() && bytes.fold(0, differs) == 0
    }

    /// Takes the values of an update of this shape: into a key and words that hold zeros. Gives the length of the key's
    /// prefix, `usual` if that is no value here; `None` if one of the values is not as it should be.
    #[inline]
    pub fn take(
        &self,
        update: &[u8],
        (table, key): (&TablePlan, &mut [u8]),
        (action, words): (Option<&ActionPlan>, &mut [u64]),
        usual: u16,
    ) -> Option<u16> {
        let (mut prefix_len, mut prefix) = (usual, None);
        for piece in &self.pieces {
            let value = &update[piece.start..piece.start + piece.length];
            match piece.of {
                Of::Field(at) => {
                    let field = &table.fields[at];
                    put(value, field.width, &mut key[field.place()])?;
                    if field.is_lpm {
                        prefix = Some(field);
                    }
                }
                // The first of several bytes is not a length of its own.
                Of::PrefixLen => {
                    prefix_len = u16::from(*value.first().filter(|byte| **byte < 0x80)?)
                }
                Of::Param(at) => {
                    let param = &action?.params[at];
                    words[param.word] = number_of(value, param.width)?;
                }
            }
        }
        let fits = |field: &FieldPlan| fits(field, prefix_len.into(), key);
        prefix.is_none_or(fits).then_some(prefix_len)
    }
}

/// Whether a prefix has one of the lengths that it may have, and zeros behind it.
pub fn fits(field: &FieldPlan, length: usize, key: &[u8]) -> bool {
    (1..=field.width).contains(&length) && ends_in_zeros(&key[field.place()], field.width - length)
}
