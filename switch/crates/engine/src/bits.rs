// SPDX-License-Identifier: Apache-2.0
//! Reads and writes bit ranges in byte buffers, most significant bit first.
//!
//! Buffers end with [`sluice_program::layout::SLACK`] spare bytes. So a slot of up to 64 (or 128) bits can be read with
//! one unaligned load, a shift and a mask.

use sluice_program::FieldSlot;

/// Returns whether a slot can be read as one 64-bit word.
#[inline]
pub fn fits_u64(slot: FieldSlot) -> bool {
    slot.lead as u16 + slot.width <= 64
}

/// Returns whether a slot can be read as one 128-bit word.
#[inline]
pub fn fits_u128(slot: FieldSlot) -> bool {
    slot.lead as u16 + slot.width <= 128
}

#[inline]
fn word64(buffer: &[u8], byte: usize) -> u64 {
    match buffer[byte..].first_chunk() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => short_word(&buffer[byte..], 8) as u64,
    }
}

#[inline]
fn word128(buffer: &[u8], byte: usize) -> u128 {
    match buffer[byte..].first_chunk() {
        Some(chunk) => u128::from_be_bytes(*chunk),
        None => short_word(&buffer[byte..], 16),
    }
}

/// Reads a word at the end of a buffer without slack. Bytes past the end read as 0.
#[cold]
fn short_word(bytes: &[u8], size: u32) -> u128 {
    let value = bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u128::from(*byte));
    value << (8 * (size - bytes.len() as u32))
}

/// Returns the slot's bits as an unsigned number; requires [`fits_u64`].
#[inline]
pub fn load_u64(buffer: &[u8], slot: FieldSlot) -> u64 {
    word64(buffer, slot.byte as usize) << slot.lead >> (64 - slot.width)
}

/// Returns the slot's bits as an unsigned number; requires [`fits_u128`].
#[inline]
pub fn load_u128(buffer: &[u8], slot: FieldSlot) -> u128 {
    word128(buffer, slot.byte as usize) << slot.lead >> (128 - slot.width)
}

/// Writes the low bits of a number to the slot; requires [`fits_u64`].
#[inline]
pub fn store_u64(buffer: &mut [u8], slot: FieldSlot, value: u64) {
    let shift = 64 - u32::from(slot.lead) - u32::from(slot.width);
    let mask = (u64::MAX >> (64 - slot.width)) << shift;
    let byte = slot.byte as usize;
    let word = word64(buffer, byte) & !mask | value << shift & mask;
    put(buffer, byte, &word.to_be_bytes());
}

/// Writes the low bits of a number to the slot; requires [`fits_u128`].
#[inline]
pub fn store_u128(buffer: &mut [u8], slot: FieldSlot, value: u128) {
    let shift = 128 - u32::from(slot.lead) - u32::from(slot.width);
    let mask = (u128::MAX >> (128 - slot.width)) << shift;
    let byte = slot.byte as usize;
    let word = word128(buffer, byte) & !mask | value << shift & mask;
    put(buffer, byte, &word.to_be_bytes());
}

#[inline]
fn put<const N: usize>(buffer: &mut [u8], byte: usize, word: &[u8; N]) {
    let rest = &mut buffer[byte..];
    match rest.first_chunk_mut() {
        Some(chunk) => *chunk = *word,
        None => put_short(rest, word),
    }
}

/// Writes a word at the end of a buffer without slack. Drops the bytes that do not fit.
#[cold]
fn put_short(rest: &mut [u8], word: &[u8]) {
    let len = rest.len();
    rest.copy_from_slice(&word[..len]);
}

/// Copies the slot's bits to `out`, right-aligned. `out` has `slot.bytes()` bytes.
#[inline]
pub fn load_padded(buffer: &[u8], slot: FieldSlot, out: &mut [u8]) {
    let bytes = out.len();
    if slot.is_bytes() {
        let start = slot.byte as usize;
        out.copy_from_slice(&buffer[start..start + bytes]);
    } else if fits_u64(slot) {
        out.copy_from_slice(&load_u64(buffer, slot).to_be_bytes()[8 - bytes..]);
    } else {
        let spare = bytes * 8 - usize::from(slot.width);
        copy_bits(buffer, slot.bit(), out, spare, usize::from(slot.width));
        out[0] &= 0xff >> spare;
    }
}

