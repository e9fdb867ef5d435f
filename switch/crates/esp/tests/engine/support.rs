// SPDX-License-Identifier: Apache-2.0
//! Provides a pair of SAs, packets, and their frames.

use std::path::Path;

use sluice_esp::engine::Sa;
use sluice_esp::shim::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PACKET, Shim, Task};
use sluice_esp::spec::Mode;
use sluice_esp::{Algorithm, Drop, Engine, Key, MAX_OUTPUT, Reservations, SaSpec};

pub(crate) const SA: u32 = 77;
pub(crate) const SPI: u32 = 0x1002;
pub(crate) const BUNDLE: u16 = 5;
pub(crate) const LOCAL: &str = "192.0.2.1";
pub(crate) const REMOTE: &str = "192.0.2.2";

/// An engine that encrypts and an engine that decrypts, with one SA between them.
pub(crate) struct Pair {
    pub(crate) sender: Engine,
    pub(crate) receiver: Engine,
    pub(crate) out: Vec<u8>,
    _state: tempfile::TempDir,
    pub(crate) reservations: Reservations,
}

/// Returns the specifications for both ends of an SA, built from JSON except for the keys.
pub(crate) fn specs(algorithm: Algorithm, mode: Mode, esn: bool) -> (SaSpec, SaSpec) {
    let name = serde_json::to_value(algorithm).unwrap();
    let mode = serde_json::to_value(mode).unwrap();
    let common = serde_json::json!({
        "sa": SA, "spi": SPI, "bundle": BUNDLE, "vrf": 3, "mode": mode, "algorithm": name, "esn": esn,
    });
    let with = |more: serde_json::Value| {
        let mut all = common.clone();
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let mut spec: SaSpec = serde_json::from_value(all).unwrap();
        let hex = |length: usize| Key::from_hex("c5".repeat(length).as_bytes()).unwrap();
        spec.key = Some(hex(algorithm.key_len()));
        spec.integrity_key = Some(hex(algorithm.integrity_key_len()));
        spec
    };
    (
        with(serde_json::json!({"direction": "out", "local": LOCAL, "remote": REMOTE})),
        with(serde_json::json!({"direction": "in"})),
    )
}

pub(crate) fn reservations(directory: &Path) -> Reservations {
    Reservations::open(directory).unwrap()
}

impl Pair {
    pub(crate) fn new(outbound: SaSpec, inbound: SaSpec) -> Self {
        let state = tempfile::tempdir().unwrap();
        let reservations = reservations(state.path());
        let (mut sender, mut receiver) = (Engine::default(), Engine::default());
        for (engine, spec) in [(&mut sender, outbound), (&mut receiver, inbound)] {
            spec.check(true).unwrap();
            let sa = Sa::prepare(spec, &reservations, 0).unwrap();
            assert!(engine.add(sa).is_ok());
        }
        Self {
            sender,
            receiver,
            out: vec![0; MAX_OUTPUT],
            _state: state,
            reservations,
        }
    }

    pub(crate) fn of(algorithm: Algorithm, mode: Mode, esn: bool) -> Self {
        let (outbound, inbound) = specs(algorithm, mode, esn);
        Self::new(outbound, inbound)
    }

    /// Encrypts a packet with the sender, and returns the ESP packet.
    pub(crate) fn seal(&mut self, packet: &[u8]) -> Result<Vec<u8>, Drop> {
        self.seal_at(packet, 0)
    }

    pub(crate) fn seal_at(&mut self, packet: &[u8], now: u64) -> Result<Vec<u8>, Drop> {
        let frame = to_encrypt().frame_of(packet);
        let length = self.sender.process(&frame, now, &mut self.out)?;
        assert_eq!(
            self.out[..14],
            frame[..14],
            "addresses and EtherType do not change"
        );
        assert_eq!(self.out[14], 2, "ENCRYPTED");
        assert_eq!(self.out[15..26], frame[15..26], "the fields do not change");
        Ok(packet_of(&self.out[..length]))
    }

    /// Decrypts an ESP packet with the receiver, and returns the packet in clear.
    pub(crate) fn open(&mut self, esp: &[u8]) -> Result<Vec<u8>, Drop> {
        let frame = to_decrypt().frame_of(esp);
        let length = self.receiver.process(&frame, 0, &mut self.out)?;
        assert_eq!(self.out[14], 4, "DECRYPTED");
        assert_eq!(self.out[16..18], BUNDLE.to_be_bytes());
        Ok(packet_of(&self.out[..length]))
    }

    pub(crate) fn opened(&mut self, packet: &[u8]) -> Vec<u8> {
        let sealed = self.seal(packet).unwrap();
        self.open(&sealed).unwrap()
    }
}

fn packet_of(frame: &[u8]) -> Vec<u8> {
    let ether_type = if frame[PACKET] >> 4 == 4 {
        ETHERTYPE_IPV4
    } else {
        ETHERTYPE_IPV6
    };
    assert_eq!(frame[26..28], ether_type.to_be_bytes());
    frame[PACKET..].to_vec()
}

pub(crate) trait FrameOf {
    fn frame_of(&self, packet: &[u8]) -> Vec<u8>;
}

impl FrameOf for Shim {
    fn frame_of(&self, packet: &[u8]) -> Vec<u8> {
        let version = packet.first().map_or(4, |first| first >> 4);
        let ether_type = if version == 6 {
            ETHERTYPE_IPV6
        } else {
            ETHERTYPE_IPV4
        };
        Shim {
            ether_type,
            ..*self
        }
        .frame(packet)
    }
}

pub(crate) fn to_encrypt() -> Shim {
    Shim {
        task: Task::Encrypt,
        engine: 1,
        bundle: BUNDLE,
        sa: SA,
        ingress_l3_if: 9,
        vrf: 3,
        ether_type: ETHERTYPE_IPV4,
    }
}

pub(crate) fn to_decrypt() -> Shim {
    Shim {
        task: Task::Decrypt,
        ..to_encrypt()
    }
}

/// Returns an IPv4 packet with a correct checksum.
pub(crate) fn ipv4(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 61, protocol, 0, 0];
    packet.extend(address(source));
    packet.extend(address(destination));
    packet.extend(payload);
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
    sluice_esp::ip::write_ipv4_checksum(&mut packet[..20]);
    packet
}

pub(crate) fn ipv6(source: &str, destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next_header, 61];
    packet.extend(address(source));
    packet.extend(address(destination));
    packet.extend(payload);
    let length = (payload.len() as u16).to_be_bytes();
    packet[4..6].copy_from_slice(&length);
    packet
}

pub(crate) fn ipv4_checksum_holds(packet: &[u8]) -> bool {
    let header = usize::from(packet[0] & 15) * 4;
    let mut copy = packet[..header].to_vec();
    sluice_esp::ip::write_ipv4_checksum(&mut copy);
    copy[..] == packet[..header]
}
