// SPDX-License-Identifier: Apache-2.0
//! Provides SAs, and frames for the engine.

use sluice_esp::engine::Sa;
use sluice_esp::shim::{ETHERTYPE_IPV4, Shim, Task};
use sluice_esp::{Reservations, SaSpec};
use sluice_esp_control::command::{Command, Handle, now};

pub(crate) const KEY: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";

/// Returns the specification of the SA that the shims of [`to_encrypt`] name.
pub(crate) fn outbound() -> SaSpec {
    let text = format!(
        r#"{{"direction": "out", "sa": 7, "spi": 4096, "bundle": 3, "mode": "tunnel", "algorithm": "aes-128-gcm",
            "key": "{KEY}", "local": "192.0.2.1", "remote": "192.0.2.2"}}"#
    );
    serde_json::from_str(&text).unwrap()
}

/// Returns a frame whose shim requests encryption. Its packet contains `mark`.
pub(crate) fn to_encrypt(mark: u32) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 60, 0, 0, 0, 0, 64, 253, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
    ];
    packet.resize(60, 0x77);
    packet[20..24].copy_from_slice(&mark.to_be_bytes());
    sluice_esp::ip::write_ipv4_checksum(&mut packet[..20]);
    let shim = Shim {
        task: Task::Encrypt,
        engine: 1,
        bundle: 3,
        sa: 7,
        ingress_l3_if: 1,
        vrf: 0,
        ether_type: ETHERTYPE_IPV4,
    };
    shim.frame(&packet)
}

/// Returns the sequence number of an encrypted frame.
pub(crate) fn sequence(frame: &[u8]) -> u32 {
    assert_eq!(frame[14], 2, "the packet is encrypted");
    u32::from_be_bytes([frame[52], frame[53], frame[54], frame[55]])
}

/// Adds an SA to the engine, and waits for the answer. Another thread must poll the engine's port meanwhile.
pub(crate) fn add(engine: &Handle, spec: SaSpec, reservations: &Reservations) {
    let sa = Sa::prepare(spec, reservations, now()).unwrap();
    let added = engine.ask(|answer| Command::Add(sa, answer)).unwrap();
    assert!(added.is_ok());
}
