// SPDX-License-Identifier: Apache-2.0
//! What may pass without Python: pure decisions by the tables that Python has given.
//!
//! Every answer is "passes, in this way" or nothing, which means: ask Python. Nothing is refused
//! here, so that Python alone names what it refuses. Whether a frame passes depends on the tables
//! and on what all whole packets of its flow have in common: a flow keeps its way, and with it its
//! order, for as long as the tables stay.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::frame::{Frame, Packet, Payload, UDP};
use crate::tap::device::Mac;

/// Tables that stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Place of the reason among the metadata of a packet-in.
    pub reason: usize,
    /// Place of the layer-3 interface that it came by.
    pub interface: usize,
    /// Reasons that are for the host, and whether what comes by them is IP.
    pub for_the_host: BTreeMap<u128, bool>,
    /// EtherTypes other than IP that the host sends.
    pub link_protocols: HashSet<u16>,
    /// Protocols of IP that the host sends; of ICMP also the type has to be listed.
    pub protocols: HashSet<u8>,
    /// Protocol and type of ICMP messages that are no errors.
    pub icmp: HashSet<(u8, u8)>,
    /// UDP ports from and to which Python alone lets the host send.
    pub withheld_ports: HashSet<u16>,
    /// UDP that the host may send in a VRF other than the default one.
    pub vrf_ports: Vec<Ports>,
    /// Protocols, UDP not among them, that the host may get and send in such a VRF.
    pub answered_in_place: HashSet<u8>,
    /// UDP ports to which the host may get datagrams in such a VRF.
    pub answered_ports: HashSet<u16>,
    /// Whether Python has to hear of IP packets that were delivered.
    pub remember: bool,
}

/// Source and destination ports.
pub type Ports = (RangeInclusive<u16>, RangeInclusive<u16>);

/// What Python knows of the interfaces at this moment.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    /// TAPs by ifindex.
    pub taps: HashMap<u32, Tap>,
    /// Their ifindexes by layer-3 interface.
    pub by_l3_if: HashMap<u128, u32>,
    /// By VRF, the addresses that are this router's in this VRF and in no other.
    pub sources: HashMap<u32, HashSet<IpAddr>>,
}

/// One TAP.
#[derive(Clone, Debug)]
pub struct Tap {
    /// The VRF of its interface; 0 is the default one.
    pub vrf: u32,
    /// MAC addresses that the host has on it.
    pub macs: Vec<Mac>,
    /// Metadata of a packet-out that is not IP.
    pub link_metadata: Arc<[u128]>,
    /// Metadata of a packet-out that is IP.
    pub ip_metadata: Arc<[u128]>,
    /// Frames of this TAP that wait for the switch.
    pub waiting: Arc<AtomicUsize>,
}

const DEFAULT_VRF: u32 = 0;

/// Decides about a frame of the host's; returns its TAP and the metadata to send it with.
pub(super) fn from_host<'i>(
    rules: &Rules,
    interfaces: &'i Interfaces,
    index: u32,
    frame: &[u8],
) -> Option<(&'i Tap, &'i [u128])> {
    let tap = interfaces.taps.get(&index)?;
    let frame = Frame::of(frame)?;
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

/// Decides about a packet-in; returns the ifindex of the TAP that it is for, and whether it is IP.
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
    /// Whether the host's packet is of a kind that says nothing about another packet and that
    /// Python has no use for.
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

    /// Whether a connection or a daemon has chosen the interface by which this leaves.
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

    /// Whether the host answers this, if at all, from the address that it was sent to.
    fn is_answered_in_place(&self, frame: &[u8]) -> Option<bool> {
        let (version, packet) = match Frame::of(frame)?.payload {
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
