// SPDX-License-Identifier: Apache-2.0
//! Analyses the inputs of calculations (checksums and hashes) and of action selectors. Finds the inputs that machine
//! code can collect from fields in registers.

use std::collections::BTreeSet;

use sluice_program::control::Selector;
use sluice_program::{Calculation, CalculationInput, FieldSlot, HashAlgorithm, HeaderId, Program};

/// Longest input, in bits, that machine code collects. The runtime collects longer inputs.
const MOST_BITS: u32 = 512;

/// Bytes that are consecutive both in the header vector and in the input of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) bytes: u32,
}

/// Returns the header and the runs of an Internet checksum whose input lies in one header. Each run is at an even byte
/// offset of the input, and the input has at most 256 bytes. Returns `None` for any other calculation.
pub(crate) fn runs(program: &Program, calculation: &Calculation) -> Option<(HeaderId, Vec<Run>)> {
    if calculation.algorithm != HashAlgorithm::Csum16 {
        return None;
    }
    let mut header = None;
    // Runs of consecutive bits of the header vector: first bit and number of bits.
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for input in &calculation.input {
        let (id, first, bits) = match input {
            CalculationInput::Field(id, slot) => (*id, slot.bit(), usize::from(slot.width)),
            CalculationInput::Header(id) => {
                let whole = program.header(*id);
                let ty = program.header_type(whole.ty);
                if ty.varbit.is_some() || whole.metadata {
                    return None;
                }
                (*id, whole.offset as usize * 8, whole.bytes as usize * 8)
            }
            _ => return None,
        };
        if *header.get_or_insert(id) != id {
            return None;
        }
        match pieces.last_mut() {
            Some((start, count)) if *start + *count == first => *count += bits,
            _ => pieces.push((first, bits)),
        }
    }
    let mut place = 0;
    let mut runs = Vec::new();
    for (first, bits) in pieces {
        if first % 8 != 0 || bits % 8 != 0 || place % 16 != 0 {
            return None;
        }
        place += bits;
        runs.push(Run {
            first: (first / 8) as u32,
            bytes: (bits / 8) as u32,
        });
    }
    let short = runs.iter().map(|run| run.bytes).sum::<u32>() <= 256;
    header.filter(|_| short).map(|header| (header, runs))
}

/// A part of a calculation's input.
#[derive(Clone, Debug)]
pub(crate) enum InputPiece {
    FieldSlot(FieldSlot),
    /// The constant's words, least significant first, and its number of bits.
    Constant(Vec<u64>, u32),
}

/// Input of a calculation or a selector, split into pieces.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// Headers that must be valid. If one of them is invalid, its fields are left out of the input, so `pieces` does
    /// not apply.
    pub(crate) headers: BTreeSet<HeaderId>,
    pub(crate) pieces: Vec<InputPiece>,
    pub(crate) bits: u32,
}

/// Splits an input into pieces. Returns `None` if the input's length varies or exceeds [`MOST_BITS`] bits.
pub(crate) fn pieces(program: &Program, inputs: &[CalculationInput]) -> Option<Input> {
    let (mut headers, mut pieces, mut bits) = (BTreeSet::new(), Vec::new(), 0);
    for input in inputs {
        match input {
            CalculationInput::Field(id, slot) => {
                if !program.header(*id).metadata {
                    headers.insert(*id);
                }
                bits += u32::from(slot.width);
                pieces.push(InputPiece::FieldSlot(*slot));
            }
            CalculationInput::Constant(value, width) => {
                bits += u32::from(*width);
                pieces.push(InputPiece::Constant(words_of(value), (*width).into()));
            }
            _ => return None,
        }
    }
    (1..=MOST_BITS).contains(&bits).then_some(Input {
        headers,
        pieces,
        bits,
    })
}

/// Returns whether the code for a calculation takes all metadata fields from registers and reads none from memory.
pub(crate) fn takes_kept_fields(program: &Program, calculation: &Calculation) -> bool {
    calculation.algorithm != HashAlgorithm::Random
        && runs(program, calculation).is_none()
        && pieces(program, &calculation.input).is_some_and(|input| input.headers.is_empty())
}

/// Returns whether the code for a selector takes all metadata fields from registers and reads none from memory. If a
/// table with a direct meter uses the selector, the runtime chooses the member and reads metadata from memory.
pub(crate) fn chooses_by_kept_fields(program: &Program, selector: &Selector) -> bool {
    let metered = program.tables.iter().any(|table| {
        let profile = table.profile.map(|profile| program.profile(profile));
        let same = profile.and_then(|profile| profile.selector.as_ref()) == Some(selector);
        same && table.meter.is_some()
    });
    !metered
        && selector.algorithm.only_spreads()
        && pieces(program, &selector.input).is_some_and(|input| input.headers.is_empty())
}

/// Converts right-aligned bytes to words, least significant first.
pub(crate) fn words_of(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    bytes.rchunks(8).map(word).collect()
}
