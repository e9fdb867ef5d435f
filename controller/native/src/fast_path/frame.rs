// SPDX-License-Identifier: Apache-2.0
//! Parses the fields of a frame that the fast path needs, into checked views.
//!
//! The views accept fewer packets than `sluice.wire` does. Python handles the packets that they refuse:
//! packets with options or extension headers, fragments, and truncated or inconsistent frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::tap::device::Mac;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
/// Smallest value that is an EtherType. A smaller value in this field is a length (IEEE 802.3).
const FIRST_ETHERTYPE: u16 = 0x0600;
/// LLC header of IS-IS. IS-IS is the only protocol without an EtherType that the fast path forwards.
const ISIS_LLC: [u8; 3] = [0xfe, 0xfe, 0x03];

/// Mask of the MF flag and the fragment offset in an IPv4 header.
const FRAGMENT: u16 = 0x3fff;
/// Number of bytes that a packet must have after the IP header. These bytes hold ICMP type and code, or the
/// ports.
const TRANSPORT: usize = 8;

/// Protocol number of UDP.
pub(super) const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload<'f> {
    /// An IP packet: its version, and the bytes after the Ethernet header.
    Ip(Version, &'f [u8]),
    /// A payload with another EtherType.
    Other(u16),
    /// An IS-IS packet.
    Isis,
}

/// IP version according to the EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// An Ethernet frame with at most one 802.1Q tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedFrame<'f> {
    pub(super) source: Mac,
    pub(super) is_tagged: bool,
    pub(super) payload: Payload<'f>,
}

/// An IP packet that has no options or extension headers and is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) source: IpAddr,
    pub(super) protocol: u8,
    transport: [u8; TRANSPORT],
}

impl<'f> ParsedFrame<'f> {
    /// Parses a frame. Returns `None` if the frame is truncated, or if it has a length field but is not IS-IS.
    pub(super) fn of(frame: &'f [u8]) -> Option<Self> {
        let source = array(frame, 6)?;
        let mut ethertype = u16_at(frame, 12)?;
        let mut rest = frame.get(14..)?;
        let is_tagged = ethertype == VLAN;
        if is_tagged {
            ethertype = u16_at(rest, 2)?;
            rest = rest.get(4..)?;
        }
        let payload = match ethertype {
            IPV4 => Payload::Ip(Version::V4, rest),
            IPV6 => Payload::Ip(Version::V6, rest),
            length if length < FIRST_ETHERTYPE => {
                if array(rest, 0)? != ISIS_LLC {
                    return None;
                }
                Payload::Isis
            }
            other => Payload::Other(other),
        };
        Some(Self {
            source,
            is_tagged,
            payload,
        })
    }
}

impl Packet {
    /// Parses an IP packet. Padding may follow the packet.
    pub(super) fn of(version: Version, packet: &[u8]) -> Option<Self> {
        match version {
            Version::V4 => Self::of_ipv4(packet),
            Version::V6 => Self::of_ipv6(packet),
        }
    }

    fn of_ipv4(packet: &[u8]) -> Option<Self> {
        let whole = packet.get(..usize::from(u16_at(packet, 2)?))?;
        if *whole.first()? != 0x45 || u16_at(whole, 6)? & FRAGMENT != 0 {
            return None;
        }
        Some(Self {
            source: Ipv4Addr::from(array::<4>(whole, 12)?).into(),
            protocol: *whole.get(9)?,
            transport: array(whole, 20)?,
        })
    }

    fn of_ipv6(packet: &[u8]) -> Option<Self> {
        let whole = packet.get(..40 + usize::from(u16_at(packet, 4)?))?;
        if *whole.first()? >> 4 != 6 {
            return None;
        }
        Some(Self {
            source: Ipv6Addr::from(array::<16>(whole, 8)?).into(),
            protocol: *whole.get(6)?,
            transport: array(whole, 40)?,
        })
    }

    /// Returns the source port and the destination port of a UDP or TCP packet.
    pub(super) fn ports(&self) -> Option<(u16, u16)> {
        let [a, b, c, d, ..] = self.transport;
        let has_ports = self.protocol == UDP || self.protocol == TCP;
        has_ports.then(|| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Returns the type of an ICMP or ICMPv6 message.
    pub(super) fn icmp_type(&self) -> Option<u8> {
        let is_icmp = self.protocol == ICMP || self.protocol == ICMPV6;
        is_icmp.then_some(self.transport[0])
    }
}

/// Returns a frame without its first 802.1Q tag. Returns `None` if the frame has no complete tag.
pub(super) fn without_tag(frame: &[u8]) -> Option<Vec<u8>> {
    if u16_at(frame, 12)? != VLAN {
        return None;
    }
    u16_at(frame, 16)?;
    let (addresses, rest) = (frame.get(..12)?, frame.get(16..)?);
    Some([addresses, rest].concat())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn udp(first: u8, flags: u16) -> Vec<u8> {
        let mut packet = vec![first, 0, 0, 28, 0, 0];
        packet.extend(flags.to_be_bytes());
        packet.extend([64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0xc0, 0, 0x0e, 0xc8, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn a_plain_datagram_shows_its_source_and_ports() {
        let packet = Packet::of(Version::V4, &udp(0x45, 0x4000));
        let seen = packet.map(|packet| (packet.source.to_string(), packet.ports()));
        assert_eq!(seen, Some(("10.0.0.1".to_owned(), Some((49152, 3784)))));
    }

    #[test]
    fn what_is_not_whole_or_has_options_is_not_seen() {
        for (first, flags) in [(0x46, 0), (0x65, 0), (0x45, 0x2000), (0x45, 1)] {
            assert_eq!(Packet::of(Version::V4, &udp(first, flags)), None);
        }
        let whole = udp(0x45, 0);
        for length in 0..whole.len() {
            assert_eq!(Packet::of(Version::V4, &whole[..length]), None, "{length}");
        }
        assert_eq!(Packet::of(Version::V6, &whole), None);
    }

    #[test]
    fn padding_is_not_part_of_the_packet() {
        let mut short = udp(0x45, 0);
        short[3] = 27;
        assert_eq!(Packet::of(Version::V4, &short), None);
    }

    #[test]
    fn one_tag_is_looked_through() {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0, 7, 0x08, 0x06, 1, 2, 3]);
        let seen = ParsedFrame::of(&frame).map(|frame| (frame.is_tagged, frame.payload));
        assert_eq!(seen, Some((true, Payload::Other(0x0806))));
        let untagged = without_tag(&frame).unwrap_or_default();
        assert_eq!(untagged[12..], [0x08, 0x06, 1, 2, 3]);
        assert_eq!(without_tag(&untagged), None);
        assert_eq!(without_tag(&frame[..17]), None, "a tag that is cut off");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(ParsedFrame { payload: Payload::Ip(version, packet), .. }) = ParsedFrame::of(&bytes) {
                let seen = Packet::of(version, packet);
                prop_assert!(seen.is_none_or(|_| packet.len() >= 28));
            }
            without_tag(&bytes);
        }
    }
}
