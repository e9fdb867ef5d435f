// SPDX-License-Identifier: Apache-2.0
//! Decrypts the ESP packets of one inbound SA.

use std::net::IpAddr;

use crate::batch::Frame;
use crate::cipher::{Cipher, HEADER};
use crate::counters::{Counters, Drop};
use crate::ip::{self, View, protocol};
use crate::lifetime::{Age, Lifetime, Nanoseconds};
use crate::replay::Window;
use crate::reservation::Fingerprint;
use crate::shim::PACKET;
use crate::spec::{Mode, SaSpec};

const UDP_HEADER: usize = 8;
const NAT_TRAVERSAL: [u8; 2] = crate::spec::NAT_TRAVERSAL.to_be_bytes();
const DEFAULT_WINDOW: u32 = 64;

/// Position of the ESP header in a packet, and the header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// SPI of the ESP header.
    pub spi: u32,
    /// Lower half of the sequence number.
    pub sequence: u32,
    /// Offset of the ESP header.
    pub at: usize,
    /// UDP source port of the packet, if ESP is in UDP.
    pub port: Option<u16>,
}

impl Sealed {
    /// Finds ESP, in UDP or directly in IP.
    ///
    /// # Errors
    /// [`Drop::EspFragment`], [`Drop::NotEsp`], [`Drop::EspLength`].
    #[inline]
    pub fn find(packet: &[u8], view: &View) -> Result<Self, Drop> {
        if view.fragment {
            return Err(Drop::EspFragment);
        }
        let upper = &packet[view.upper..view.length];
        let (skipped, port) = match view.protocol {
            protocol::ESP => (0, None),
            protocol::UDP => {
                let udp = upper.get(..UDP_HEADER).ok_or(Drop::NotEsp)?;
                let size = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
                if (udp[..2] != NAT_TRAVERSAL && udp[2..4] != NAT_TRAVERSAL) || size != upper.len()
                {
                    return Err(Drop::NotEsp);
                }
                (UDP_HEADER, Some(u16::from_be_bytes([udp[0], udp[1]])))
            }
            _ => return Err(Drop::NotEsp),
        };
        let header = upper
            .get(skipped..skipped + HEADER)
            .ok_or(Drop::EspLength)?;
        let word =
            |at| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let this = Self {
            spi: word(0),
            sequence: word(4),
            at: view.upper + skipped,
            port,
        };
        // In ESP in UDP, four zero bytes instead of an SPI mark an IKE packet (RFC 3948, 2.2).
        if this.spi == 0 {
            Err(Drop::NotEsp)
        } else {
            Ok(this)
        }
    }
}

/// A decrypted packet, with its offsets in the frame's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Offset of the packet's first byte.
    pub start: usize,
    /// Offset of the packet's end.
    pub end: usize,
    /// EtherType of the packet.
    pub ether_type: u16,
    /// Address and port of the peer, if the packet came in UDP and has the highest sequence number so far.
    pub peer: Option<(IpAddr, u16)>,
}

/// An SA that decrypts. The fields that every packet needs come first.
#[repr(C, align(64))]
pub struct InboundSa {
    vrf: u16,
    bundle: u16,
    mode: Mode,
    encapsulated: bool,
    ecn: bool,
    followed_by: Option<u32>,
    window: Window,
    lifetime: Lifetime,
    /// Cipher of the SA; None after a hard lifetime.
    cipher: Option<Cipher>,
    counters: Counters,
    fingerprint: Fingerprint,
    spec: Box<SaSpec>,
}

impl InboundSa {
    /// Creates an SA from a checked specification. Only the cipher keeps a copy of the keys.
    ///
    /// # Errors
    /// Describes the problem with the keys.
    pub fn new(mut spec: SaSpec, now: Nanoseconds) -> Result<Self, String> {
        let (key, integrity) = (spec.key_or_none(), spec.integrity_key_or_none());
        (spec.key, spec.integrity_key) = (None, None);
        Ok(Self {
            vrf: spec.vrf,
            bundle: spec.bundle,
            mode: spec.mode,
            encapsulated: spec.encapsulated,
            ecn: spec.ecn,
            followed_by: spec.followed_by,
            window: Window::new(spec.replay_window.unwrap_or(DEFAULT_WINDOW), spec.esn),
            lifetime: Lifetime::new(spec.soft, spec.hard, now),
            cipher: Some(Cipher::new(spec.algorithm, &key, &integrity, spec.esn)?),
            counters: Counters::default(),
            fingerprint: crate::reservation::fingerprint(&key, &integrity),
            spec: Box::new(spec),
        })
    }

