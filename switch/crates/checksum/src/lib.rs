// SPDX-License-Identifier: Apache-2.0
//! Computes the Internet checksum (RFC 1071), with the pseudo headers of IPv4 and IPv6 (RFC 8200, 8.1).
//!
//! A sum that is not finished is a `u64`: the sum of 32-bit words, not folded. It cannot overflow for inputs below 2^32
//! words. A number of 16 bits may be added to it directly.

use std::net::IpAddr;

/// Adds bytes to a sum, as big-endian words. The last word is padded with zeros. If an input is added in parts, all
/// parts except the last one must have an even length.
#[inline]
pub fn sum(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(start, |sum, word| {
        sum + u64::from(u32::from_be_bytes(*word))
    });
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// Returns the sum of the pseudo header for an upper-layer protocol and `length` bytes. If only one of the addresses is
/// IPv4, uses its IPv4-mapped IPv6 address.
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u64 {
    let start = u64::from(protocol) + length as u64;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            sum(sum(start, &source.octets()), &destination.octets())
        }
        (source, destination) => {
            let octets = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            sum(sum(start, &octets(source)), &octets(destination))
        }
    }
}

/// Returns the value for the checksum field: folds a sum to 16 bits and complements the result. If the summed bytes
/// already include a correct checksum, the result is 0.
#[inline]
pub fn finish(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the checksum of bytes. Pads an odd number of bytes with a zero byte at the end.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    finish(sum(0, bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
    }

    #[test]
    fn a_whole_header_has_the_checksum_zero() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0);
    }

    #[test]
    fn an_odd_byte_is_the_high_half_of_its_word() {
        assert_eq!(checksum(&[0x12, 0x34, 0x56]), !(0x1234 + 0x5600));
    }

    #[test]
    fn the_pseudo_header_counts_addresses_protocol_and_length() {
        let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let pseudo = pseudo_header(source.into(), destination.into(), 17, 0x123);
        let bytes = [10, 0, 0, 1, 10, 0, 0, 2, 0, 17, 0x01, 0x23];
        assert_eq!(finish(pseudo), checksum(&bytes));
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_16_bit_words(bytes: Vec<u8>, cut in 0_usize..100) {
            let mut expected = 0_u32;
            for pair in bytes.chunks(2) {
                let word = u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
                expected += word;
                expected = (expected & 0xffff) + (expected >> 16);
            }
            prop_assert_eq!(checksum(&bytes), !(expected as u16));
            let (first, second) = bytes.split_at((cut & !1).min(bytes.len() & !1));
            prop_assert_eq!(finish(sum(sum(0, first), second)), checksum(&bytes));
        }
    }
}
