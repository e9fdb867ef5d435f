// SPDX-License-Identifier: Apache-2.0
//! Packs key fields into one number. The first field has the highest bits. Each field takes its declared width.

use std::ops::Range;

use sluice_program::Key;

/// Byte ranges of the fields in a key, and their widths in bits.
#[derive(Clone, Debug)]
pub(crate) struct Packing(Vec<(Range<usize>, u32)>);

impl Packing {
    /// Returns the total number of bits of these fields.
    pub(crate) fn bits<'a>(fields: impl Iterator<Item = &'a Key>) -> u32 {
        fields.map(|field| u32::from(field.width)).sum()
    }

    /// Creates the packing of these fields. They may have at most 64 bits in total.
    pub(crate) fn new<'a>(fields: impl Iterator<Item = &'a Key>) -> Self {
        let place = |key: &Key| (key.offset..key.offset + key.bytes(), u32::from(key.width));
        Self(fields.map(place).collect())
    }

    /// Returns the number for a key's fields. The unused bits of a field's bytes must be 0.
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
