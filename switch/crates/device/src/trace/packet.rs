// SPDX-License-Identifier: Apache-2.0
//! Parses the fields of an Ethernet frame that filters use: addresses, protocol and ports of IPv4 and IPv6.
//!
//! The bytes come from the network, so every access is checked. If a packet is truncated or invalid, none of these
//! fields is found.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];
const MOST_TAGS: usize = 2;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MOST_EXTENSION_HEADERS: usize = 8;
/// Protocols with ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Addresses, protocol and ports of an IP packet. `ports` are its source and destination port, or `None` if the
/// protocol has no ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) ports: Option<(u16, u16)>,
}

impl Flow {
    /// Parses a frame. Returns `None` if no whole IP header follows after Ethernet and at most two VLAN tags.
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let mut at = 12;
        let mut kind = word(frame, at)?;
        for _ in 0..MOST_TAGS {
            if !VLAN_TAGS.contains(&kind) {
                break;
            }
            at += 4;
            kind = word(frame, at)?;
        }
        let packet = frame.get(at + 2..)?;
        match kind {
            IPV4 => Self::ipv4(packet),
            IPV6 => Self::ipv6(packet),
            _ => None,
        }
    }

    fn ipv4(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = packet.first_chunk()?;
        if header[0] >> 4 != 4 {
            return None;
        }
        let length = usize::from(header[0] & 15) * 4;
        let is_first = word(packet, 6)? & 0x1fff == 0;
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        };
        let protocol = header[9];
        Some(Self {
            source: address(12)?,
            destination: address(16)?,
            protocol,
            ports: is_first.then(|| ports(packet, length, protocol)).flatten(),
        })
    }

    fn ipv6(packet: &[u8]) -> Option<Self> {
        let header: &[u8; 40] = packet.first_chunk()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        };
        let (mut protocol, mut at, mut is_first) = (header[6], 40, true);
        for _ in 0..MOST_EXTENSION_HEADERS {
            let length = match protocol {
                0 | 43 | 60 => 8 * (1 + usize::from(*packet.get(at + 1)?)),
                44 => {
                    is_first &= word(packet, at + 2)? & 0xfff8 == 0;
                    8
                }
                _ => break,
            };
            protocol = *packet.get(at)?;
            at += length;
            if !is_first {
                break;
            }
        }
        Some(Self {
            source: address(8)?,
            destination: address(24)?,
            protocol,
            ports: is_first.then(|| ports(packet, at, protocol)).flatten(),
        })
    }
}

fn ports(packet: &[u8], at: usize, protocol: u8) -> Option<(u16, u16)> {
    if !WITH_PORTS.contains(&protocol) {
        return None;
    }
    Some((word(packet, at)?, word(packet, at + 2)?))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_be_bytes(two))
}

/// A prefix of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Parses `ADDRESS` or `ADDRESS/LENGTH`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(digits) => digits.parse().ok().filter(|length| *length <= most)?,
            None => most,
        };
        Some(Self { address, length })
    }

    pub(super) fn holds(&self, address: IpAddr) -> bool {
        let (own, other, width) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let below = width - u32::from(self.length);
        // The shift returns `None` only for a prefix of length 0. Such a prefix contains every address.
        (own ^ other).checked_shr(below).unwrap_or(0) == 0
    }
}

/// Returns a protocol's number, given its common name or its number.
pub(super) fn protocol(text: &str) -> Option<u8> {
    let known = match text.to_ascii_lowercase().as_str() {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" => 58,
        "ospf" => 89,
        "pim" => 103,
        "vrrp" => 112,
        "sctp" => 132,
        _ => return text.parse().ok(),
    };
    Some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an Ethernet frame with this type and content.
    fn frame(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(kind.to_be_bytes());
        frame.extend(content);
        frame
    }

    fn udp4(fragment: u16) -> Vec<u8> {
        let mut packet = vec![0x46, 0, 0, 32, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1]);
        packet.extend([0x12, 0x34, 0, 53, 0, 8, 0, 0]);
        packet
    }

    fn udp6(fragment: u16) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, 0, 64];
        packet.extend(Ipv6Addr::LOCALHOST.octets());
        packet.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend([44, 0, 0, 0, 0, 0, 0, 0]); // hop by hop
        packet.extend([17, 0]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([0, 0, 0, 1]);
        packet.extend([0x12, 0x34, 0, 53, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn flows_are_read_behind_tags_options_and_extension_headers() {
        let plain = Flow::read(&frame(IPV4, &udp4(0))).unwrap();
        assert_eq!(plain.source, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(plain.destination, "10.0.0.2".parse::<IpAddr>().unwrap());
        assert_eq!((plain.protocol, plain.ports), (17, Some((0x1234, 53))));
        let tagged = frame(
            0x8100,
            &[&[0, 5], &0x0800u16.to_be_bytes()[..], &udp4(0)].concat(),
        );
        assert_eq!(Flow::read(&tagged), Some(plain));
        let later = Flow::read(&frame(IPV4, &udp4(7))).unwrap();
        assert_eq!((later.protocol, later.ports), (17, None));
        let six = Flow::read(&frame(IPV6, &udp6(1))).unwrap();
        assert_eq!((six.protocol, six.ports), (17, Some((0x1234, 53))));
        assert_eq!(Flow::read(&frame(IPV6, &udp6(8))).unwrap().ports, None);
    }

    #[test]
    fn what_is_cut_short_never_panics() {
        for whole in [frame(IPV4, &udp4(0)), frame(IPV6, &udp6(1))] {
            for length in 0..whole.len() {
                let _ = Flow::read(&whole[..length]);
            }
        }
        assert_eq!(Flow::read(&frame(IPV4, &udp6(0))), None);
        assert_eq!(Flow::read(&frame(0x0806, &udp4(0))), None);
    }

    #[test]
    fn prefixes_hold_what_they_say() {
        let holds = |prefix: &str, address: &str| {
            let address = address.parse().unwrap();
            Prefix::parse(prefix).unwrap().holds(address)
        };
        assert!(holds("10.0.0.0/8", "10.255.0.1"));
        assert!(!holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("0.0.0.0/0", "192.0.2.1"));
        assert!(holds("::/0", "2001:db8::1"));
        assert!(!holds("::/0", "192.0.2.1"));
        assert!(holds("2001:db8::1", "2001:db8::1"));
        assert!(!holds("2001:db8::1", "2001:db8::2"));
        for wrong in [
            "10.0.0.0/33",
            "10.0.0",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
        ] {
            assert_eq!(Prefix::parse(wrong), None, "{wrong}");
        }
    }
}
