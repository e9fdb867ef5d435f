// SPDX-License-Identifier: Apache-2.0
//! Generates frames of every kind that the programs parse. Most frames are well formed at first. About half of them are
//! then damaged.
//!
//! Frames and table entries ([`crate::state`]) take addresses, ports and identifiers from [`VALUES`]. So frames hit
//! entries.

use crate::choices::Choices;

/// Values that frames and tables share. A value is truncated to the required width.
pub const VALUES: [u128; 12] = [
    0x0200_0000_0001,
    0x0200_0000_0002,
    0xffff_ffff_ffff,
    0x3333_0000_0001,
    0x0a01_0001,
    0x0a01_0102,
    0xe000_0005,
    0xff02_0000_0000_0000_0000_0000_0000_0001,
    0xfe80_0000_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0001_0000_0000_0000_0001,
    0x2001_0db8_0000_0002_0000_0000_0000_0102,
    0x1194,
];

/// Port on which frames from the controller arrive.
pub const CPU_PORT: u32 = 510;

const ETHER_TYPES: [u16; 8] = [
    0x0800, 0x86dd, 0x8100, 0x88b5, 0x0806, 0x88cc, 0x22f0, 0x0000,
];
const PROTOCOLS: [u8; 14] = [6, 17, 1, 58, 50, 132, 0, 43, 44, 60, 51, 4, 89, 255];
const PORTS: [u16; 8] = [4500, 500, 179, 53, 0, 1, 4784, 0xffff];
/// Length of the router's packet_out header in bytes. Other programs have a shorter header or none.
const PACKET_OUT: usize = 48;
const LONGEST: usize = 9_000;

/// A frame and its ingress port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of the ingress port, below 512.
    pub port: u32,
    /// Bytes of the frame, from the first byte that the program parses.
    pub bytes: Vec<u8>,
}

/// Generates the next frame. Fills the payload with `tag`, which must be unique to this frame.
pub fn frame(choices: &mut Choices<'_>, tag: u64) -> Frame {
    let port = match choices.below(16) {
        15 => choices.below(512) as u32,
        14 | 13 => CPU_PORT,
        n => (n % 5) as u32,
    };
    let mut bytes = Vec::with_capacity(256);
    if port == CPU_PORT {
        packet_out(choices, &mut bytes);
    }
    ethernet(choices, &mut bytes);
    payload(choices, &mut bytes, tag);
    damage(choices, &mut bytes);
    Frame { port, bytes }
}

/// Writes a packet_out header. Most numbers are small, because most fields of the header have small values.
fn packet_out(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let length = if choices.one_in(4) {
        choices.below(PACKET_OUT)
    } else {
        PACKET_OUT
    };
    for _ in 0..length {
        let byte = choices.byte();
        out.push(if byte < 0x80 { byte % 8 } else { byte });
    }
}

fn low_bytes(value: u128, count: usize) -> Vec<u8> {
    value.to_be_bytes()[16 - count..].to_vec()
}

fn address(choices: &mut Choices<'_>, out: &mut Vec<u8>, length: usize) {
    let value = match choices.below(8) {
        0 => u128::from(choices.u32()),
        _ => *choices.pick(&VALUES),
    };
    out.extend(low_bytes(value, length));
}

fn ethernet(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    address(choices, out, 6);
    address(choices, out, 6);
    ether_type(choices, out, 3);
}

fn ether_type(choices: &mut Choices<'_>, out: &mut Vec<u8>, deeper: usize) {
    let kind = match choices.below(16) {
        0..6 => ETHER_TYPES[0],
        6..11 => ETHER_TYPES[1],
        11 => choices.u16(),
        _ => *choices.pick(&ETHER_TYPES),
    };
    out.extend(kind.to_be_bytes());
    match kind {
        0x0800 => ipv4(choices, out, deeper),
        0x86dd => ipv6(choices, out, deeper),
        0x8100 if deeper > 0 => {
            out.extend([choices.byte() & 0xe0, choices.byte() % 4]);
            ether_type(choices, out, deeper - 1);
        }
        0x88b5 if deeper > 0 => {
            shim(choices, out);
            ether_type(choices, out, deeper - 1);
        }
        0x0806 => {
            out.extend([0, 1, 8, 0, 6, 4, 0, 1 + choices.byte() % 2]);
            for length in [6, 4, 6, 4] {
                address(choices, out, length);
            }
        }
        _ => {}
    }
}

fn shim(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    out.extend([choices.byte() % 6, choices.byte() % 3]);
    for _ in 0..5 {
        out.extend([0, choices.byte() % 4]);
    }
}

