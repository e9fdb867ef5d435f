// SPDX-License-Identifier: Apache-2.0
//! Computes the Internet checksum (RFC 1071), for frames whose checksum the kernel left to hardware.

/// Adds bytes to a one's complement sum, as big-endian 16-bit words. An odd last byte is padded with zero.
pub fn sum(bytes: &[u8], initial: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(initial, |sum, word| {
        sum + u64::from(u32::from_be_bytes(*word))
    });
    let mut tail = [0; 4];
    tail[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(tail))
}

/// Folds a sum into 16 bits, and complements it. The result is the checksum as sent.
pub fn finish(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1071_section_3_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(finish(sum(&bytes, 0)), !0xddf2);
    }

    #[test]
    fn an_odd_byte_is_the_high_half_of_its_word() {
        assert_eq!(finish(sum(&[0x12, 0x34, 0x56], 0)), !(0x1234 + 0x5600));
    }
}