    /// Returns the SA's specification, without keys.
    pub fn spec(&self) -> &SaSpec {
        &self.spec
    }

    /// Returns the SA's VRF and bundle.
    #[inline]
    pub(crate) fn owner(&self) -> (u16, u16) {
        (self.vrf, self.bundle)
    }

    /// Returns the number of the outbound SA that follows this SA's peer to a new address, if one is configured.
    #[inline]
    pub(crate) fn followed_by(&self) -> Option<u32> {
        self.followed_by
    }

    /// Prefetches the SA's keys and window. Reads the SA itself, so the caller should have prefetched it.
    #[inline]
    pub(crate) fn prefetch_keys(&self) {
        if let Some(cipher) = &self.cipher {
            cipher.prefetch();
        }
        self.window.prefetch();
    }

    /// Returns the fingerprint of the SA's keys.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the SA's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a drop.
    pub(crate) fn dropped(&mut self, why: Drop) {
        self.counters.dropped(why);
    }

    /// Returns the highest accepted sequence number.
    pub fn sequence(&self) -> u64 {
        self.window.top()
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

    /// Decrypts the packet that follows a frame's shim, in place.
    ///
    /// # Errors
    /// Returns the reason of the drop. After an error, no byte of the slot may be sent.
    #[inline]
    pub fn open(
        &mut self,
        frame: &mut Frame<'_>,
        view: &View,
        sealed: &Sealed,
        now: Nanoseconds,
    ) -> Result<Opened, Drop> {
        if self.encapsulated != sealed.port.is_some() {
            return Err(Drop::WrongEncapsulation);
        }
        let cipher = self.cipher.as_mut().ok_or(Drop::HardLifetime)?;
        let sequence = self.window.check(sealed.sequence)?;
        let start = frame.start + PACKET;
        let whole = &mut frame.slot[start..start + view.length];
        let clear = cipher.open(sequence, &mut whole[sealed.at..])?;
        // The packet is authentic from here on.
        let newest = sequence > self.window.top();
        self.window.accept(sequence);
        let clear = sealed.at + clear.start..sealed.at + clear.end;
        let (payload, next_header) = unpadded(&whole[clear.clone()])?;
        if next_header == protocol::NONE {
            return Err(Drop::Dummy);
        }
        if !self.lifetime.serves(payload, now) {
            self.cipher = None;
            return Err(Drop::HardLifetime);
        }
        let peer = match sealed.port {
            Some(port) if newest => Some((ip::addresses(whole).0, port)),
            _ => None,
        };
        let inside = Inside {
            at: clear.start,
            payload,
            next_header,
        };
        let (from, to, ether_type) = match self.mode {
            Mode::Tunnel => self.leave_tunnel(whole, &inside)?,
            Mode::Transport => restore(whole, view, &inside, sealed)?,
        };
        self.counters.served(payload);
        Ok(Opened {
            start: start + from,
            end: start + to,
            ether_type,
            peer,
        })
    }

    /// Returns the range of a tunnel's inner packet in `whole`, and the packet's EtherType.
    fn leave_tunnel(&self, whole: &mut [u8], inside: &Inside) -> Result<(usize, usize, u16), Drop> {
        let version = match inside.next_header {
            protocol::IPV4 => 4,
            protocol::IPV6 => 6,
            _ => return Err(Drop::BadNextHeader),
        };
        let outer = ip::traffic_class(whole) & 3;
        let inner = &mut whole[inside.at..inside.at + inside.payload];
        // Bytes after the inner packet are traffic flow confidentiality padding (RFC 4303, 2.7).
        let view = View::read(inner).ok_or(Drop::InnerMalformed)?;
        if view.version != version {
            return Err(Drop::InnerMalformed);
        }
        if self.ecn {
            let class = ip::traffic_class(inner);
            let ecn = decapsulated_ecn(class & 3, outer)?;
            if ecn != class & 3 {
                ip::set_traffic_class(inner, class & 0xfc | ecn);
            }
        }
        Ok((inside.at, inside.at + view.length, view.ether_type()))
    }
}

/// Position of the decrypted payload in its packet.
struct Inside {
    at: usize,
    payload: usize,
    next_header: u8,
}

/// Returns the length of the payload, and the next header (RFC 4303, 2.4 and 2.6).
fn unpadded(clear: &[u8]) -> Result<(usize, u8), Drop> {
    let [before @ .., padding, next_header] = clear else {
        return Err(Drop::EspLength);
    };
    let payload = before
        .len()
        .checked_sub(usize::from(*padding))
        .ok_or(Drop::BadPadding)?;
    let mut expected = 1..=255_u8;
    if before[payload..]
        .iter()
        .all(|byte| Some(*byte) == expected.next())
    {
        Ok((payload, *next_header))
    } else {
        Err(Drop::BadPadding)
    }
}

/// Computes the ECN of a packet that leaves a tunnel from the inner and the outer ECN (RFC 6040, 4.2).
fn decapsulated_ecn(inner: u8, outer: u8) -> Result<u8, Drop> {
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const ECT_0: u8 = 2;
    const CE: u8 = 3;
    match (inner, outer) {
        (NOT_ECT, CE) => Err(Drop::EcnNotCapable),
        (ECT_0 | ECT_1, CE) => Ok(CE),
        (ECT_0, ECT_1) => Ok(ECT_1),
        _ => Ok(inner),
    }
}

/// Moves the packet's own headers in front of the decrypted payload (transport mode). Returns the packet's range and
/// its EtherType.
fn restore(
    whole: &mut [u8],
    view: &View,
    inside: &Inside,
    sealed: &Sealed,
) -> Result<(usize, usize, u16), Drop> {
    let header = view.upper;
    let (start, end) = (inside.at - header, inside.at + inside.payload);
    whole.copy_within(..header, start);
    let packet = &mut whole[start..end];
    packet[view.protocol_at] = inside.next_header;
    if view.version == 4 {
        let length = u16::try_from(packet.len()).map_err(|_| Drop::InnerMalformed)?;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        ip::write_ipv4_checksum(&mut packet[..header]);
    } else {
        let length = u16::try_from(packet.len() - 40).map_err(|_| Drop::InnerMalformed)?;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
    }
    if sealed.port.is_some() {
        renew_checksum(packet, header, inside.next_header);
    }
    Ok((start, end, view.ether_type()))
}

/// Corrects the upper-layer checksum after NAT has changed the addresses (RFC 3948, 3.1.2). The ICV has authenticated
/// the payload, so the old checksum need not be verified.
fn renew_checksum(whole: &mut [u8], upper: usize, next_header: u8) {
    let size = whole.len() - upper;
    let field = match next_header {
        protocol::TCP if size >= 20 => 16,
        // A checksum of 0 means that the packet has no checksum.
        protocol::UDP if size >= 8 && whole[upper + 6..upper + 8] != [0, 0] => 6,
        _ => return,
    };
    let at = upper + field;
    whole[at..at + 2].fill(0);
    let checksum = match ip::upper_checksum(whole, upper, size, next_header) {
        0 if next_header == protocol::UDP => 0xffff,
        other => other,
    };
    whole[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_counted_from_one() {
        assert_eq!(unpadded(&[7, 1, 2, 2, 4]), Ok((1, 4)));
        assert_eq!(unpadded(&[0, 59]), Ok((0, 59)));
        for bad in [
            &[7, 1, 3, 2, 4][..],
            &[7, 0, 1, 2, 4],
            &[7, 1, 2, 4, 4],
            &[1, 4],
        ] {
            assert_eq!(unpadded(bad), Err(Drop::BadPadding), "{bad:?}");
        }
        assert_eq!(unpadded(&[4]), Err(Drop::EspLength));
        let longest: Vec<u8> = (1..=255).chain([255, 41]).collect();
        assert_eq!(unpadded(&longest), Ok((0, 41)));
    }

    #[test]
    fn ecn_is_rfc_6040_s_table() {
        let drop = Err(Drop::EcnNotCapable);
        for (inner, row) in [
            (0, [Ok(0), Ok(0), Ok(0), drop]),
            (2, [Ok(2), Ok(1), Ok(2), Ok(3)]),
            (1, [Ok(1), Ok(1), Ok(1), Ok(3)]),
            (3, [Ok(3), Ok(3), Ok(3), Ok(3)]),
        ] {
            // Outer: Not-ECT, ECT(1), ECT(0), CE.
            for (outer, expected) in row.into_iter().enumerate() {
                assert_eq!(
                    decapsulated_ecn(inner, outer as u8),
                    expected,
                    "{inner} {outer}"
                );
            }
        }
    }
}
