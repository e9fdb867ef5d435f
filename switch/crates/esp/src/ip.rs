// SPDX-License-Identifier: Apache-2.0
//! Parses IPv4 and IPv6 packets into checked views, and computes checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::shim::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

/// IP protocol numbers.
pub mod protocol {
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// ESP.
    pub const ESP: u8 = 50;
    /// No next header: marks a dummy packet in ESP.
    pub const NONE: u8 = 59;
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Don't Fragment flag, in the upper byte of the fragment field.
pub const DF: u8 = 0x40;

/// Result of parsing an IP packet's headers. Offsets count from the packet's beginning. Invariant: all offsets lie
/// within the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// 4 or 6.
    pub version: u8,
    /// Length of the packet.
    pub length: usize,
    /// Offset of the upper layer, after options and extension headers.
    pub upper: usize,
    /// Protocol of the upper layer.
    pub protocol: u8,
    /// Offset of the byte that contains `protocol`.
    pub protocol_at: usize,
    /// Whether the packet is a fragment.
    pub fragment: bool,
    /// IPv6: offset of the first byte after the last hop-by-hop or routing header. ESP in transport mode begins at this
    /// offset (RFC 4303, 3.1.1).
    pub hops_end: usize,
    /// Offset of the byte that names the header at `hops_end`.
    pub hops_next_at: usize,
}

impl View {
    /// Parses the packet at the beginning of `bytes`. Ignores bytes after the packet's end.
    ///
    /// Inlined, so that the fields stay in registers. Otherwise the view would be returned through memory, by stores
    /// that are narrower than the loads that read it. The CPU cannot forward such stores, so each load would wait until
    /// the stores reach the cache.
    #[inline(always)]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::read_ipv4(bytes),
            6 => Self::read_ipv6(bytes),
            _ => None,
        }
    }

    /// Parses the packet. Returns None if its version does not match the EtherType.
    #[inline(always)]
    pub fn of(ether_type: u16, bytes: &[u8]) -> Option<Self> {
        Self::read(bytes).filter(|view| view.ether_type() == ether_type)
    }

    #[inline(always)]
    fn read_ipv4(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..IPV4_HEADER)?;
        let upper = usize::from(header[0] & 15) * 4;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if upper < IPV4_HEADER || length < upper || bytes.len() < length {
            return None;
        }
        Some(Self {
            version: 4,
            length,
            upper,
            protocol: header[9],
            protocol_at: 9,
            // A fragment has the "more fragments" flag, or an offset above 0.
            fragment: header[6] & 0x3f != 0 || header[7] != 0,
            hops_end: upper,
            hops_next_at: 9,
        })
    }

    #[inline(always)]
    fn read_ipv6(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..IPV6_HEADER)?;
        let length = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let bytes = bytes.get(..length)?;
        let mut view = Self {
            version: 6,
            length,
            upper: IPV6_HEADER,
            protocol: header[6],
            protocol_at: 6,
            fragment: false,
            hops_end: IPV6_HEADER,
            hops_next_at: 6,
        };
        loop {
            let size = match view.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => {
                    8 + usize::from(*bytes.get(view.upper + 1)?) * 8
                }
                FRAGMENT => {
                    let fields = bytes.get(view.upper + 2..view.upper + 4)?;
                    // The lowest three bits are two reserved bits and "more fragments".
                    let field = u16::from_be_bytes([fields[0], fields[1]]);
                    view.fragment |= field & 0xfff9 != 0;
                    if field & 0xfff8 != 0 {
                        // A fragment with an offset above 0 has data here instead of a header.
                        view.protocol_at = view.upper;
                        view.protocol = *bytes.get(view.upper)?;
                        view.upper += 8;
                        return (view.upper <= length).then_some(view);
                    }
                    8
                }
                _ => return Some(view),
            };
            let for_hops = matches!(view.protocol, HOP_BY_HOP | ROUTING);
            view.protocol_at = view.upper;
            view.protocol = *bytes.get(view.upper)?;
            view.upper += size;
            if view.upper > length {
                return None;
            }
            if for_hops {
                view.hops_end = view.upper;
                view.hops_next_at = view.protocol_at;
            }
        }
    }

    /// Returns the EtherType of the packet's IP version.
    pub fn ether_type(&self) -> u16 {
        Self::of_version(self.version)
    }

    /// Returns the EtherType of an IP version.
    pub fn of_version(version: u8) -> u16 {
        if version == 4 {
            ETHERTYPE_IPV4
        } else {
            ETHERTYPE_IPV6
        }
    }
}

