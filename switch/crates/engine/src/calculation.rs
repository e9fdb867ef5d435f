// SPDX-License-Identifier: Apache-2.0
//! Calculations over fields, headers and payload of a packet.

use sluice_program::control::Selector;
use sluice_program::{Calculation, CalculationInput, HashAlgorithm, Program};
use sluice_random::Random;

use crate::bits;
use crate::hash;
use crate::packet::Packet;
use crate::phv::varbit_slot;

/// Bit string to which bits are appended. Its last byte is padded with zeros.
struct BitString<'a> {
    bytes: &'a mut Vec<u8>,
    bits: usize,
}

impl BitString<'_> {
    fn append(&mut self, source: &[u8], from: usize, count: usize) {
        if self.bits.is_multiple_of(8) && from.is_multiple_of(8) && count.is_multiple_of(8) {
            let first = from / 8;
            self.bytes
                .extend_from_slice(&source[first..first + count / 8]);
            self.bits += count;
            return;
        }
        self.bytes.resize((self.bits + count).div_ceil(8), 0);
        bits::copy_bits(source, from, self.bytes, self.bits, count);
        self.bits += count;
    }
}

/// Concatenates the input of a calculation. Leaves out invalid headers.
fn gather(
    program: &Program,
    packet: &Packet,
    came_in: &[u8],
    inputs: &[CalculationInput],
    out: &mut Vec<u8>,
) {
    out.clear();
    let phv = &packet.phv;
    let mut string = BitString {
        bytes: out,
        bits: 0,
    };
    for input in inputs {
        match input {
            CalculationInput::Field(header, slot) if phv.is_valid(*header) => {
                string.append(&phv.bytes, slot.bit(), usize::from(slot.width));
            }
            CalculationInput::Varbit(header) if phv.is_valid(*header) => {
                if let Some(slot) = varbit_slot(program, *header) {
                    string.append(&phv.bytes, slot.bit(), phv.varbit_bits(*header) as usize);
                }
            }
            CalculationInput::Header(header) if phv.is_valid(*header) => {
                phv.emit(program, *header, string.bytes);
                string.bits = string.bytes.len() * 8;
            }
            CalculationInput::Constant(value, width) => {
                let width = usize::from(*width);
                string.append(value, value.len() * 8 - width, width);
            }
            CalculationInput::Payload => {
                string.bytes.extend_from_slice(packet.payload(came_in));
                string.bits = string.bytes.len() * 8;
            }
            _ => {}
        }
    }
}

/// Computes a hash over parts of a packet, in the order of `inputs`. `came_in` has the packet's bytes as received.
/// Overwrites `scratch`. Only the algorithm "random" uses `random`.
pub fn hash_inputs(
    program: &Program,
    (packet, came_in): (&Packet, &[u8]),
    algorithm: HashAlgorithm,
    inputs: &[CalculationInput],
    scratch: &mut Vec<u8>,
    random: &mut Random,
) -> u64 {
    gather(program, packet, came_in, inputs, scratch);
    hash::hash(algorithm, scratch, random)
}

/// Computes the hash by which a selector chooses a member; see [`hash_inputs`].
#[inline]
pub fn select(
    program: &Program,
    (packet, came_in): (&Packet, &[u8]),
    selector: &Selector,
    scratch: &mut Vec<u8>,
    random: &mut Random,
) -> u64 {
    gather(program, packet, came_in, &selector.input, scratch);
    hash::selector(selector.algorithm, scratch, random)
}

/// Computes a named calculation; see [`hash_inputs`].
pub fn calculate(
    program: &Program,
    (packet, came_in): (&Packet, &[u8]),
    calculation: &Calculation,
    scratch: &mut Vec<u8>,
    random: &mut Random,
) -> u64 {
    if calculation.replaceable {
        gather(program, packet, came_in, &calculation.input, scratch);
        return hash::blend(scratch);
    }
    let packet = (packet, came_in);
    hash_inputs(
        program,
        packet,
        calculation.algorithm,
        &calculation.input,
        scratch,
        random,
    )
}