fn ipv4(choices: &mut Choices<'_>, out: &mut Vec<u8>, deeper: usize) {
    let start = out.len();
    let options = if choices.one_in(4) {
        choices.below(11)
    } else {
        0
    };
    let version = if choices.one_in(32) {
        choices.byte()
    } else {
        0x45 + options as u8
    };
    out.extend([version, choices.byte(), 0, 0]);
    out.extend(choices.u16().to_be_bytes());
    out.extend(fragment(choices).to_be_bytes());
    out.extend([
        *choices.pick(&[64, 1, 0, 2, 255]),
        *choices.pick(&PROTOCOLS),
        0,
        0,
    ]);
    address(choices, out, 4);
    address(choices, out, 4);
    for _ in 0..options {
        let kinds = [0x01, 0x00, 0x83, 0x89, 0x07, 0x94, 0x82];
        out.extend([
            *choices.pick(&kinds),
            choices.byte() % 41,
            choices.byte(),
            choices.byte(),
        ]);
    }
    let header = out.len();
    let protocol = out[start + 9];
    upper(choices, out, protocol, deeper);
    let length = if choices.one_in(8) {
        choices.u16()
    } else {
        (out.len() - start + 32) as u16
    };
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    if !choices.one_in(16) {
        let sum = sluice_checksum::checksum(&out[start..header]);
        out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns flags and fragment offset: no fragment, "don't fragment", a first fragment, a later fragment, or random
/// bits.
fn fragment(choices: &mut Choices<'_>) -> u16 {
    match choices.below(8) {
        0..4 => 0,
        4 => 0x4000,
        5 => 0x2000,
        6 => 0x2000 | (choices.u16() % 64),
        _ => choices.u16(),
    }
}

fn ipv6(choices: &mut Choices<'_>, out: &mut Vec<u8>, deeper: usize) {
    let start = out.len();
    let version = if choices.one_in(32) {
        choices.byte()
    } else {
        0x60
    };
    out.extend([
        version,
        choices.byte(),
        choices.byte(),
        choices.byte(),
        0,
        0,
    ]);
    let next = *choices.pick(&PROTOCOLS);
    out.extend([next, *choices.pick(&[64, 1, 0, 2, 255])]);
    address(choices, out, 16);
    address(choices, out, 16);
    let last = extensions(choices, out, next);
    upper(choices, out, last, deeper);
    let length = if choices.one_in(8) {
        choices.u16()
    } else {
        (out.len() - start - 40 + 32) as u16
    };
    out[start + 4..start + 6].copy_from_slice(&length.to_be_bytes());
}

/// Writes a chain of extension headers that starts with type `next`. Returns the protocol after the chain.
fn extensions(choices: &mut Choices<'_>, out: &mut Vec<u8>, mut next: u8) -> u8 {
    for _ in 0..16 {
        let behind = *choices.pick(&PROTOCOLS);
        match next {
            0 | 43 | 60 => {
                let units = choices.below(4);
                out.extend([behind, units as u8]);
                out.extend(choices.bytes(units * 8 + 6));
            }
            44 => {
                let offset = fragment(choices) << 3 | u16::from(choices.one_in(2));
                out.extend([behind, 0]);
                out.extend(offset.to_be_bytes());
                out.extend(choices.bytes(4));
            }
            51 => {
                out.extend([behind, 4]);
                out.extend(choices.bytes(22));
            }
            _ => return next,
        }
        next = behind;
    }
    next
}

fn upper(choices: &mut Choices<'_>, out: &mut Vec<u8>, protocol: u8, deeper: usize) {
    match protocol {
        6 | 17 | 132 => {
            for _ in 0..2 {
                out.extend(choices.pick(&PORTS).to_be_bytes());
            }
            out.extend([0, 40, 0, 0]);
            // After a UDP header with port 4500, four zero bytes mark IKE. Any other value is an SPI.
            out.extend([0, 0, 0, choices.byte() % 4]);
        }
        1 | 58 => {
            let types = [8, 0, 3, 5, 11, 1, 2, 128, 133, 135, 136];
            out.extend([*choices.pick(&types), choices.byte() % 5, 0, 0, 0, 0, 0, 0]);
            if deeper > 0 && choices.one_in(2) {
                if protocol == 1 {
                    ipv4(choices, out, deeper - 1);
                } else {
                    ipv6(choices, out, deeper - 1);
                }
            }
        }
        50 => out.extend([0, 0, 0, choices.byte() % 4, 0, 0, 0, choices.byte()]),
        4 if deeper > 0 => ipv4(choices, out, deeper - 1),
        _ => {}
    }
}

fn payload(choices: &mut Choices<'_>, out: &mut Vec<u8>, tag: u64) {
    let tags = match choices.below(16) {
        0 => 0,
        15 => choices.below(LONGEST / 8),
        _ => 4,
    };
    for _ in 0..tags {
        out.extend(tag.to_be_bytes());
    }
}

/// Damages about every second frame: truncates, modifies or extends it.
fn damage(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    match choices.below(16) {
        0..8 => {}
        8..12 => bytes.truncate(choices.below(bytes.len() + 1)),
        12..15 => {
            for _ in 0..=choices.below(4) {
                let at = choices.below(bytes.len().min(256));
                let value = choices.byte();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
        }
        _ => {
            let at = choices.below(bytes.len().min(256) + 1);
            let count = choices.below(64);
            let extra = choices.bytes(count);
            bytes.splice(at..at, extra);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn frames_are_of_many_kinds_and_carry_their_tag() {
        let mut random = Random::new(1);
        let mut tagged = 0;
        let mut kinds = std::collections::BTreeSet::new();
        for _ in 0..1_000 {
            let bytes = random.bytes(200);
            let frame = frame(&mut Choices::new(&bytes), 0x1122_3344_5566_7788);
            tagged += usize::from(
                frame
                    .bytes
                    .windows(8)
                    .any(|w| w == [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]),
            );
            assert!(frame.port < 512);
            kinds.extend(frame.bytes.get(12..14).map(<[u8]>::to_vec));
        }
        assert!(tagged > 500, "{tagged}");
        assert!(kinds.len() > 10, "{}", kinds.len());
    }

    #[test]
    fn a_header_with_its_checksum_sums_up_to_nothing() {
        let header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0xb1, 0xc6];
        let sum = sluice_checksum::checksum(&header);
        let mut with = header.to_vec();
        with.extend(sum.to_be_bytes());
        assert_eq!(sluice_checksum::checksum(&with), 0);
    }
}
