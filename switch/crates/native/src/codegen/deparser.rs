// SPDX-License-Identifier: Apache-2.0
//! Generates the deparser, which updates checksums, runs extern calls, and writes all valid headers one after the
//! other. The caller appends the payload.
//!
//! After parsing, most packets have one of a few sets of valid headers. If the validity of many headers is uncertain
//! here, the code compares all validity bytes at once with each of the most likely sets. For a packet with one of these
//! sets, the code writes the headers at constant offsets, without testing each header.

use std::collections::{BTreeSet, HashSet};
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I64};
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use sluice_engine::ProgramPoint;
use sluice_program::{HeaderId, Program};

use crate::codegen::expr::Params;
use crate::codegen::lower::{Lower, ValidHeaders, chunks};
use crate::runtime::calls;
use crate::runtime::frame::Frame;

/// End of the output so far: an address and a constant offset from it.
type OutputEnd = (Value, u32);

/// Maximum number of likely sets with which a packet's valid headers are compared. The sets are compared only if the
/// validity of at least `MANY_UNCERTAIN` headers is uncertain.
const MOST_SETS: usize = 6;
const MANY_UNCERTAIN: usize = 4;

impl Lower<'_> {
    /// Records which headers are valid at the end of the parser, if the validity of all headers is certain there.
    pub(crate) fn note_together(&mut self) {
        let order = &self.program.deparser.order;
        let known = order
            .iter()
            .map(|id| Some((*id, self.known.valid(*id)?)))
            .collect::<Option<Vec<_>>>();
        if let Some(known) = known {
            let valid = known.into_iter().filter(|(_, valid)| *valid);
            let valid = valid.map(|(id, _)| id).collect();
            let weight = self.known.weight;
            self.together.push(ValidHeaders { weight, valid });
        }
    }

    /// Generates the deparser. `finish` gets the number of bytes written, and generates code that ends the block.
    /// `finish` is called once for each compared set of valid headers, and once for all other packets.
    pub(crate) fn deparser(&mut self, finish: &dyn Fn(&mut Self, Value)) {
        self.mark(ProgramPoint::Checksums);
        self.update_checksums();
        self.mark(ProgramPoint::Deparser);
        let program = self.program;
        for op in &program.deparser.ops {
            self.op(op, &Params::None);
        }
        let order = program.deparser.order.iter();
        if order.filter(|id| self.known.valid(**id).is_none()).count() >= MANY_UNCERTAIN {
            self.likeliest_headers(finish);
        }
        let bytes = self.headers();
        finish(self, bytes);
    }

    /// Deparses packets that have one of the most likely sets of valid headers. Continues in a block for all other
    /// packets.
    fn likeliest_headers(&mut self, finish: &dyn Fn(&mut Self, Value)) {
        let order: BTreeSet<HeaderId> = self.program.deparser.order.iter().copied().collect();
        let (Some(first), Some(last)) = (order.first(), order.last()) else {
            return;
        };
        let words = words(last.0 - first.0 + 1);
        if words.len() > u8::BITS as usize {
            return;
        }
        let possible = |set: &ValidHeaders| {
            let mut certain = order
                .iter()
                .filter_map(|id| Some((id, self.known.valid(*id)?)));
            certain.all(|(id, valid)| set.valid.contains(id) == valid)
        };
        let mut sets: Vec<_> = self.together.iter().filter(|set| possible(set)).collect();
        sets.sort_by(|left, right| right.weight.total_cmp(&left.weight));
        sets.truncate(MOST_SETS);
        let sets: Vec<BTreeSet<HeaderId>> = sets.iter().map(|set| set.valid.clone()).collect();
        // Each validity byte is 0 or 1, so it uses one of its eight bits. So if word number n is shifted left by n
        // bits, up to eight words of validity bytes fit in one word.
        let bits_of = |valid: &BTreeSet<HeaderId>, (ty, at): (Type, u32)| {
            let bytes = (0..ty.bytes()).filter(|byte| {
                let id = HeaderId(first.0 + at + byte);
                valid.contains(&id)
            });
            bytes.fold(0, |word, byte| word | 1_u64 << (8 * byte))
        };
        let validity = self.validity(*first);
        let mut all = self.int(0);
        for (shift, word) in (0..).zip(&words) {
            let value = self.load_wide(word.0, self.phv, validity + word.1);
            // The deparser does not write all headers. The mask removes the validity of the others.
            let value = self.and(value, bits_of(&order, *word) * 0xff);
            let value = self.shl(value, shift);
            all = self.b.ins().bor(all, value);
        }
        for set in sets {
            let wanted = (0..)
                .zip(&words)
                .fold(0, |all, (shift, word)| all | bits_of(&set, *word) << shift);
            let wanted = self.int(wanted);
            let same = self.compare(IntCC::Equal, all, wanted);
            let [yes, no] = [(); 2].map(|()| self.b.create_block());
            self.branch(same, yes, no);
            self.enter(yes);
            for id in &order {
                self.known.set_valid(*id, set.contains(id));
            }
            let bytes = self.headers();
            finish(self, bytes);
            self.enter(no);
        }
    }

    /// Writes all valid headers and returns their length in bytes.
    fn headers(&mut self) -> Value {
        let start = self.frame_field(offset_of!(Frame<'static>, out));
        let mut end = (start, 0);
        for ids in runs(self.program) {
            let any = match ids {
                [id] => self.is_valid(*id),
                _ => self.any_valid(ids),
            };
            // Most stack elements are invalid in most packets. So one test covers several elements.
            end = self.emit_if(any, end, |lower, end| match ids {
                [id] => lower.emit(*id, end),
                _ => ids.iter().fold(end, |end, id| {
                    let valid = lower.is_valid(*id);
                    lower.emit_if(valid, end, |lower, end| lower.emit(*id, end))
                }),
            });
        }
        if end.0 == start {
            return self.int(end.1.into());
        }
        let place = self.at(end);
        self.b.ins().isub(place, start)
    }

    /// Returns whether any of these headers is valid. The validity bytes of the headers must be consecutive and fill 2,
    /// 4 or 8 bytes.
    fn any_valid(&mut self, ids: &[HeaderId]) -> Value {
        if ids.iter().all(|id| self.known.valid(*id) == Some(false)) {
            return self.byte(false);
        }
        let ty = Type::int(ids.len() as u16 * 8).expect("2, 4 or 8 bytes");
        let valid = self.load(ty, self.phv, self.validity(ids[0]));
        let zero = self.b.ins().iconst(ty, 0);
        self.compare(IntCC::NotEqual, valid, zero)
    }

    /// Returns the address that an [`OutputEnd`] stands for.
    fn at(&mut self, (base, offset): OutputEnd) -> Value {
        match offset {
            0 => base,
            _ => self.b.ins().iadd_imm_s(base, i64::from(offset)),
        }
    }

    /// Generates code that runs `emit` if the condition holds. Returns the new end of the output.
    fn emit_if(
        &mut self,
        condition: Value,
        end: OutputEnd,
        emit: impl FnOnce(&mut Self, OutputEnd) -> OutputEnd,
    ) -> OutputEnd {
        match self.constant(condition) {
            Some(0) => return end,
            Some(_) => return emit(self, end),
            None => {}
        }
        let place = self.b.declare_var(I64);
        let before = self.at(end);
        self.b.def_var(place, before);
        self.when(condition, |lower| {
            let after = emit(lower, (before, 0));
            let after = lower.at(after);
            lower.b.def_var(place, after);
        });
        (self.b.use_var(place), 0)
    }

    /// Writes a header, and returns the new end of the output.
    fn emit(&mut self, id: HeaderId, end: OutputEnd) -> OutputEnd {
        let program = self.program;
        let header = program.header(id);
        if program.header_type(header.ty).varbit.is_some() {
            let out = self.at(end);
            let id = self.int(id.0.into());
            let bytes = self.call(calls::emit as *const (), &[id, out], 1)[0];
            (self.b.ins().iadd(out, bytes), 0)
        } else {
            self.copy(end, (self.phv, header.offset), header.bytes);
            (end.0, end.1 + header.bytes)
        }
    }
}

/// Splits `bytes` bytes into words of at most 64 bits, each with its offset.
fn words(bytes: u32) -> Vec<(Type, u32)> {
    let halves = |(ty, at)| match ty {
        I8X16 => vec![(I64, at), (I64, at + I64.bytes())],
        _ => vec![(ty, at)],
    };
    chunks(bytes).into_iter().flat_map(halves).collect()
}

/// Splits the deparser's order of headers into runs that are tested at once: 8, 4 or 2 stack elements with consecutive
/// ids, or a single header.
fn runs(program: &Program) -> Vec<&[HeaderId]> {
    let elements: HashSet<HeaderId> = program
        .stacks
        .iter()
        .flat_map(|stack| stack.headers.iter().copied())
        .collect();
    let mut rest = &program.deparser.order[..];
    let mut runs = Vec::new();
    while let Some(first) = rest.first() {
        let ids = rest.iter().zip(first.0..);
        let run = ids.take_while(|(id, next)| id.0 == *next && elements.contains(id));
        let length = match run.count() {
            8.. => 8,
            4..8 => 4,
            2..4 => 2,
            _ => 1,
        };
        let (run, after) = rest.split_at(length);
        runs.push(run);
        rest = after;
    }
    runs
}
