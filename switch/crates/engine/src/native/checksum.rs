// SPDX-License-Identifier: Apache-2.0
//! Checksums and other calculations.
//!
//! An Internet checksum over bytes of one header that lie at even places of the input is a sum of the
//! words as they lie in memory: the one's complement sum does not depend on byte order (RFC 1071,
//! section 2). Any other calculation collects its input at run time.

use std::collections::BTreeSet;

use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use sluice_program::expr::Data;
use sluice_program::{
    Calculation, CalculationId, CalculationInput, Checksum, HashAlgorithm, HeaderId, Slot,
};

use super::expr::Params;
use super::lower::Lower;
use super::runtime;
use super::table::words_of;

/// Input of more bits is put together by the runtime.
const MOST_BITS: u32 = 512;

/// Bytes of the header vector that follow each other in the input of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    bytes: u32,
}

/// The runs of a checksum whose input is all of one header, each at an even place; `None` for any
/// other calculation.
fn runs(
    program: &sluice_program::Program,
    calculation: &Calculation,
) -> Option<(HeaderId, Vec<Run>)> {
    if calculation.algorithm != HashAlgorithm::Csum16 {
        return None;
    }
    let mut header = None;
    // Bits of the header vector that follow each other: first and count.
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
enum Piece {
    Slot(Slot),
    /// Words, least significant first, and bits.
    Constant(Vec<u64>, u32),
}

/// The headers that must be valid for a calculation's input to be these pieces of so many bits; `None` where
/// it is long, or not of fixed length.
fn pieces(
    program: &sluice_program::Program,
    calculation: &Calculation,
) -> Option<(BTreeSet<HeaderId>, Vec<Piece>, u32)> {
    let (mut headers, mut pieces, mut bits) = (BTreeSet::new(), Vec::new(), 0);
    for input in &calculation.input {
        match input {
            CalculationInput::Field(id, slot) => {
                if !program.header(*id).metadata {
                    headers.insert(*id);
                }
                bits += u32::from(slot.width);
                pieces.push(Piece::Slot(*slot));
            }
            CalculationInput::Constant(value, width) => {
                bits += u32::from(*width);
                pieces.push(Piece::Constant(words_of(value), (*width).into()));
            }
            _ => return None,
        }
    }
    let fits = bits > 0 && bits <= MOST_BITS && calculation.algorithm != HashAlgorithm::Random;
    fits.then_some((headers, pieces, bits))
}

impl Lower<'_> {
    /// The value of a calculation.
    pub(super) fn calculation(&mut self, id: CalculationId) -> Value {
        let calculation = self.program.calculation(id);
        match runs(self.program, calculation) {
            Some((header, runs)) => self.internet_checksum(header, &runs),
            None => self.gathered(id, calculation),
        }
    }

    /// Any other calculation: its input put together here if it is short and its headers are valid, else
    /// by the runtime.
    fn gathered(&mut self, id: CalculationId, calculation: &Calculation) -> Value {
        let result = self.b.declare_var(I64);
        let calculate = |lower: &mut Self| {
            let id = lower.int(id.0.into());
            let value = lower.call(runtime::calculate as *const (), &[id], 1)[0];
            lower.b.def_var(result, value);
        };
        match pieces(self.program, calculation) {
            None => calculate(self),
            Some((headers, pieces, bits)) => {
                let mut all = self.byte(true);
                for header in headers {
                    let valid = self.is_valid(header);
                    all = self.both(all, valid);
                }
                let algorithm: *const HashAlgorithm = &raw const calculation.algorithm;
                self.either(
                    all,
                    |lower| {
                        let place = lower.gather(&pieces, bits);
                        let arguments = [
                            lower.int(algorithm as u64),
                            place,
                            lower.int(u64::from(bits.div_ceil(8))),
                        ];
                        let hash = runtime::hash as *const ();
                        let value = lower.call_bare(hash, &arguments, 1)[0];
                        lower.b.def_var(result, value);
                    },
                    calculate,
                );
            }
        }
        self.b.use_var(result)
    }

    /// Bits one after the other in memory, the last byte padded with 0; their address.
    fn gather(&mut self, pieces: &[Piece], bits: u32) -> Value {
        let mut words: Vec<Option<Value>> = vec![None; bits.div_ceil(64) as usize];
        let mut end = 0;
        for piece in pieces {
            let (width, value) = match piece {
                Piece::Slot(slot) => (u32::from(slot.width), self.load_slot(self.phv, *slot)),
                Piece::Constant(words, width) => {
                    let value = self.constants(words);
                    (*width, self.modulo(value, *width))
                }
            };
            end += width;
            for (index, value) in value.into_iter().enumerate() {
                let last = end - index as u32 * 64;
                let first = last.saturating_sub(64).max(end - width);
                for word in first / 64..=(last - 1) / 64 {
                    let limit = (word + 1) * 64;
                    let part = if last > limit {
                        self.shr(value, last - limit)
                    } else {
                        self.shl(value, limit - last)
                    };
                    let place = &mut words[word as usize];
                    *place = Some(match *place {
                        Some(before) => self.b.ins().bor(before, part),
                        None => part,
                    });
                }
            }
        }
        let place = self.stack(words.len() * 8);
        for (index, word) in words.into_iter().enumerate() {
            let word = word.unwrap_or_else(|| self.int(0));
            let raw = self.b.ins().bswap(word);
            self.store(raw, place, index as u32 * 8);
        }
        place
    }

    /// The Internet checksum over parts of a header, or over nothing if it is not valid.
    fn internet_checksum(&mut self, header: HeaderId, runs: &[Run]) -> Value {
        let mut sum = self.int(0);
        for run in runs {
            let mut offset = 0;
            while offset < run.bytes {
                let left = run.bytes - offset;
                let (ty, size) = match left {
                    4.. => (I32, 4),
                    2..4 => (I16, 2),
                    _ => (cranelift_codegen::ir::types::I8, 1),
                };
                // The last byte of an odd input is the first of a word in memory: the low one.
                let word = self.load_word(ty, run.first + offset);
                sum = self.b.ins().iadd(sum, word);
                offset += size;
            }
        }
        let valid = self.is_valid(header);
        let zero = self.int(0);
        let sum = self.select(valid, sum, zero);
        // At most 64 words of 32 bits: three folds bring it to 16 bits.
        let mut folded = sum;
        for bits in [32, 16, 16] {
            let high = self.shr(folded, bits);
            let low = self.and(folded, (1 << bits) - 1);
            folded = self.b.ins().iadd(high, low);
        }
        let again = self.shr(folded, 16);
        let folded = self.b.ins().iadd(folded, again);
        let folded = self.b.ins().bnot(folded);
        let word = self.b.ins().ireduce(I16, folded);
        let word = self.b.ins().bswap(word);
        self.b.ins().uextend(I64, word)
    }

    fn load_word(&mut self, ty: Type, byte: u32) -> Value {
        let word = self.load(ty, self.phv, byte);
        self.b.ins().uextend(I64, word)
    }

    /// Runs `then` if the checksum's condition holds.
    fn when_applies(&mut self, checksum: &Checksum, then: impl FnOnce(&mut Self)) {
        match &checksum.condition {
            None => then(self),
            Some(condition) => {
                let applies = self.bool(condition, &Params::None);
                self.when(applies, then);
            }
        }
    }

    /// Whether a checksum to be verified is wrong: a byte that is 0 or 1.
    pub(super) fn verify_checksums(&mut self) -> Value {
        let program = self.program;
        let wrong = self.b.declare_var(cranelift_codegen::ir::types::I8);
        let no = self.byte(false);
        self.b.def_var(wrong, no);
        for checksum in program.checksums.iter().filter(|checksum| checksum.verify) {
            let valid = self.is_valid(checksum.header);
            self.when(valid, |lower| {
                lower.when_applies(checksum, |lower| {
                    let computed = lower.calculation(checksum.calculation);
                    let words = usize::from(checksum.target.width).div_ceil(64);
                    let words = words + usize::from(checksum.target.signed);
                    let data = Data::Field(checksum.target);
                    let carried = lower.data(&data, words, &Params::None);
                    let computed = lower.resize(vec![computed], words);
                    let same = lower.equal(&carried, &computed);
                    let differs = lower.not(same);
                    let before = lower.b.use_var(wrong);
                    let now = lower.b.ins().bor(before, differs);
                    lower.b.def_var(wrong, now);
                });
            });
        }
        self.b.use_var(wrong)
    }

    /// Writes all checksums to be updated.
    pub(super) fn update_checksums(&mut self) {
        let program = self.program;
        for checksum in program.checksums.iter().filter(|checksum| checksum.update) {
            self.when_applies(checksum, |lower| {
                let computed = lower.calculation(checksum.calculation);
                let words = usize::from(checksum.target.width).div_ceil(64);
                let computed = lower.resize(vec![computed], words);
                lower.store_slot(lower.phv, checksum.target, &computed);
            });
        }
    }
}
