// SPDX-License-Identifier: Apache-2.0
//! Key fields as one number: the first one's bits highest, each field as wide as it is declared.

use std::ops::Range;

use sluice_program::Key;

/// Where the fields are in a key, and their widths.
#[derive(Clone, Debug)]
pub(crate) struct Packing(Vec<(Range<usize>, u32)>);

impl Packing {
    /// The bits of these fields together.
    pub(crate) fn bits<'a>(fields: impl Iterator<Item = &'a Key>) -> u32 {
        fields.map(|field| u32::from(field.width)).sum()
    }

    /// Of these fields, which have at most 64 bits together.
    pub(crate) fn new<'a>(fields: impl Iterator<Item = &'a Key>) -> Self {
        let place = |key: &Key| (key.offset..key.offset + key.bytes(), u32::from(key.width));
        Self(fields.map(place).collect())
    }

    /// The number that a key's fields make. Their spare bits are 0.
    #[inline]
    pub(crate) fn number(&self, key: &[u8]) -> u64 {
        let bytes = |range: &Range<usize>| key[range.clone()].iter();
        let value = |range| bytes(range).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let fields = self.0.iter();
        fields.fold(0, |number: u64, (range, width)| {
            number.checked_shl(*width).unwrap_or(0) | value(range)
        })
    }
}
