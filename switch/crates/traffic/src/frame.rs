// SPDX-License-Identifier: Apache-2.0
//! Builds frames with correct checksums: Ethernet, an optional 802.1Q tag, IPv4 or IPv6, and UDP, TCP, ICMP echo, ESP
//! or any other protocol.

use std::net::IpAddr;
use std::str::FromStr;

use crate::flows::Flow;
use crate::probe::{PROBE, Probe};

/// Minimum length of an Ethernet frame in bytes, without its check sequence.
const MIN_FRAME: usize = 60;
/// Maximum length of a frame in bytes: an IP packet of 65,535 bytes in tagged Ethernet.
const MAX_FRAME: usize = 65_535 + 18;
/// Sizes of the simple IMIX in bytes, without the check sequence: 7 small, 4 medium and 1 large.
const IMIX: [usize; 12] = [60, 60, 590, 60, 60, 590, 60, 590, 60, 590, 60, 1514];

/// IP numbers of protocols for which this module writes a header.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ESP: u8 = 50;
pub(crate) const ICMPV6: u8 = 58;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let octets: Option<Vec<u8>> = text
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).ok())
            .collect();
        let mac = octets.and_then(|octets| octets.try_into().ok());
        mac.map(Self)
            .ok_or_else(|| format!("{text:?} is not a MAC address (such as 02:00:00:00:00:01)"))
    }
}

/// Sizes of frames in bytes, without the check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Fixed(usize),
    Imix,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("imix", _) => Ok(Self::Imix),
            (_, Ok(size @ MIN_FRAME..=MAX_FRAME)) => Ok(Self::Fixed(size)),
            _ => Err(format!(
                "{text:?} is not a frame size: use imix, or {MIN_FRAME} to {MAX_FRAME} bytes"
            )),
        }
    }
}

/// The transport protocol, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Udp,
    Tcp,
    /// Echo request in the ICMP version of the address family.
    Icmp,
    Esp,
    Other(u8),
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("udp", _) => Ok(Self::Udp),
            ("tcp", _) => Ok(Self::Tcp),
            ("icmp", _) => Ok(Self::Icmp),
            ("esp", _) => Ok(Self::Esp),
            (_, Ok(number)) => Ok(Self::Other(number)),
            _ => Err(format!(
                "{text:?} is not a protocol: use udp, tcp, icmp, esp or 0 to 255"
            )),
        }
    }
}

impl Protocol {
    fn number(self, is_v6: bool) -> u8 {
        match self {
            Self::Udp => UDP,
            Self::Tcp => TCP,
            Self::Icmp if is_v6 => ICMPV6,
            Self::Icmp => ICMP,
            Self::Esp => ESP,
            Self::Other(number) => number,
        }
    }
}

/// Returns the length of a protocol's header in bytes, as this module writes it.
pub(crate) fn transport_header(protocol: u8) -> usize {
    match protocol {
        TCP => 20,
        UDP | ICMP | ICMPV6 | ESP => 8,
        _ => 0,
    }
}

/// Properties that are equal for all frames of a run.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) source_mac: Mac,
    pub(crate) destination_mac: Mac,
    pub(crate) vlan: Option<u16>,
    pub(crate) protocol: Protocol,
    pub(crate) size: Size,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dont_fragment: bool,
}

/// Builds frames one after another in the same buffer.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    shape: Shape,
    sizes: Vec<usize>,
    next_size: usize,
    frame: Vec<u8>,
    identification: u16,
}

impl Builder {
    /// Creates a builder for flows of one address family.
    ///
    /// # Errors
    /// The probe does not fit into the frame size.
    pub(crate) fn new(shape: Shape, is_v6: bool) -> Result<Self, String> {
        let link = if shape.vlan.is_some() { 18 } else { 14 };
        let headers =
            link + if is_v6 { 40 } else { 20 } + transport_header(shape.protocol.number(is_v6));
        let smallest = (headers + PROBE).max(MIN_FRAME);
        let largest = link + 65_535;
        let sizes = match shape.size {
            Size::Imix => IMIX.iter().map(|size| (*size).max(smallest)).collect(),
            Size::Fixed(size) if size < smallest => {
                return Err(format!(
                    "a frame of {size} bytes is too short: headers and probe need {smallest}"
                ));
            }
            Size::Fixed(size) if size > largest => {
                return Err(format!(
                    "a frame of {size} bytes is too long: IP allows {largest}"
                ));
            }
            Size::Fixed(size) => vec![size],
        };
        Ok(Self {
            shape,
            sizes,
            next_size: 0,
            frame: Vec::new(),
            identification: 0,
        })
    }

