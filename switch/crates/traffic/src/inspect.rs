// SPDX-License-Identifier: Apache-2.0
//! Finds the probe in a received frame, and checks the rest of the frame. Accepts any bytes. A frame that is not a
//! packet of this run yields [`Verdict::Other`].

use std::net::IpAddr;

use crate::frame::{ICMP, ICMPV6, TCP, UDP, transport_header};
use crate::probe::Probe;

/// Result of inspecting a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An undamaged packet of this run.
    Sound {
        probe: Probe,
        /// TTL or hop limit.
        hop_limit: u8,
    },
    /// A damaged packet of this run.
    Corrupt(Damage),
    /// A frame that is not a packet of this run.
    Other,
}

/// Kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    IpChecksum,
    TransportChecksum,
    Payload,
}

struct Packet<'f> {
    source: IpAddr,
    destination: IpAddr,
    hop_limit: u8,
    protocol: u8,
    header_is_sound: bool,
    segment: &'f [u8],
}

/// Inspects frames. Keeps a buffer for comparing payloads.
#[derive(Debug, Default)]
pub(crate) struct Inspector {
    payload: Vec<u8>,
}

impl Inspector {
    /// Inspects a frame for the run with this number.
    pub(crate) fn inspect(&mut self, frame: &[u8], run: u32) -> Verdict {
        let Some(packet) = packet(frame) else {
            return Verdict::Other;
        };
        let Some(payload) = packet.segment.get(transport_header(packet.protocol)..) else {
            return Verdict::Other;
        };
        let Some(probe) = Probe::read(payload, run) else {
            return Verdict::Other;
        };
        if !packet.header_is_sound {
            return Verdict::Corrupt(Damage::IpChecksum);
        }
        if !transport_is_sound(&packet) {
            return Verdict::Corrupt(Damage::TransportChecksum);
        }
        self.payload.clear();
        self.payload.extend_from_slice(payload);
        if !probe.filler_matches(&mut self.payload) {
            return Verdict::Corrupt(Damage::Payload);
        }
        Verdict::Sound {
            probe,
            hop_limit: packet.hop_limit,
        }
    }
}

/// Returns the IP packet of an Ethernet frame that has at most one tag. Returns `None` for fragments.
fn packet(frame: &[u8]) -> Option<Packet<'_>> {
    let (ether_type, rest) = match frame.get(12..14)? {
        [0x81, 0x00] => (frame.get(16..18)?, frame.get(18..)?),
        ether_type => (ether_type, frame.get(14..)?),
    };
    match ether_type {
        [0x08, 0x00] => ipv4(rest),
        [0x86, 0xdd] => ipv6(rest),
        _ => None,
    }
}

fn ipv4(bytes: &[u8]) -> Option<Packet<'_>> {
    let header = bytes.first_chunk::<20>()?;
    let header_length = usize::from(header[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[0] >> 4 != 4 || header_length < 20 || is_fragment {
        return None;
    }
    let whole_header = bytes.get(..header_length)?;
    let [source, destination] = [12, 16]
        .map(|at| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]));
    Some(Packet {
        source,
        destination,
        hop_limit: header[8],
        protocol: header[9],
        header_is_sound: sluice_checksum::checksum(whole_header) == 0,
        segment: bytes.get(header_length..total)?,
    })
}

fn ipv6(bytes: &[u8]) -> Option<Packet<'_>> {
    let header = bytes.first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().ok()?;
        Some(IpAddr::from(octets))
    };
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    Some(Packet {
        source: address(8)?,
        destination: address(24)?,
        hop_limit: header[7],
        protocol: header[6],
        header_is_sound: true,
        segment: bytes.get(40..40 + length)?,
    })
}

