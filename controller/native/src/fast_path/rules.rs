// SPDX-License-Identifier: Apache-2.0
//! Decides which frames the fast path forwards, using tables that Python sets. Does no I/O.
//!
//! If a frame passes, the decision names the TAP. For a frame from the host, it also gives the
//! metadata of the packet-out. `None` means that Python must handle the frame. This module never
//! drops a frame, so only Python counts frames that are not allowed.
//!
//! The decision depends only on the tables, and on fields that are equal in all unfragmented
//! packets of a flow. So until the tables change, all packets of a flow take the same path (through
//! Python or not) and stay in order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::frame::{Packet, ParsedFrame, Payload, UDP};
use crate::tap::device::Mac;

/// Tables that stay the same while the fast path exists.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Index of the punt reason in a packet-in's metadata.
    pub reason: usize,
    /// Index of the ingress layer-3 interface in a packet-in's metadata.
    pub interface: usize,
    /// Punt reasons of packets for the host. The value is true if such packets are IP.
    pub for_the_host: BTreeMap<u128, bool>,
    /// EtherTypes other than IP that the host may send.
    pub link_protocols: HashSet<u16>,
    /// IP protocols that the host may send. For ICMP, `icmp` must also list the type.
    pub protocols: HashSet<u8>,
    /// Protocol and type of the ICMP messages that the host may send. ICMP errors are not listed.
    pub icmp: HashSet<(u8, u8)>,
    /// UDP ports that the fast path leaves to Python: it does not send packets of the host with one
    /// of them as source or destination port.
    pub withheld_ports: HashSet<u16>,
    /// UDP port ranges that the host may use for packets that it sends in a VRF other than the
    /// default VRF.
    pub vrf_ports: Vec<Ports>,
    /// Protocols other than UDP that the host may receive and send in a VRF other than the default
    /// VRF. For these protocols, the host sends each answer from the destination address of the
    /// request.
    pub answered_in_place: HashSet<u8>,
    /// Destination UDP ports of packets that the host may receive in a VRF other than the default
    /// VRF.
    pub answered_ports: HashSet<u16>,
    /// Whether Python needs copies of delivered IP packets.
    pub remember: bool,
}

/// A range of source ports and a range of destination ports.
pub type Ports = (RangeInclusive<u16>, RangeInclusive<u16>);

/// Tables of the interfaces. Python replaces all of them at once.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    /// TAPs by ifindex.
    pub taps: HashMap<u32, TapSettings>,
    /// Ifindex of the TAP for each layer-3 interface.
    pub by_l3_if: HashMap<u128, u32>,
    /// The router's addresses by VRF. An address that belongs to several VRFs is left out.
    pub sources: HashMap<u32, HashSet<IpAddr>>,
}

/// Settings of one TAP.
#[derive(Clone, Debug)]
pub struct TapSettings {
    /// VRF of the TAP's interface; 0 is the default VRF.
    pub vrf: u32,
    /// MAC addresses of the host on this TAP.
    pub macs: Vec<Mac>,
    /// Metadata of packet-outs that are not IP packets.
    pub link_metadata: Arc<[u128]>,
    /// Metadata of packet-outs that are IP packets.
    pub ip_metadata: Arc<[u128]>,
    /// Number of this TAP's frames that wait for the switch.
    pub waiting: Arc<AtomicUsize>,
}

const DEFAULT_VRF: u32 = 0;

/// Decides whether a frame from the host passes without Python. Returns the frame's TAP and the
/// metadata for the packet-out.
pub(super) fn from_host<'i>(
    rules: &Rules,
    interfaces: &'i Interfaces,
    index: u32,
    frame: &[u8],
) -> Option<(&'i TapSettings, &'i [u128])> {
    let tap = interfaces.taps.get(&index)?;
    let frame = ParsedFrame::of(frame)?;
    if frame.is_tagged {
        return None;
    }
    let (version, packet) = match frame.payload {
        Payload::Ip(version, packet) => (version, packet),
        Payload::Isis => return Some((tap, &tap.link_metadata)),
        Payload::Other(ethertype) => {
            let is_listed = rules.link_protocols.contains(&ethertype);
            return is_listed.then_some((tap, &*tap.link_metadata));
        }
    };
    let packet = Packet::of(version, packet)?;
    let is_own = tap.macs.contains(&frame.source)
        && interfaces.sources.get(&tap.vrf)?.contains(&packet.source);
    let passes = is_own
        && rules.is_ordinary(&packet)
        && (tap.vrf == DEFAULT_VRF || rules.is_of_its_vrf(&packet));
    passes.then_some((tap, &*tap.ip_metadata))
}

/// Decides whether a packet-in passes to the host without Python. Returns the ifindex of the TAP,
/// and whether the packet is IP.
pub(super) fn to_host(
    rules: &Rules,
    interfaces: &Interfaces,
    frame: &[u8],
    metadata: &[u128],
) -> Option<(u32, bool)> {
    let is_ip = *rules.for_the_host.get(metadata.get(rules.reason)?)?;
    let index = *interfaces.by_l3_if.get(metadata.get(rules.interface)?)?;
    let tap = interfaces.taps.get(&index)?;
    let passes = tap.vrf == DEFAULT_VRF || rules.is_answered_in_place(frame)?;
    passes.then_some((index, is_ip))
}

impl Rules {
    /// Returns whether the fast path may send this packet of the host. It leaves ICMP errors and
    /// packets with withheld ports to Python.
    fn is_ordinary(&self, packet: &Packet) -> bool {
        let is_icmp_error = packet
            .icmp_type()
            .is_some_and(|kind| !self.icmp.contains(&(packet.protocol, kind)));
        let is_withheld = packet.protocol == UDP
            && packet.ports().is_none_or(|(from, to)| {
                [from, to]
                    .iter()
                    .any(|port| self.withheld_ports.contains(port))
            });
        self.protocols.contains(&packet.protocol) && !is_icmp_error && !is_withheld
    }

    /// Returns whether the fast path may send this packet of the host in a VRF other than the
    /// default VRF. It may if the sending socket or daemon has itself chosen the egress interface.
    fn is_of_its_vrf(&self, packet: &Packet) -> bool {
        if packet.protocol != UDP {
            return self.answered_in_place.contains(&packet.protocol);
        }
        packet.ports().is_some_and(|(from, to)| {
            self.vrf_ports.iter().any(|(sources, destinations)| {
                sources.contains(&from) && destinations.contains(&to)
            })
        })
    }

    /// Returns whether the host sends all answers to this packet from the packet's destination
    /// address.
    fn is_answered_in_place(&self, frame: &[u8]) -> Option<bool> {
        let (version, packet) = match ParsedFrame::of(frame)?.payload {
            Payload::Ip(version, packet) => (version, packet),
            Payload::Isis => return Some(true),
            Payload::Other(ethertype) => return Some(self.link_protocols.contains(&ethertype)),
        };
        let packet = Packet::of(version, packet)?;
        if packet.protocol != UDP {
            return Some(self.answered_in_place.contains(&packet.protocol));
        }
        let (_, to) = packet.ports()?;
        Some(self.answered_ports.contains(&to))
    }
}
