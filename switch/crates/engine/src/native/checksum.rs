// SPDX-License-Identifier: Apache-2.0
//! Checksums and other calculations.
//!
//! An Internet checksum over bytes of one header that lie at even places of the input is a sum of the
//! words as they lie in memory: the one's complement sum does not depend on byte order (RFC 1071,
//! section 2). Any other calculation collects its input at run time.

use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use sluice_program::expr::Data;
use sluice_program::{
    Calculation, CalculationId, CalculationInput, Checksum, HashAlgorithm, HeaderId,
};

use super::expr::Params;
use super::lower::Lower;
use super::runtime;

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

impl Lower<'_> {
    /// The value of a calculation.
    pub(super) fn calculation(&mut self, id: CalculationId) -> Value {
        let calculation = self.program.calculation(id);
        match runs(self.program, calculation) {
            Some((header, runs)) => self.internet_checksum(header, &runs),
            None => {
                let id = self.int(id.0.into());
                self.call(runtime::calculate as *const (), &[id], 1)[0]
            }
        }
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
        let sum = self.b.ins().select(valid, sum, zero);
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
