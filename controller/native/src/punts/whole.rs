// SPDX-License-Identifier: Apache-2.0
//! Reads the selectors of plain packets. A plain packet is a whole IP packet without options or extension headers,
//! and its protocol is neither ICMP nor mobility. Most first packets of flows are plain. Python reads all other
//! packets.
//!
//! `wire/selectors.py` is the specification of this module; a test compares the two.

const TAG: usize = 4;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// Smallest number of bytes after the IP header of a packet that is read here.
const TRANSPORT: usize = 8;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const MOBILITY: u8 = 135;
/// IPv6 extension headers after which the upper-layer protocol follows: hop-by-hop options, routing, fragment and
/// destination options.
const LOOKED_THROUGH: [u8; 4] = [0, 43, 44, 60];

/// The selectors of a plain packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSelectors<'f> {
    /// Source address, of 4 or 16 octets.
    pub source: &'f [u8],
    /// Destination address.
    pub destination: &'f [u8],
    /// Protocol.
    pub protocol: u8,
    /// Source and destination port, if the protocol has ports.
    pub ports: Option<(u16, u16)>,
}

/// Returns the selectors of the packet in an Ethernet frame. Returns `None` if the packet is not plain, or malformed.
pub fn plain(frame: &[u8]) -> Option<PlainSelectors<'_>> {
    let (kind, start) = match *frame.get(12..14)? {
        [0x81, 0x00] => (frame.get(16..18)?, ETHERNET + TAG),
        _ => (frame.get(12..14)?, ETHERNET),
    };
    let packet = frame.get(start..)?;
    match *kind {
        [0x08, 0x00] => ipv4(packet),
        [0x86, 0xdd] => ipv6(packet),
        _ => None,
    }
}

fn ipv4(packet: &[u8]) -> Option<PlainSelectors<'_>> {
    let header = packet.get(..IPV4)?;
    let total = usize::from(u16_at(header, 2)?);
    let is_whole = u16_at(header, 6)? & 0x3fff == 0;
    if header[0] != 0x45 || !is_whole {
        return None;
    }
    let transport = packet.get(..total)?.get(IPV4..)?;
    finish(&header[12..16], &header[16..20], header[9], transport)
}

fn ipv6(packet: &[u8]) -> Option<PlainSelectors<'_>> {
    let header = packet.get(..IPV6)?;
    let length = usize::from(u16_at(header, 4)?);
    let protocol = header[6];
    if header[0] >> 4 != 6 || LOOKED_THROUGH.contains(&protocol) {
        return None;
    }
    let transport = packet.get(IPV6..IPV6 + length)?;
    finish(&header[8..24], &header[24..40], protocol, transport)
}

fn finish<'f>(
    source: &'f [u8],
    destination: &'f [u8],
    protocol: u8,
    transport: &[u8],
) -> Option<PlainSelectors<'f>> {
    let ports = match protocol {
        ICMP | ICMPV6 | MOBILITY => return None,
        TCP | UDP | SCTP | ESP if transport.len() < TRANSPORT => return None,
        TCP | UDP | SCTP => Some((u16_at(transport, 0)?, u16_at(transport, 2)?)),
        _ => None,
    };
    Some(PlainSelectors {
        source,
        destination,
        protocol,
        ports,
    })
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    let value = octets.get(at..at + 2)?;
    Some(u16::from_be_bytes([value[0], value[1]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_udp_packet_is_plain_until_a_field_says_otherwise() {
        let mut frame = vec![0; 14 + 28];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[17] = 28;
        frame[23] = UDP;
        frame[34..38].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(
            plain(&frame).and_then(|found| found.ports),
            Some((0x102, 0x304))
        );
        for (at, value) in [
            (14, 0x46),
            (14, 0x65),
            (17, 27),
            (17, 29),
            (20, 0x20),
            (21, 1),
            (23, ICMP),
            (12, 9),
        ] {
            let mut other = frame.clone();
            other[at] = value;
            assert_eq!(plain(&other), None, "octet {at}");
        }
        frame.extend([0; 9]);
        assert!(plain(&frame).is_some(), "padding");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut octets: Vec<u8>, kind in 0..3_usize) {
            if octets.len() > 18 {
                octets[12..14].copy_from_slice(&[[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00]][kind]);
            }
            let _ = plain(&octets);
        }
    }
}
