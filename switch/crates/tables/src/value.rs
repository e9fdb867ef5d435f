// SPDX-License-Identifier: Apache-2.0
//! Byte strings of the control plane. Writes may pad them with any number of zero bytes. Reads return the
//! shortest form (P4Runtime 1.5, section 8.4).

use std::fmt;

use crate::error::{Result, TableError};
use crate::model::Value;

/// Returns the shortest form of a value. It has no leading zero bytes; the value 0 is one zero byte.
pub fn canonical(bytes: &[u8]) -> Value {
    let first = bytes.iter().position(|byte| *byte != 0);
    match first {
        Some(first) => bytes[first..].to_vec(),
        None => vec![0],
    }
}

/// Returns a value without its leading zero bytes. Fails if the value does not fit in `width` bits.
fn significant<'a>(value: &'a [u8], width: u16, what: &dyn fmt::Display) -> Result<&'a [u8]> {
    let bytes = usize::from(width).div_ceil(8);
    if value.is_empty() {
        return Err(TableError::OutOfRange(format!(
            "{what}: the value is empty"
        )));
    }
    let significant = value
        .iter()
        .position(|byte| *byte != 0)
        .map_or(&[][..], |i| &value[i..]);
    let spare_bits = bytes * 8 - usize::from(width);
    let fits = significant.len() < bytes
        || significant.len() == bytes
            && significant
                .first()
                .is_none_or(|first| u32::from(*first) < 1 << (8 - spare_bits));
    if !fits {
        let message = format!("{what}: the value does not fit {width} bits");
        return Err(TableError::OutOfRange(message));
    }
    Ok(significant)
}

/// Appends a value of `width` bits to `out`, as exactly (width + 7) / 8 bytes.
pub(crate) fn append_padded(
    out: &mut Vec<u8>,
    value: &[u8],
    width: u16,
    what: &dyn fmt::Display,
) -> Result<()> {
    let significant = significant(value, width, what)?;
    let bytes = usize::from(width).div_ceil(8);
    out.resize(out.len() + bytes - significant.len(), 0);
    out.extend_from_slice(significant);
    Ok(())
}

/// Appends a value of `width` bits to `out`, as 64-bit words, most significant first.
pub(crate) fn append_words(
    out: &mut Vec<u64>,
    value: &[u8],
    width: u16,
    what: &dyn fmt::Display,
) -> Result<()> {
    if width <= 64 {
        // Handles the most frequent case without an allocation.
        let significant = significant(value, width, what)?;
        let word = significant
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        out.push(word);
        return Ok(());
    }
    let words = usize::from(width).div_ceil(64);
    let mut bytes = Vec::with_capacity(words * 8);
    bytes.resize(words * 8 - usize::from(width).div_ceil(8), 0);
    append_padded(&mut bytes, value, width, what)?;
    let (words, _) = bytes.as_chunks();
    out.extend(words.iter().map(|word| u64::from_be_bytes(*word)));
    Ok(())
}

/// Returns the shortest form of a value that is given as words.
pub(crate) fn from_words(words: &[u64]) -> Value {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    canonical(&bytes)
}
