// SPDX-License-Identifier: Apache-2.0
//! Checks the width of encoded values, and copies them into keys and parameters.

use crate::schema::FieldPlan;

/// Copies a value of `width` bits to the end of `place`, which must hold zeros before. Returns `None` if the value is
/// empty or too large.
pub(super) fn put(value: &[u8], width: usize, place: &mut [u8]) -> Option<()> {
    let excess = value.len().saturating_sub(place.len());
    let (front, value) = value.split_at(excess);
    let (first, zeros) = (*value.first()?, front.iter().all(|byte| *byte == 0));
    let spare = place.len() * 8 - width;
    if !zeros || value.len() == place.len() && u32::from(first) >> (8 - spare) != 0 {
        return None;
    }
    let start = place.len() - value.len();
    place[start..].copy_from_slice(value);
    Some(())
}

/// Reads a number of at most 64 bits. Returns `None` if the value is empty or has more than `width` bits.
pub(super) fn number_of(value: &[u8], width: usize) -> Option<u64> {
    let mut word = [0; 8];
    put(value, 64, &mut word)?;
    let number = u64::from_be_bytes(word);
    (u64::BITS - number.leading_zeros() <= width as u32).then_some(number)
}

/// Returns whether the last `bits` bits are zeros.
pub(super) fn ends_in_zeros(bytes: &[u8], bits: usize) -> bool {
    let (whole, rest) = (bits / 8, bits % 8);
    let (front, end) = bytes.split_at(bytes.len() - whole);
    let partial = front
        .last()
        .is_none_or(|byte| byte.trailing_zeros() as usize >= rest);
    partial && end.iter().all(|byte| *byte == 0)
}

/// Returns whether a prefix has a valid length, and only zeros after its length.
pub(super) fn fits(field: &FieldPlan, length: usize, key: &[u8]) -> bool {
    (1..=field.width).contains(&length) && ends_in_zeros(&key[field.place()], field.width - length)
}
