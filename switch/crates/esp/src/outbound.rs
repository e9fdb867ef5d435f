// SPDX-License-Identifier: Apache-2.0
//! Encrypts packets to ESP with one outbound SA.

use std::net::IpAddr;

use crate::algorithm::Algorithm;
use crate::batch::Frame;
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
/// Bytes of the longest outer headers: IPv6 and UDP.
const TEMPLATE: usize = IPV6_HEADER + UDP_HEADER;

/// An SA that encrypts. The fields that every packet needs come first.
#[repr(C)]
pub struct OutboundSa {
    outer: OuterHeader,
    /// Cipher of the SA; None after a hard lifetime.
    cipher: Option<Cipher>,
    numbers: Numbers,
    lifetime: Lifetime,
    counters: Counters,
    local: IpAddr,
    remote: IpAddr,
    spec: Box<SaSpec>,
}

/// Fields of [`SaSpec`] that every packet needs, and the constant parts of the headers.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct OuterHeader {
    /// Template of the outer IP and UDP headers, right-aligned. Lengths, traffic class, identification and checksums
    /// are written for each packet.
    template: [u8; TEMPLATE],
    /// Ones' complement sum of the template's IP header, not folded.
    sum: u64,
    spi: u32,
    vrf: u16,
    bundle: u16,
    tfc_pad_to: u16,
    algorithm: Algorithm,
    /// Length of the IP header in tunnel mode.
    ip: u8,
    /// Length of the UDP header; 0 if there is none.
    udp: u8,
    /// DSCP of the outer header; copied from the inner packet if None.
    dscp: Option<u8>,
    ecn: bool,
    df: DontFragment,
    mode: Mode,
    version: u8,
}

impl OuterHeader {
    fn of(spec: &SaSpec, local: IpAddr, remote: IpAddr) -> Self {
        let udp = if spec.encapsulation.is_some() {
            UDP_HEADER
        } else {
            0
        };
        let carried = match udp {
            0 => protocol::ESP,
            _ => protocol::UDP,
        };
        let ttl = spec.ttl.unwrap_or(DEFAULT_TTL);
        let mut template = [0; TEMPLATE];
        let (rest, ports) = template.split_at_mut(TEMPLATE - udp);
        if let Some(encapsulation) = spec.encapsulation {
            ports[..2].copy_from_slice(&encapsulation.local_port.to_be_bytes());
            ports[2..4].copy_from_slice(&encapsulation.remote_port.to_be_bytes());
        }
        let (ip, version) = match (local, remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let header = &mut rest[TEMPLATE - udp - IPV4_HEADER..];
                header[0] = 0x45;
                header[8..10].copy_from_slice(&[ttl, carried]);
                header[12..16].copy_from_slice(&local.octets());
                header[16..20].copy_from_slice(&remote.octets());
                (IPV4_HEADER, 4)
            }
            (local, remote) => {
                let header = &mut rest[TEMPLATE - udp - IPV6_HEADER..];
                header[0] = 0x60;
                header[6..8].copy_from_slice(&[carried, ttl]);
                for (at, address) in [(8, local), (24, remote)] {
                    // Invariant: local and remote address have the same family. `SaSpec::check` and `follow` ensure
                    // this.
                    if let IpAddr::V6(address) = address {
                        header[at..at + 16].copy_from_slice(&address.octets());
                    }
                }
                (IPV6_HEADER, 6)
            }
        };
        Self {
            sum: sluice_checksum::sum(0, &template[TEMPLATE - udp - ip..TEMPLATE - udp]),
            template,
            spi: spec.spi,
            vrf: spec.vrf,
            bundle: spec.bundle,
            tfc_pad_to: spec.tfc_pad_to,
            algorithm: spec.algorithm,
            ip: ip as u8,
            udp: udp as u8,
            dscp: spec.dscp,
            ecn: spec.ecn,
            df: spec.df,
            mode: spec.mode,
            version,
        }
    }

    /// Writes the outer headers: the IP header in tunnel mode, and the UDP header if ESP is in UDP. `inner` is the
    /// traffic class of the inner packet, and `inner_df` is its DF flag.
    #[inline]
    fn write(&self, inner: u8, inner_df: bool, sequence: u64, slot: &mut [u8], plan: &Plan) {
        let Plan {
            start, esp, end, ..
        } = *plan;
        let (ip, udp) = (usize::from(self.ip), usize::from(self.udp));
        // Copies the whole template even if the headers are shorter. Order: this must come first, because it overwrites
        // the bytes in front of the headers.
        slot[esp - TEMPLATE..esp].copy_from_slice(&self.template);
        let ecn = if self.ecn { inner & 3 } else { 0 };
        let class = self.dscp.map_or(inner & 0xfc, |dscp| dscp << 2) | ecn;
        if self.version == 4 {
            let df = match self.df {
                DontFragment::Set => true,
                DontFragment::Clear => false,
                DontFragment::Copy => inner_df,
            };
            // Packets that may be fragmented need distinct identifications (RFC 6864, 4.3).
            let identification = if df { 0 } else { sequence as u16 };
            let fragment = if df { u16::from(ip::DF) << 8 } else { 0 };
            let length = (end - start) as u16;
            let header = &mut slot[start..start + IPV4_HEADER];
            header[1] = class;
            header[2..4].copy_from_slice(&length.to_be_bytes());
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            header[6..8].copy_from_slice(&fragment.to_be_bytes());
            let more = [u16::from(class), length, identification, fragment];
            let sum = more
                .into_iter()
                .fold(self.sum, |sum, one| sum + u64::from(one));
            header[10..12].copy_from_slice(&sluice_checksum::finish(sum).to_be_bytes());
        } else {
            let header = &mut slot[start..start + IPV6_HEADER];
            header[0] = 0x60 | class >> 4;
            header[1] = class << 4;
            let length = (end - start - IPV6_HEADER) as u16;
            header[4..6].copy_from_slice(&length.to_be_bytes());
        }
        if udp != 0 {
            write_udp_length(slot, start, start + ip, end);
        }
    }
}