fn transport_is_sound(packet: &Packet<'_>) -> bool {
    let sum = match packet.protocol {
        ICMP => 0,
        UDP | TCP | ICMPV6 => {
            let length = packet.segment.len();
            sluice_checksum::pseudo_header(
                packet.source,
                packet.destination,
                packet.protocol,
                length,
            )
        }
        _ => return true,
    };
    sluice_checksum::finish(sluice_checksum::sum(sum, packet.segment)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flows::Flow;
    use crate::frame::{Builder, Mac, Protocol, Shape, Size};

    const PROTOCOLS: [Protocol; 5] = [
        Protocol::Udp,
        Protocol::Tcp,
        Protocol::Icmp,
        Protocol::Esp,
        Protocol::Other(253),
    ];

    fn shape(protocol: Protocol, size: Size, vlan: Option<u16>) -> Shape {
        Shape {
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            vlan,
            protocol,
            size,
            hop_limit: 64,
            traffic_class: 0,
            dont_fragment: false,
        }
    }

    fn flow(is_v6: bool) -> Flow {
        let (source, destination) = if is_v6 {
            ("2001:db8::1", "2001:db8::2")
        } else {
            ("10.0.0.1", "10.0.0.2")
        };
        Flow {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_number: 1024,
            destination_number: 9,
            flow_label: 0x12345,
        }
    }

    fn probe() -> Probe {
        Probe {
            run: 7,
            flow: 3,
            sequence: 99,
            departure: 1000,
        }
    }

    #[test]
    fn every_kind_of_built_frame_is_sound() {
        for protocol in PROTOCOLS {
            for is_v6 in [false, true] {
                for vlan in [None, Some(100)] {
                    let mut builder =
                        Builder::new(shape(protocol, Size::Imix, vlan), is_v6).unwrap();
                    for _ in 0..12 {
                        let frame = builder.build(&flow(is_v6), &probe());
                        let verdict = Inspector::default().inspect(frame, 7);
                        assert_eq!(
                            verdict,
                            Verdict::Sound {
                                probe: probe(),
                                hop_limit: 64
                            }
                        );
                        assert_eq!(Inspector::default().inspect(frame, 8), Verdict::Other);
                    }
                }
            }
        }
    }

    #[test]
    fn the_smallest_frame_carries_udp_over_ipv4_and_no_more() {
        let build = |protocol, is_v6| Builder::new(shape(protocol, Size::Fixed(60), None), is_v6);
        assert!(build(Protocol::Udp, false).is_ok());
        let error = build(Protocol::Tcp, false).unwrap_err();
        assert_eq!(
            error,
            "a frame of 60 bytes is too short: headers and probe need 72"
        );
        assert!(build(Protocol::Udp, true).is_err());
    }

    #[test]
    fn damages_are_told_apart() {
        let mut builder =
            Builder::new(shape(Protocol::Udp, Size::Fixed(200), None), false).unwrap();
        let good = builder.build(&flow(false), &probe()).to_vec();
        let damaged = |at: usize| {
            let mut frame = good.clone();
            frame[at] ^= 1;
            Inspector::default().inspect(&frame, 7)
        };
        assert_eq!(damaged(15), Verdict::Corrupt(Damage::IpChecksum));
        assert_eq!(damaged(34), Verdict::Corrupt(Damage::TransportChecksum));
        assert_eq!(damaged(199), Verdict::Corrupt(Damage::TransportChecksum));
        let mut builder =
            Builder::new(shape(Protocol::Esp, Size::Fixed(200), None), false).unwrap();
        let mut frame = builder.build(&flow(false), &probe()).to_vec();
        frame[199] ^= 1;
        assert_eq!(
            Inspector::default().inspect(&frame, 7),
            Verdict::Corrupt(Damage::Payload)
        );
    }

    proptest! {
        #[test]
        fn arbitrary_and_cut_frames_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..120), cut in 0_usize..201, is_v6: bool,
        ) {
            let mut inspector = Inspector::default();
            inspector.inspect(&bytes, 7);
            let mut builder = Builder::new(shape(Protocol::Udp, Size::Fixed(200), None), is_v6).unwrap();
            let frame = builder.build(&flow(is_v6), &probe());
            if cut < 200 {
                prop_assert_eq!(inspector.inspect(&frame[..cut], 7), Verdict::Other);
            }
        }
    }
}
