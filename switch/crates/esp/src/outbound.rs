// SPDX-License-Identifier: Apache-2.0
//! One outbound SA: a packet in clear becomes an ESP packet.

use std::net::IpAddr;

use crate::cipher::{Cipher, HEADER, TRAILER};
use crate::counters::{Counters, Drop};
use crate::ip::{self, View, protocol};
use crate::lifetime::{Age, Lifetime, Nanoseconds};
use crate::reservation::{Fingerprint, Numbers};
use crate::shim::PACKET;
use crate::spec::{DontFragment, Mode, SaSpec};

const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const DEFAULT_TTL: u8 = 64;
const MAX_IP: usize = 65_535;

/// An SA that encrypts.
pub struct OutboundSa {
    spec: SaSpec,
    local: IpAddr,
    remote: IpAddr,
    /// None once a hard lifetime has ended it.
    cipher: Option<Cipher>,
    numbers: Numbers,
    lifetime: Lifetime,
    counters: Counters,
}

impl OutboundSa {
    /// An SA whose specification was checked. It keeps no copy of the keys but the cipher's.
    ///
    /// # Errors
    /// Says what is wrong with the keys.
    pub fn new(mut spec: SaSpec, numbers: Numbers, now: Nanoseconds) -> Result<Self, String> {
        let (key, integrity) = (spec.key_or_none(), spec.integrity_key_or_none());
        (spec.key, spec.integrity_key) = (None, None);
        let (Some(local), Some(remote)) = (spec.local, spec.remote) else {
            return Err("an outbound SA has local and remote".into());
        };
        Ok(Self {
            cipher: Some(Cipher::new(spec.algorithm, &key, &integrity, spec.esn)?),
            lifetime: Lifetime::new(spec.soft, spec.hard, now),
            spec,
            local,
            remote,
            numbers,
            counters: Counters::default(),
        })
    }

    /// Its specification, without keys.
    pub fn spec(&self) -> &SaSpec {
        &self.spec
    }

    /// Counts of its packets.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a drop.
    pub(crate) fn dropped(&mut self, why: Drop) {
        self.counters.dropped(why);
    }

