// SPDX-License-Identifier: Apache-2.0
//! Mutates bytes without interpreting them.

use crate::random::Random;

/// Maximum length of a mutation in bytes.
pub const MAX_LENGTH: usize = 1 << 21;

const INTERESTING: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x45, 0x20, b'"'];

/// Changes the input at one to eight positions.
pub fn bytes(random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1usize << random.below(4) {
        change(random, &mut bytes, other);
    }
    bytes.truncate(MAX_LENGTH);
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        let length = 1 + random.below(64);
        bytes.extend(random.bytes(length));
        return;
    }
    let at = random.below(bytes.len());
    let longest = 1 << random.below(8);
    let end = (at + 1 + random.below(longest)).min(bytes.len());
    match random.below(9) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next_u64() as u8,
        2 => bytes[at] = *random.pick(&INTERESTING),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        5 => {
            let new = random.bytes(end - at);
            bytes.splice(at..at, new);
        }
        6 => {
            let new = random.bytes(end - at);
            bytes[at..end].copy_from_slice(&new);
        }
        7 if !other.is_empty() => {
            let from = random.below(other.len());
            let upto = (from + (end - at)).min(other.len());
            bytes.splice(at..end, other[from..upto].iter().copied());
        }
        _ => {
            let length = 1 + random.below(256);
            bytes.extend(random.bytes(length));
        }
    }
}