/// Writes the UDP header's length, and its checksum if the packet is IPv6.
fn write_udp_length(frame: &mut [u8], start: usize, udp: usize, end: usize) {
    let size = end - udp;
    frame[udp + 4..udp + 6].copy_from_slice(&(size as u16).to_be_bytes());
    frame[udp + 6..udp + 8].fill(0);
    // UDP over IPv4 needs no checksum here (RFC 3948, 2.1); IPv6 requires one.
    if frame[start] >> 4 == 6 {
        let packet = &mut frame[start..end];
        let udp = udp - start;
        let checksum = match ip::upper_checksum(packet, udp, size, protocol::UDP) {
            0 => 0xffff,
            other => other,
        };
        packet[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
}

impl OutboundSa {
    /// Creates an SA from a checked specification. Only the cipher keeps a copy of the keys.
    ///
    /// # Errors
    /// Describes the problem with the keys.
    pub fn new(mut spec: SaSpec, numbers: Numbers, now: Nanoseconds) -> Result<Self, String> {
        let (key, integrity) = (spec.key_or_none(), spec.integrity_key_or_none());
        (spec.key, spec.integrity_key) = (None, None);
        let (Some(local), Some(remote)) = (spec.local, spec.remote) else {
            return Err("an outbound SA needs local and remote".into());
        };
        Ok(Self {
            outer: OuterHeader::of(&spec, local, remote),
            cipher: Some(Cipher::new(spec.algorithm, &key, &integrity, spec.esn)?),
            lifetime: Lifetime::new(spec.soft, spec.hard, now),
            spec: Box::new(spec),
            local,
            remote,
            numbers,
            counters: Counters::default(),
        })
    }

    /// Returns the SA's specification, without keys.
    pub fn spec(&self) -> &SaSpec {
        &self.spec
    }

    /// Returns the SA's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a drop.
    #[cold]
    pub(crate) fn dropped(&mut self, why: Drop) {
        self.counters.dropped(why);
    }

    /// Returns the fingerprint of the SA's keys.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.numbers.fingerprint()
    }

    /// Returns the last sequence number that was used, or that was skipped after a restart.
    pub fn sequence(&self) -> u64 {
        self.numbers.last()
    }

    /// Returns the peer's current address, and its port if packets are in UDP.
    pub fn peer(&self) -> (IpAddr, Option<u16>) {
        (
            self.remote,
            self.spec.encapsulation.map(|ports| ports.remote_port),
        )
    }

    /// Changes the peer's address and port. Returns whether the new ones differ from the old ones.
    pub(crate) fn follow(&mut self, address: IpAddr, port: u16) -> bool {
        let Some(ports) = &mut self.spec.encapsulation else {
            return false;
        };
        // In transport mode, packets keep their own destination address. So only the port may change.
        let address = match self.spec.mode {
            Mode::Tunnel if address.is_ipv4() == self.local.is_ipv4() => address,
            _ => self.remote,
        };
        if self.remote == address && ports.remote_port == port {
            return false;
        }
        self.remote = address;
        ports.remote_port = port;
        self.outer = OuterHeader::of(&self.spec, self.local, self.remote);
        self.counters.peer_moved += 1;
        true
    }

    /// Checks the lifetimes in seconds, and returns the SA's [`Age`]. An SA that has reached a hard lifetime erases its
    /// keys.
    pub fn tick(&mut self, now: Nanoseconds) -> Age {
        let age = self.lifetime.tick(now);
        if age == Age::Hard {
            self.cipher = None;
        }
        self.lifetime.age().max(age)
    }

    /// Returns the SA's VRF and bundle.
    #[inline]
    pub(crate) fn owner(&self) -> (u16, u16) {
        (self.outer.vrf, self.outer.bundle)
    }

    /// Prefetches the SA's keys. Reads the SA itself, so the caller should have prefetched it.
    #[inline]
    pub(crate) fn prefetch_keys(&self) {
        if let Some(cipher) = &self.cipher {
            cipher.prefetch();
        }
    }

    /// Encrypts the packet that follows a frame's shim, in place. Returns the range of the ESP packet in the frame's
    /// slot. A failed packet has also used up a sequence number, and counts towards the lifetime.
    ///
    /// # Errors
    /// Returns the reason of the drop. After an error, no byte of the slot may be sent.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        frame: &mut Frame<'_>,
        view: &View,
        now: Nanoseconds,
    ) -> Result<(usize, usize), Drop> {
        let start = frame.start + PACKET;
        let packet = &frame.slot[start..start + view.length];
        let plan = self.plan(packet, view, start)?;
        if !self.lifetime.serves(view.length, now) {
            self.cipher = None;
            return Err(Drop::HardLifetime);
        }
        let cipher = self.cipher.as_mut().ok_or(Drop::HardLifetime)?;
        let class = ip::traffic_class(packet);
        let df = view.version == 6 || packet[6] & ip::DF != 0;
        let sequence = self.numbers.take()?;

        let slot = &mut *frame.slot;
        if self.outer.mode == Mode::Transport {
            slot.copy_within(start..start + plan.inside, plan.start);
        }
        let header = u64::from(self.outer.spi) << 32 | sequence & 0xffff_ffff;
        slot[plan.esp..plan.esp + HEADER].copy_from_slice(&header.to_be_bytes());
        write_trailer(&plan, &mut slot[start + view.length..plan.end]);
        cipher.seal(sequence, &mut slot[plan.esp..plan.end])?;
        match self.outer.mode {
            Mode::Tunnel => self.outer.write(class, df, sequence, slot, &plan),
            Mode::Transport => self.write_transport(view, &plan, slot),
        }
        self.counters.served(view.length);
        Ok((plan.start, plan.end))
    }

    /// Computes the layout of the ESP packet.
    #[inline]
    fn plan(&self, packet: &[u8], view: &View, start: usize) -> Result<Plan, Drop> {
        let outer = &self.outer;
        let (ip, inside, next_header) = match outer.mode {
            Mode::Tunnel => {
                let inner = if view.version == 4 {
                    protocol::IPV4
                } else {
                    protocol::IPV6
                };
                (usize::from(outer.ip), 0, inner)
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
        let algorithm = outer.algorithm;
        let length = view.length - inside;
        let tfc = usize::from(outer.tfc_pad_to).saturating_sub(length);
        let padding = (length + tfc + TRAILER).wrapping_neg() & (algorithm.block() - 1);
        let payload = start + inside;
        let esp = payload - algorithm.iv_len() - HEADER;
        let first = esp - usize::from(outer.udp) - ip;
        let end = payload + length + tfc + padding + TRAILER + algorithm.icv_len();
        let whole = end - first;
        // The length field of IPv6 does not count its header of 40 bytes.
        let most = if outer.version == 4 {
            MAX_IP
        } else {
            MAX_IP + IPV6_HEADER
        };
        if whole > most || whole - ip > MAX_IP {
            return Err(Drop::TooLong);
        }
        Ok(Plan {
            start: first,
            ip,
            esp,
            inside,
            next_header,
            tfc,
            padding: padding as u8,
            end,
        })
    }

    fn write_transport(&self, view: &View, plan: &Plan, slot: &mut [u8]) {
        let carried = match self.outer.udp {
            0 => protocol::ESP,
            _ => protocol::UDP,
        };
        let whole = &mut slot[plan.start..plan.end];
        whole[view.hops_next_at] = carried;
        if view.version == 4 {
            let length = (whole.len() as u16).to_be_bytes();
            whole[2..4].copy_from_slice(&length);
            ip::write_ipv4_checksum(&mut whole[..plan.ip]);
        } else {
            let payload = (whole.len() - IPV6_HEADER) as u16;
            whole[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        if let Some(ports) = self.spec.encapsulation {
            let udp = &mut whole[plan.ip..];
            udp[..2].copy_from_slice(&ports.local_port.to_be_bytes());
            udp[2..4].copy_from_slice(&ports.remote_port.to_be_bytes());
            write_udp_length(slot, plan.start, plan.start + plan.ip, plan.end);
        }
    }
}

/// Writes the end of the payload: zeros for traffic flow confidentiality, padding, pad length and next header (RFC
/// 4303, 2.4 to 2.7). `rest` begins after the last byte of the packet in clear.
#[inline]
fn write_trailer(plan: &Plan, rest: &mut [u8]) {
    const PADDING: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    if plan.tfc != 0 {
        rest[..plan.tfc].fill(0);
    }
    let rest = &mut rest[plan.tfc..];
    let padding = usize::from(plan.padding);
    if padding <= 3 {
        // Writes 8 bytes at once. The ICV later overwrites those that are too many.
        let numbers = 0x0003_0201_u32 & ((1 << (8 * padding)) - 1);
        let trailer = u64::from(numbers)
            | u64::from(plan.padding) << (8 * padding)
            | u64::from(plan.next_header) << (8 * padding + 8);
        if let Some(word) = rest.first_chunk_mut::<8>() {
            *word = trailer.to_le_bytes();
            return;
        }
    }
    rest[..padding].copy_from_slice(&PADDING[..padding]);
    rest[padding..padding + TRAILER].copy_from_slice(&[plan.padding, plan.next_header]);
}

/// Layout of an ESP packet: offsets in the slot, and lengths.
struct Plan {
    /// Offset of the outer header.
    start: usize,
    /// Length of the IP header with its extension headers.
    ip: usize,
    /// Offset of the ESP header: SPI and sequence number.
    esp: usize,
    /// Bytes of the packet in clear that ESP encrypts.
    inside: usize,
    next_header: u8,
    /// Bytes of TFC zeros before the padding.
    tfc: usize,
    padding: u8,
    end: usize,
}
