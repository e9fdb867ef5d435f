// SPDX-License-Identifier: Apache-2.0
//! Reads and writes integers as bytestrings (P4Runtime specification, "Bytestrings"), in big-endian order. Reading
//! accepts any zero padding; writing uses the shortest form. Refuses an empty string, or a value that is too large,
//! with OUT_OF_RANGE.
//!
//! Also packs such values bit by bit into a header, for packet-in and packet-out.

use crate::error::UpdateError;

/// Returns the shortest form of a big-endian value; zero is one zero byte.
pub(crate) fn canonical(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    if zeros == bytes.len() {
        &[0]
    } else {
        &bytes[zeros..]
    }
}

/// Returns the number of bits that the value needs.
fn bit_length(bytes: &[u8]) -> usize {
    let significant = canonical(bytes);
    significant.len() * 8 - significant[0].leading_zeros() as usize
}

/// Checks that a received value is not empty and fits `width` bits. Returns the value's shortest form.
pub(crate) fn check(bytes: &[u8], width: usize) -> Result<&[u8], UpdateError> {
    if bytes.is_empty() {
        return Err(UpdateError::out_of_range(
            "the value is an empty bytestring",
        ));
    }
    if bit_length(bytes) > width {
        let message = format!("value {bytes:02x?} does not fit in {width} bits");
        return Err(UpdateError::out_of_range(message));
    }
    Ok(canonical(bytes))
}

/// Reads a value of at most 32 bits, such as a port number.
pub(crate) fn to_u32(bytes: &[u8]) -> Result<u32, UpdateError> {
    let value = check(bytes, 32)?;
    Ok(value
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// Writes values without gaps between them, bit by bit, most significant bit first, as a P4 deparser does.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    bits: usize,
}

impl BitWriter {
    /// Appends the low `width` bits of a big-endian value, which is zero-extended if shorter.
    pub(crate) fn put(&mut self, value: &[u8], width: usize) {
        for bit in (0..width).rev() {
            let byte = value
                .len()
                .checked_sub(bit / 8 + 1)
                .map_or(0, |index| value[index]);
            if self.bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= (byte >> (bit % 8) & 1) << (7 - self.bits % 8);
            }
            self.bits += 1;
        }
    }

    /// Returns the bytes. The last byte is padded with zero bits.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads `width` bits from bit `offset` on. Returns a big-endian value in its shortest form, or `None` if `bytes` is
/// too short.
pub(crate) fn extract(bytes: &[u8], offset: usize, width: usize) -> Option<Vec<u8>> {
    if width == 0 || offset + width > bytes.len() * 8 {
        return None;
    }
    let mut value = vec![0u8; width.div_ceil(8)];
    for bit in 0..width {
        let at = offset + width - 1 - bit;
        let set = bytes[at / 8] >> (7 - at % 8) & 1;
        let index = value.len() - 1 - bit / 8;
        value[index] |= set << (bit % 8);
    }
    Some(canonical(&value).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tonic::Code;

    #[test]
    fn the_specifications_table_of_valid_unsigned_values() {
        for (width, bytes, shortest) in [
            (8, &b"\x63"[..], &b"\x63"[..]),
            (16, b"\x00\x63", b"\x63"),
            (16, b"\x63", b"\x63"),
            (16, b"\x30\x64", b"\x30\x64"),
            (16, b"\x00\x30\x64", b"\x30\x64"),
            (12, b"\x00\x63", b"\x63"),
            (12, b"\x63", b"\x63"),
            (12, b"\x00\x00\x63", b"\x63"),
        ] {
            assert_eq!(check(bytes, width).unwrap(), shortest);
        }
    }

    #[test]
    fn the_specifications_table_of_invalid_unsigned_values() {
        for (width, bytes) in [
            (8, &b"\x01\x63"[..]),
            (8, b""),
            (16, b"\x01\x00\x63"),
            (12, b"\x10\x63"),
            (12, b"\x01\x00\x63"),
            (12, b"\x00\x40\x63"),
        ] {
            assert_eq!(
                check(bytes, width).unwrap_err().code,
                Code::OutOfRange,
                "{bytes:02x?}"
            );
        }
    }

    #[test]
    fn zero_is_one_zero_byte() {
        assert_eq!(check(&[0, 0, 0], 1).unwrap(), [0]);
        assert_eq!(to_u32(&[0, 0, 0, 0, 0, 1, 0]).unwrap(), 256);
    }

    proptest! {
        #[test]
        fn what_is_packed_is_extracted(fields in proptest::collection::vec((1..70usize, any::<[u8; 9]>()), 1..6)) {
            let mut writer = BitWriter::default();
            for (width, value) in &fields {
                writer.put(value, *width);
            }
            let bytes = writer.finish();
            let mut offset = 0;
            for (width, value) in fields {
                let expected = extract(&value, value.len() * 8 - width, width);
                prop_assert_eq!(extract(&bytes, offset, width), expected);
                offset += width;
            }
            prop_assert_eq!(extract(&bytes, offset, 8), None);
        }
    }
}