    /// Stands for its keys.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.numbers.fingerprint()
    }

    /// The last sequence number that it used, or left out after a restart.
    pub fn sequence(&self) -> u64 {
        self.numbers.last()
    }

    /// Where its packets go now, and to which port if they are in UDP.
    pub fn peer(&self) -> (IpAddr, Option<u16>) {
        (
            self.remote,
            self.spec.encapsulation.map(|ports| ports.remote_port),
        )
    }

    /// The peer is at another address or port now; true if that is news.
    pub(crate) fn follow(&mut self, address: IpAddr, port: u16) -> bool {
        let Some(ports) = &mut self.spec.encapsulation else {
            return false;
        };
        // In transport mode the address is the packets' own.
        let address = match self.spec.mode {
            Mode::Tunnel if address.is_ipv4() == self.local.is_ipv4() => address,
            _ => self.remote,
        };
        if self.remote == address && ports.remote_port == port {
            return false;
        }
        self.remote = address;
        ports.remote_port = port;
        self.counters.peer_moved += 1;
        true
    }

    /// Looks at the clock: an SA whose time is over gives up its keys.
    pub fn tick(&mut self, now: Nanoseconds) -> Age {
        let age = self.lifetime.tick(now);
        if age == Age::Hard {
            self.cipher = None;
        }
        self.lifetime.age().max(age)
    }

    /// Encrypts a packet into `out`, where a frame's shim ends; returns where the ESP packet ends. A sequence number
    /// and bytes of a lifetime that were counted stay used, whatever follows.
    ///
    /// # Errors
    /// The drop that it is; nothing of `out` may be sent then.
    pub fn seal(
        &mut self,
        packet: &[u8],
        view: &View,
        now: Nanoseconds,
        out: &mut [u8],
    ) -> Result<usize, Drop> {
        let packet = &packet[..view.length];
        let plan = self.plan(packet, view)?;
        if !self.lifetime.serves(packet.len(), now) {
            self.cipher = None;
            return Err(Drop::HardLifetime);
        }
        let cipher = self.cipher.as_ref().ok_or(Drop::HardLifetime)?;
        let sequence = self.numbers.take()?;

        let whole = &mut out[PACKET..PACKET + plan.length];
        let esp = plan.esp;
        let payload = esp + HEADER + cipher.algorithm().iv_len();
        whole[esp..esp + 4].copy_from_slice(&self.spec.spi.to_be_bytes());
        whole[esp + 4..esp + HEADER].copy_from_slice(&(sequence as u32).to_be_bytes());
        let inside = &packet[plan.inside..];
        whole[payload..payload + inside.len()].copy_from_slice(inside);
        let mut end = payload + inside.len();
        whole[end..end + plan.tfc].fill(0);
        end += plan.tfc;
        for number in 1..=plan.padding {
            whole[end] = number;
            end += 1;
        }
        whole[end] = plan.padding;
        whole[end + 1] = plan.next_header;
        cipher.seal(sequence, &mut whole[esp..])?;
        self.write_headers(packet, view, &plan, sequence, whole);
        self.counters.served(packet.len());
        Ok(PACKET + plan.length)
    }

    /// Where everything of the packet will be.
    fn plan(&self, packet: &[u8], view: &View) -> Result<Plan, Drop> {
        let udp = if self.spec.encapsulation.is_some() {
            UDP_HEADER
        } else {
            0
        };
        let (ip, inside, next_header) = match self.spec.mode {
            Mode::Tunnel => {
                let ip = if self.local.is_ipv4() {
                    IPV4_HEADER
                } else {
                    IPV6_HEADER
                };
                let inner = if view.version == 4 {
                    protocol::IPV4
                } else {
                    protocol::IPV6
                };
                (ip, 0, inner)
            }
            Mode::Transport => {
                if ip::addresses(packet) != (self.local, self.remote) {
                    return Err(Drop::TransportAddresses);
                }
                if view.fragment {
                    return Err(Drop::TransportFragment);
                }
                (view.hops_end, view.hops_end, packet[view.hops_next_at])
            }
        };
        let algorithm = self.spec.algorithm;
        let length = packet.len() - inside;
        let tfc = usize::from(self.spec.tfc_pad_to).saturating_sub(length);
        let padding = (length + tfc + TRAILER).wrapping_neg() % algorithm.block();
        let esp = ip + udp;
        let text = length + tfc + padding + TRAILER;
        let whole = esp + HEADER + algorithm.iv_len() + text + algorithm.icv_len();
        // The length field of IPv6 does not count its header of 40 bytes.
        let most = if self.local.is_ipv4() {
            MAX_IP
        } else {
            MAX_IP + IPV6_HEADER
        };
        if whole > most || whole - ip > MAX_IP {
            return Err(Drop::TooLong);
        }
        Ok(Plan {
            ip,
            esp,
            inside,
            next_header,
            tfc,
            padding: padding as u8,
            length: whole,
        })
    }

    fn write_headers(
        &self,
        packet: &[u8],
        view: &View,
        plan: &Plan,
        sequence: u64,
        whole: &mut [u8],
    ) {
        let carried = match self.spec.encapsulation {
            Some(_) => protocol::UDP,
            None => protocol::ESP,
        };
        let length = (plan.length as u16).to_be_bytes();
        match self.spec.mode {
            Mode::Transport => {
                whole[..plan.ip].copy_from_slice(&packet[..plan.ip]);
                whole[view.hops_next_at] = carried;
                if view.version == 4 {
                    whole[2..4].copy_from_slice(&length);
                    ip::write_ipv4_checksum(&mut whole[..plan.ip]);
                } else {
                    let payload = (plan.length - IPV6_HEADER) as u16;
                    whole[4..6].copy_from_slice(&payload.to_be_bytes());
                }
            }
            Mode::Tunnel => self.write_outer(packet, view, carried, sequence, whole),
        }
        if let Some(ports) = self.spec.encapsulation {
            let size = plan.length - plan.ip;
            let udp = &mut whole[plan.ip..plan.esp];
            udp[..2].copy_from_slice(&ports.local_port.to_be_bytes());
            udp[2..4].copy_from_slice(&ports.remote_port.to_be_bytes());
            udp[4..6].copy_from_slice(&(size as u16).to_be_bytes());
            udp[6..8].fill(0);
            // None over IPv4 (RFC 3948, 2.1); IPv6 requires one.
            if whole[0] >> 4 == 6 {
                let checksum = match ip::upper_checksum(whole, plan.ip, size, protocol::UDP) {
                    0 => 0xffff,
                    other => other,
                };
                whole[plan.ip + 6..plan.esp].copy_from_slice(&checksum.to_be_bytes());
            }
        }
    }

    fn write_outer(
        &self,
        packet: &[u8],
        view: &View,
        carried: u8,
        sequence: u64,
        whole: &mut [u8],
    ) {
        let inner = ip::traffic_class(packet);
        let ecn = if self.spec.ecn { inner & 3 } else { 0 };
        let class = self.spec.dscp.map_or(inner & 0xfc, |dscp| dscp << 2) | ecn;
        let ttl = self.spec.ttl.unwrap_or(DEFAULT_TTL);
        match (self.local, self.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let df = match self.spec.df {
                    DontFragment::Set => true,
                    DontFragment::Clear => false,
                    DontFragment::Copy => view.version == 6 || packet[6] & ip::DF != 0,
                };
                // Packets that may be fragmented differ in their identification (RFC 6864).
                let identification = if df { 0 } else { sequence as u16 };
                let length = whole.len() as u16;
                whole[..2].copy_from_slice(&[0x45, class]);
                whole[2..4].copy_from_slice(&length.to_be_bytes());
                whole[4..6].copy_from_slice(&identification.to_be_bytes());
                whole[6..10].copy_from_slice(&[if df { ip::DF } else { 0 }, 0, ttl, carried]);
                whole[12..16].copy_from_slice(&local.octets());
                whole[16..20].copy_from_slice(&remote.octets());
                ip::write_ipv4_checksum(&mut whole[..IPV4_HEADER]);
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let length = (whole.len() - IPV6_HEADER) as u16;
                whole[..4].copy_from_slice(&[0x60 | class >> 4, class << 4, 0, 0]);
                whole[4..6].copy_from_slice(&length.to_be_bytes());
                whole[6..8].copy_from_slice(&[carried, ttl]);
                whole[8..24].copy_from_slice(&local.octets());
                whole[24..40].copy_from_slice(&remote.octets());
            }
            // `SaSpec::check` and `follow` keep both of one family.
            _ => whole.fill(0),
        }
    }
}

/// Offsets and lengths within the ESP packet, from its outer header on.
struct Plan {
    /// Length of the IP header, extensions included.
    ip: usize,
    /// Where SPI and sequence number are.
    esp: usize,
    /// Where in the packet in clear that begins which is encrypted.
    inside: usize,
    next_header: u8,
    /// Bytes of zeros before the padding.
    tfc: usize,
    padding: u8,
    length: usize,
}
