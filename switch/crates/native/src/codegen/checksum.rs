// SPDX-License-Identifier: Apache-2.0
//! Generates code for checksums and other calculations.
//!
//! The input of an Internet checksum often lies in one header, in runs of bytes that begin at even offsets of the
//! input. For such an input the code adds words of memory without swapping their bytes. This is correct, because the
//! one's complement sum does not depend on byte order (RFC 1071, section 2). For any other calculation the code or the
//! runtime first collects the input.

use std::collections::BTreeSet;

use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use sluice_engine::hash::{self, Folding, Remainder, RemainderOfBlock};
use sluice_program::expr::Data;
use sluice_program::{Calculation, CalculationId, Checksum, HashAlgorithm, HeaderId};

use crate::analysis::calculation_input::{Input, InputPiece, Run, pieces, runs};
use crate::codegen::expr::Params;
use crate::codegen::lower::Lower;
use crate::runtime::calls;

impl Lower<'_> {
    /// Returns the value of a calculation.
    pub(crate) fn calculation(&mut self, id: CalculationId) -> Value {
        let calculation = self.program.calculation(id);
        match runs(self.program, calculation) {
            Some((header, runs)) => self.internet_checksum(header, &runs),
            None => self.gathered(id, calculation),
        }
    }

    /// Returns the value of a calculation other than an Internet checksum over one header. If the input is short and
    /// its headers are valid, machine code collects the input. Otherwise the runtime does.
    fn gathered(&mut self, id: CalculationId, calculation: &Calculation) -> Value {
        let result = self.b.declare_var(I64);
        let calculate = |lower: &mut Self| {
            let id = lower.int(id.0.into());
            let value = lower.call(calls::calculate as *const (), &[id], 1)[0];
            lower.b.def_var(result, value);
        };
        match pieces(self.program, &calculation.input) {
            Some(input) if calculation.algorithm != HashAlgorithm::Random => {
                let all = self.all_valid(&input.headers);
                self.either(
                    all,
                    |lower| {
                        let value = if calculation.replaceable {
                            lower.blend(&input)
                        } else {
                            lower.hashed(&calculation.algorithm, &input)
                        };
                        lower.b.def_var(result, value);
                    },
                    calculate,
                );
            }
            _ => calculate(self),
        }
        self.b.use_var(result)
    }

    /// Returns whether all of these headers are valid.
    pub(crate) fn all_valid(&mut self, headers: &BTreeSet<HeaderId>) -> Value {
        headers.iter().fold(self.byte(true), |all, header| {
            let valid = self.is_valid(*header);
            self.both(all, valid)
        })
    }

    /// Computes [`hash::blend`] of an input.
    fn blend(&mut self, input: &Input) -> Value {
        let words = self.input_words(input, 0).into_iter().enumerate();
        let weighted = words.map(|(index, word)| {
            let weight = self.int(hash::weight(index));
            self.b.ins().imul(word, weight)
        });
        let weighted: Vec<Value> = weighted.collect();
        let sum = weighted
            .into_iter()
            .reduce(|sum, word| self.b.ins().iadd(sum, word));
        match sum {
            Some(sum) => self.fold(sum, hash::MULTIPLIER),
            None => self.int(0),
        }
    }

    /// Computes the hash of an input by any algorithm of the program except the random one.
    fn hashed(&mut self, algorithm: &HashAlgorithm, input: &Input) -> Value {
        if let Some(folding) = hash::folding(*algorithm)
            && let (Some(of_block), Some(of_blocks)) =
                (folding.remainder_of_block(), folding.remainder())
        {
            return self.crc(folding, of_block, of_blocks, input);
        }
        let words = self.input_words(input, 0);
        let algorithm: *const HashAlgorithm = algorithm;
        let arguments = [
            self.int(algorithm as u64),
            self.in_memory(words),
            self.int(u64::from(input.bits.div_ceil(8))),
        ];
        self.call_bare(calls::hash as *const (), &arguments, 1)[0]
    }

    /// Computes a CRC with the functions that return the remainder of one block of 16 bytes, or of several blocks.
    fn crc(
        &mut self,
        folding: &'static Folding,
        of_block: RemainderOfBlock,
        of_blocks: Remainder,
        input: &Input,
    ) -> Value {
        let bytes = input.bits.div_ceil(8);
        let blocks = bytes.div_ceil(16);
        let words = self.input_words(input, (blocks * 16 - bytes) * 8);
        let constants = self.int(std::ptr::from_ref(folding) as u64);
        let remainder = match words[..] {
            [first, second] => {
                let words = [first, second].map(|word| self.b.ins().bswap(word));
                let arguments = [constants, words[0], words[1]];
                self.call_bare(of_block as *const (), &arguments, 1)[0]
            }
            _ => {
                let place = self.in_memory(words);
                let arguments = [constants, place, self.int(blocks.into())];
                self.call_bare(of_blocks as *const (), &arguments, 1)[0]
            }
        };
        let of_zeros = self.int(folding.of_zeros(bytes as usize));
        self.b.ins().bxor(remainder, of_zeros)
    }

    /// Returns an input as big-endian words: `lead` zero bits, the input, and zero bits up to the next whole word.
    pub(crate) fn input_words(&mut self, input: &Input, lead: u32) -> Vec<Value> {
        let bits = lead + input.bits.next_multiple_of(8);
        let mut words: Vec<Option<Value>> = vec![None; bits.div_ceil(64) as usize];
        let mut end = lead;
        for piece in &input.pieces {
            let (width, value) = match piece {
                InputPiece::FieldSlot(slot) => {
                    (u32::from(slot.width), self.load_slot(self.phv, *slot))
                }
                InputPiece::Constant(words, width) => {
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
        words
            .into_iter()
            .map(|word| word.unwrap_or_else(|| self.int(0)))
            .collect()
    }

    /// Stores words in memory, big-endian, and returns their address.
    fn in_memory(&mut self, words: Vec<Value>) -> Value {
        let place = self.stack(words.len() * 8);
        for (index, word) in words.into_iter().enumerate() {
            let raw = self.b.ins().bswap(word);
            self.store(raw, place, index as u32 * 8);
        }
        place
    }

    /// Computes the Internet checksum over runs of a header. If the header is invalid, the input is empty.
    fn internet_checksum(&mut self, header: HeaderId, runs: &[Run]) -> Value {
        let mut sum = self.int(0);
        for run in runs {
            let mut offset = 0;
            while offset < run.bytes {
                let left = run.bytes - offset;
                // In an input of odd length, the last byte is a word of its own, padded with a zero byte. The last byte
                // comes first in memory order, so it is loaded as the low byte.
                let (word, size) = self.load_word(left, run.first + offset);
                sum = self.b.ins().iadd(sum, word);
                offset += size;
            }
        }
        let valid = self.is_valid(header);
        let zero = self.int(0);
        let sum = self.select(valid, sum, zero);
        // The sum of at most 64 words of 32 bits cannot overflow 64 bits. To fold the sum, the code rotates it by half
        // its width and adds both. The upper half of the result is then the one's complement sum of the two halves.
        let turned = self.b.ins().rotl_imm_u(sum, 32);
        let sum = self.b.ins().iadd(sum, turned);
        let sum = self.shr(sum, 32);
        let sum = self.b.ins().ireduce(I32, sum);
        let turned = self.b.ins().rotl_imm_u(sum, 16);
        let sum = self.b.ins().iadd(sum, turned);
        let sum = self.b.ins().ushr_imm_u(sum, 16);
        let sum = self.b.ins().bnot(sum);
        let word = self.b.ins().ireduce(I16, sum);
        let word = self.b.ins().bswap(word);
        self.b.ins().uextend(I64, word)
    }

    /// Loads 4, 2 or 1 bytes from the header vector in memory order: as many as possible, but at most `left`. Returns
    /// the bytes and their number.
    fn load_word(&mut self, left: u32, byte: u32) -> (Value, u32) {
        let (base, offset) = (self.phv, byte as i32);
        let flags = MemFlagsData::new().with_notrap();
        match left {
            4.. => (self.b.ins().uload32(flags, base, offset), 4),
            2..4 => (self.b.ins().uload16(I64, flags, base, offset), 2),
            _ => (self.b.ins().uload8(I64, flags, base, offset), 1),
        }
    }

    /// Generates code that runs `then` if the checksum's condition holds.
    fn when_applies(&mut self, checksum: &Checksum, then: impl FnOnce(&mut Self)) {
        match &checksum.condition {
            None => then(self),
            Some(condition) => {
                let applies = self.bool(condition, &Params::None);
                self.when(applies, then);
            }
        }
    }

    /// Verifies all checksums that the program verifies. Returns a byte that is 1 if a checksum is wrong, else 0.
    pub(crate) fn verify_checksums(&mut self) -> Value {
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

    /// Updates all checksums that the program updates.
    pub(crate) fn update_checksums(&mut self) {
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