/// Writes right-aligned bytes to the slot; drops the high bits that do not fit.
pub fn store_padded(buffer: &mut [u8], slot: FieldSlot, bytes: &[u8]) {
    let width = usize::from(slot.width);
    let have = bytes.len() * 8;
    if have >= width {
        copy_bits(bytes, have - width, buffer, slot.bit(), width);
    } else {
        let mut padded = vec![0; slot.bytes()];
        let start = padded.len() - bytes.len();
        padded[start..].copy_from_slice(bytes);
        let spare = padded.len() * 8 - width;
        copy_bits(&padded, spare, buffer, slot.bit(), width);
    }
}

/// Copies `count` bits from bit `from` of one buffer to bit `to` of another.
pub fn copy_bits(source: &[u8], from: usize, target: &mut [u8], to: usize, count: usize) {
    if from.is_multiple_of(8) && to.is_multiple_of(8) && count.is_multiple_of(8) {
        let (from, to, bytes) = (from / 8, to / 8, count / 8);
        target[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        return;
    }
    let mut done = 0;
    while done < count {
        let (read, write) = (from + done, to + done);
        let step = (8 - read % 8).min(8 - write % 8).min(count - done);
        let bits = source[read / 8] << (read % 8) >> (8 - step);
        let shift = 8 - write % 8 - step;
        let mask = (0xffu16 >> (8 - step) << shift) as u8;
        let byte = &mut target[write / 8];
        *byte = *byte & !mask | bits << shift & mask;
        done += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots() -> impl Strategy<Value = FieldSlot> {
        (0usize..64, 1u16..200).prop_map(|(bit, width)| FieldSlot::at(bit, width, false))
    }

    /// Reference for loads: reads the slot bit by bit.
    fn naive(buffer: &[u8], slot: FieldSlot) -> Vec<bool> {
        let bits = slot.bit()..slot.bit() + usize::from(slot.width);
        bits.map(|bit| buffer[bit / 8] >> (7 - bit % 8) & 1 == 1)
            .collect()
    }

    fn bits_of(value: u128, width: u16) -> Vec<bool> {
        (0..width).rev().map(|bit| value >> bit & 1 == 1).collect()
    }

    proptest! {
        #[test]
        fn loads_agree_with_single_bits(buffer in prop::collection::vec(any::<u8>(), 64), slot in slots()) {
            let expected = naive(&buffer, slot);
            if fits_u64(slot) {
                prop_assert_eq!(bits_of(load_u64(&buffer, slot).into(), slot.width), expected.clone());
            }
            if fits_u128(slot) {
                prop_assert_eq!(bits_of(load_u128(&buffer, slot), slot.width), expected.clone());
            }
            let mut padded = vec![0; slot.bytes()];
            load_padded(&buffer, slot, &mut padded);
            let spare = padded.len() * 8 - usize::from(slot.width);
            prop_assert_eq!(naive(&padded, FieldSlot::at(spare, slot.width, false)), expected);
            prop_assert_eq!(padded[0] & !(0xff >> spare), 0);
        }

        #[test]
        fn stores_change_the_slot_and_nothing_else(
            buffer in prop::collection::vec(any::<u8>(), 64), slot in slots(), value in any::<u128>()
        ) {
            let mut copies = Vec::new();
            if fits_u64(slot) {
                let mut copy = buffer.clone();
                store_u64(&mut copy, slot, value as u64);
                copies.push(copy);
            }
            if fits_u128(slot) {
                let mut copy = buffer.clone();
                store_u128(&mut copy, slot, value);
                copies.push(copy);
            }
            let mut copy = buffer.clone();
            store_padded(&mut copy, slot, &value.to_be_bytes());
            copies.push(copy);
            for copy in copies {
                for bit in 0..buffer.len() * 8 {
                    let from_end = (slot.bit() + usize::from(slot.width)).wrapping_sub(bit + 1);
                    let expected = if from_end < usize::from(slot.width) {
                        from_end < 128 && value >> from_end & 1 == 1
                    } else {
                        buffer[bit / 8] >> (7 - bit % 8) & 1 == 1
                    };
                    prop_assert_eq!(copy[bit / 8] >> (7 - bit % 8) & 1 == 1, expected);
                }
            }
        }
    }
}