/// Fragment fields of a packet. Offsets into the packet count from its beginning. Invariant: these offsets lie within
/// the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Identification. Together with the addresses it identifies the datagram.
    pub identification: u32,
    /// Offset of the fragment's data in the datagram.
    pub offset: usize,
    /// Whether the fragment is the last one of its datagram.
    pub last: bool,
    /// Offset of the fragment's data in the packet.
    pub data: usize,
    /// Offset of the packet's end.
    pub end: usize,
    /// Protocol of the datagram. For IPv6, the type of the first header after the fragment header.
    pub protocol: u8,
    /// IPv6: offset of the byte that contains the type of the fragment header.
    next_at: Option<usize>,
}

impl Fragment {
    /// Reads the fragment fields of a parsed packet that is a fragment.
    pub fn read(packet: &[u8], view: &View) -> Option<Self> {
        if view.version == 4 {
            let field = u16::from_be_bytes([packet[6], packet[7]]);
            return Some(Self {
                identification: u32::from(u16::from_be_bytes([packet[4], packet[5]])),
                offset: usize::from(field & 0x1fff) * 8,
                last: field & 0x2000 == 0,
                data: view.upper,
                end: view.length,
                protocol: view.protocol,
                next_at: None,
            });
        }
        let (mut next_at, mut at) = (6, IPV6_HEADER);
        while packet[next_at] != FRAGMENT {
            next_at = at;
            at += 8 + usize::from(*packet.get(at + 1)?) * 8;
            packet.get(at)?;
        }
        let header = packet.get(at..at + 8)?;
        let field = u16::from_be_bytes([header[2], header[3]]);
        Some(Self {
            identification: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            offset: usize::from(field & 0xfff8),
            last: field & 1 == 0,
            data: at + 8,
            end: view.length,
            protocol: header[0],
            next_at: Some(next_at),
        })
    }

    /// Turns the first fragment's header into the header of the whole datagram, whose payload has `length` bytes.
    /// Returns the payload's offset, or None if the datagram is longer than an IP packet can be.
    pub(crate) fn unfragmented(&self, header: &mut [u8], length: usize) -> Option<usize> {
        let Some(next_at) = self.next_at else {
            let whole = u16::try_from(header.len() + length).ok()?;
            header[2..4].copy_from_slice(&whole.to_be_bytes());
            header[6..8].fill(0);
            write_ipv4_checksum(header);
            return Some(header.len());
        };
        let at = self.data - 8;
        let whole = u16::try_from(at - IPV6_HEADER + length).ok()?;
        header[4..6].copy_from_slice(&whole.to_be_bytes());
        header[next_at] = self.protocol;
        Some(at)
    }
}

/// Returns source and destination of a parsed packet.
pub fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    fn four(bytes: &[u8]) -> IpAddr {
        let mut address = [0; 4];
        address.copy_from_slice(bytes);
        Ipv4Addr::from(address).into()
    }
    fn six(bytes: &[u8]) -> IpAddr {
        let mut address = [0; 16];
        address.copy_from_slice(bytes);
        Ipv6Addr::from(address).into()
    }
    if packet[0] >> 4 == 4 {
        (four(&packet[12..16]), four(&packet[16..20]))
    } else {
        (six(&packet[8..24]), six(&packet[24..40]))
    }
}

/// Returns DSCP and ECN of a parsed packet.
pub fn traffic_class(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 {
        packet[1]
    } else {
        packet[0] << 4 | packet[1] >> 4
    }
}

/// Sets DSCP and ECN, and updates the checksum of an IPv4 header.
pub fn set_traffic_class(packet: &mut [u8], class: u8) {
    if packet[0] >> 4 == 4 {
        let before = u16::from_be_bytes([packet[0], packet[1]]);
        packet[1] = class;
        let after = u16::from_be_bytes([packet[0], packet[1]]);
        let checksum = u16::from_be_bytes([packet[10], packet[11]]);
        // The update is incremental (RFC 1624). So a checksum that was wrong stays wrong.
        let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
        packet[10..12].copy_from_slice(&sluice_checksum::finish(sum.into()).to_be_bytes());
    } else {
        packet[0] = packet[0] & 0xf0 | class >> 4;
        packet[1] = packet[1] & 0x0f | class << 4;
    }
}

/// Computes and writes an IPv4 header's checksum.
pub fn write_ipv4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = sluice_checksum::checksum(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Computes an upper-layer checksum with the pseudo-header of its packet. The checksum field must be 0.
pub fn upper_checksum(packet: &[u8], upper: usize, length: usize, protocol: u8) -> u16 {
    let addresses = if packet[0] >> 4 == 4 {
        &packet[12..20]
    } else {
        &packet[8..40]
    };
    let pseudo = sluice_checksum::sum(u64::from(protocol) + length as u64, addresses);
    sluice_checksum::finish(sluice_checksum::sum(pseudo, &packet[upper..upper + length]))
}
