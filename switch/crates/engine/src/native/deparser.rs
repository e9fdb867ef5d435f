// SPDX-License-Identifier: Apache-2.0
//! The deparser: checksums, extern calls, then every valid header at the next place of the output.
//! What follows the headers is the caller's to append.

use std::collections::HashSet;
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use cranelift_frontend::Variable;
use sluice_program::{HeaderId, Program};

use super::expr::Params;
use super::frame::Frame;
use super::lower::Lower;
use super::runtime;
use crate::profile::Place;

impl Lower<'_> {
    /// The deparser, and the end of the function: it returns the bytes written.
    pub(super) fn deparser(&mut self) {
        self.mark(Place::Checksums);
        self.update_checksums();
        self.mark(Place::Deparser);
        let program = self.program;
        for op in &program.deparser.ops {
            self.op(op, &Params::None);
        }
        let start = self.frame_field(offset_of!(Frame<'static>, out));
        let place = self.b.declare_var(I64);
        self.b.def_var(place, start);
        for ids in runs(program) {
            // Most packets have none of most headers: whether any of a run is valid is one test.
            match ids {
                [id] => self.emit(*id, place),
                _ => {
                    let any = self.any_valid(ids);
                    self.when(any, |lower| {
                        ids.iter().for_each(|id| lower.emit(*id, place))
                    });
                }
            }
        }
        let end = self.b.use_var(place);
        let bytes = self.b.ins().isub(end, start);
        self.b.ins().return_(&[bytes]);
    }

    /// Whether any of some headers, whose validity lies in one word, is valid.
    fn any_valid(&mut self, ids: &[HeaderId]) -> Value {
        let ty = Type::int(ids.len() as u16 * 8).expect("2, 4 or 8 bytes");
        let valid = self.load(ty, self.valid, ids[0].0);
        let zero = self.b.ins().iconst(ty, 0);
        self.compare(IntCC::NotEqual, valid, zero)
    }

    /// Writes a header if it is valid, and moves the place on.
    fn emit(&mut self, id: HeaderId, place: Variable) {
        let program = self.program;
        let valid = self.is_valid(id);
        self.when(valid, |lower| {
            let header = program.header(id);
            let out = lower.b.use_var(place);
            let after = if program.header_type(header.ty).varbit.is_some() {
                let id = lower.int(id.0.into());
                let bytes = lower.call(runtime::emit as *const (), &[id, out], 1)[0];
                lower.b.ins().iadd(out, bytes)
            } else {
                lower.copy((out, 0), (lower.phv, header.offset), header.bytes);
                lower.b.ins().iadd_imm_s(out, i64::from(header.bytes))
            };
            lower.b.def_var(place, after);
        });
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
