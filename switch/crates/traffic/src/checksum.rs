// SPDX-License-Identifier: Apache-2.0
//! Computes the Internet checksum (RFC 1071) with the pseudo headers of IPv4 and IPv6 (RFC 8200, 8.1).

use std::net::IpAddr;

/// A one's complement sum in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes to the sum. Only the last part may have an odd length.
    pub(crate) fn add(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        // A packet has at most 16,384 words of 32 bits, so the sum stays below 2^47.
        self.0 += words
            .iter()
            .map(|word| u64::from(u32::from_be_bytes(*word)))
            .sum::<u64>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.0 += u64::from(u32::from_be_bytes(last));
        self
    }

    /// Starts a sum with the pseudo header for a transport protocol.
    pub(crate) fn pseudo_header(
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        length: usize,
    ) -> Self {
        let sum = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Self::default()
                .add(&source.octets())
                .add(&destination.octets()),
            (source, destination) => {
                let octets = |address| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                Self::default()
                    .add(&octets(source))
                    .add(&octets(destination))
            }
        };
        Self(sum.0 + u64::from(protocol) + length as u64)
    }

    /// Returns the checksum. It is 0 if the summed bytes included a correct checksum.
    pub(crate) fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&bytes).finish(), !0xddf2);
    }

    #[test]
    fn a_whole_header_sums_to_zero_and_odd_lengths_are_padded() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(Sum::default().add(&header).finish(), 0);
        let odd = Sum::default().add(&[1, 2, 3]).finish();
        assert_eq!(odd, Sum::default().add(&[1, 2, 3, 0]).finish());
    }
}