    /// Builds the next frame.
    pub(crate) fn build(&mut self, flow: &Flow, probe: &Probe) -> &[u8] {
        let size = self.sizes[self.next_size];
        self.next_size = (self.next_size + 1) % self.sizes.len();
        self.frame.resize(size, 0);
        let link = self.write_link(flow.source.is_ipv6());
        let (_, packet) = self.frame.split_at_mut(link);
        let protocol = self.shape.protocol.number(flow.source.is_ipv6());
        let transport = match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.identification = self.identification.wrapping_add(1);
                let addresses = [source.octets(), destination.octets()];
                write_ipv4(
                    packet,
                    &self.shape,
                    protocol,
                    self.identification,
                    addresses,
                )
            }
            _ => write_ipv6(packet, &self.shape, protocol, flow),
        };
        write_transport(transport, protocol, flow, probe);
        &self.frame
    }

    fn write_link(&mut self, is_v6: bool) -> usize {
        let Shape {
            destination_mac,
            source_mac,
            vlan,
            ..
        } = self.shape;
        self.frame[..6].copy_from_slice(&destination_mac.0);
        self.frame[6..12].copy_from_slice(&source_mac.0);
        let mut at = 12;
        if let Some(vlan) = vlan {
            self.frame[at..at + 2].copy_from_slice(&0x8100_u16.to_be_bytes());
            self.frame[at + 2..at + 4].copy_from_slice(&vlan.to_be_bytes());
            at += 4;
        }
        let ether_type: u16 = if is_v6 { 0x86dd } else { 0x0800 };
        self.frame[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
        at + 2
    }
}

/// Writes the IPv4 header. Returns the rest of the packet.
fn write_ipv4<'p>(
    packet: &'p mut [u8],
    shape: &Shape,
    protocol: u8,
    identification: u16,
    [source, destination]: [[u8; 4]; 2],
) -> &'p mut [u8] {
    let length = packet.len() as u16;
    let (header, rest) = packet.split_at_mut(20);
    header[0] = 0x45;
    header[1] = shape.traffic_class;
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    let flags: u16 = if shape.dont_fragment { 0x4000 } else { 0 };
    header[6..8].copy_from_slice(&flags.to_be_bytes());
    header[8] = shape.hop_limit;
    header[9] = protocol;
    header[10..12].fill(0);
    header[12..16].copy_from_slice(&source);
    header[16..20].copy_from_slice(&destination);
    let checksum = sluice_checksum::checksum(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    rest
}

/// Writes the IPv6 header. Returns the rest of the packet.
fn write_ipv6<'p>(packet: &'p mut [u8], shape: &Shape, protocol: u8, flow: &Flow) -> &'p mut [u8] {
    let (header, rest) = packet.split_at_mut(40);
    let first = 6 << 28 | u32::from(shape.traffic_class) << 20 | flow.flow_label & 0xf_ffff;
    header[..4].copy_from_slice(&first.to_be_bytes());
    header[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    header[6] = protocol;
    header[7] = shape.hop_limit;
    for (place, address) in [(8, flow.source), (24, flow.destination)] {
        if let IpAddr::V6(address) = address {
            header[place..place + 16].copy_from_slice(&address.octets());
        }
    }
    rest
}

/// Writes the transport header, if the protocol has one, and the probe.
fn write_transport(segment: &mut [u8], protocol: u8, flow: &Flow, probe: &Probe) {
    let length = segment.len();
    let (header, payload) = segment.split_at_mut(transport_header(protocol));
    header.fill(0);
    probe.write(payload);
    let ports = flow.source_number << 16 | flow.destination_number & 0xffff;
    let checksum_at = match protocol {
        UDP => {
            header[..4].copy_from_slice(&ports.to_be_bytes());
            header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            6
        }
        TCP => {
            header[..4].copy_from_slice(&ports.to_be_bytes());
            header[4..8].copy_from_slice(&(probe.sequence as u32).to_be_bytes());
            header[12] = 0x50; // Five words of header.
            header[13] = 0x10; // The ACK flag.
            header[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
            16
        }
        ICMP | ICMPV6 => {
            header[0] = if protocol == ICMP { 8 } else { 128 };
            header[4..6].copy_from_slice(&(flow.source_number as u16).to_be_bytes());
            header[6..8].copy_from_slice(&(probe.sequence as u16).to_be_bytes());
            2
        }
        ESP => {
            header[..4].copy_from_slice(&flow.source_number.to_be_bytes());
            header[4..8].copy_from_slice(&(probe.sequence as u32).wrapping_add(1).to_be_bytes());
            return;
        }
        _ => return,
    };
    let sum = match protocol {
        ICMP => 0,
        _ => sluice_checksum::pseudo_header(flow.source, flow.destination, protocol, length),
    };
    let checksum = sluice_checksum::finish(sluice_checksum::sum(sum, segment));
    // A UDP checksum of 0 would mean "no checksum" (RFC 768).
    let checksum = if protocol == UDP && checksum == 0 {
        0xffff
    } else {
        checksum
    };
    segment[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
}
