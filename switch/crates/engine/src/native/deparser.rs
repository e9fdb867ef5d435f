// SPDX-License-Identifier: Apache-2.0
//! The deparser: checksums, extern calls, then every valid header at the next place of the output.
//! What follows the headers is the caller's to append.

use std::collections::HashSet;
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use sluice_program::{HeaderId, Program};

use super::expr::Params;
use super::frame::Frame;
use super::lower::Lower;
use super::runtime;
use crate::profile::Place;

/// Where output ends so far: an address, and bytes behind it.
type End = (Value, u32);

impl Lower<'_> {
    /// The deparser; how many bytes it has written.
    pub(super) fn deparser(&mut self) -> Value {
        self.mark(Place::Checksums);
        self.update_checksums();
        self.mark(Place::Deparser);
        let program = self.program;
        for op in &program.deparser.ops {
            self.op(op, &Params::None);
        }
        let start = self.frame_field(offset_of!(Frame<'static>, out));
        let mut end = (start, 0);
        for ids in runs(program) {
            let any = match ids {
                [id] => self.is_valid(*id),
                _ => self.any_valid(ids),
            };
            // Most packets have none of most headers: whether any of a run is valid is one test.
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

    /// Whether any of some headers, whose validity lies in one word, is valid.
    fn any_valid(&mut self, ids: &[HeaderId]) -> Value {
        if ids.iter().all(|id| self.known.valid(*id) == Some(false)) {
            return self.byte(false);
        }
        let ty = Type::int(ids.len() as u16 * 8).expect("2, 4 or 8 bytes");
        let valid = self.load(ty, self.phv, self.validity(ids[0]));
        let zero = self.b.ins().iconst(ty, 0);
        self.compare(IntCC::NotEqual, valid, zero)
    }

    /// The address of a place.
    fn at(&mut self, (base, offset): End) -> Value {
        match offset {
            0 => base,
            _ => self.b.ins().iadd_imm_s(base, i64::from(offset)),
        }
    }

    /// Writes something if the condition holds; where that ends, or would begin.
    fn emit_if(
        &mut self,
        condition: Value,
        end: End,
        emit: impl FnOnce(&mut Self, End) -> End,
    ) -> End {
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

    /// Writes a header; where it ends.
    fn emit(&mut self, id: HeaderId, end: End) -> End {
        let program = self.program;
        let header = program.header(id);
        if program.header_type(header.ty).varbit.is_some() {
            let out = self.at(end);
            let id = self.int(id.0.into());
            let bytes = self.call(runtime::emit as *const (), &[id, out], 1)[0];
            (self.b.ins().iadd(out, bytes), 0)
        } else {
            self.copy(end, (self.phv, header.offset), header.bytes);
            (end.0, end.1 + header.bytes)
        }
    }
}

/// The order in runs: 8, 4 or 2 elements of stacks whose ids follow each other, and single headers.
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
