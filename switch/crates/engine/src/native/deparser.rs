// SPDX-License-Identifier: Apache-2.0
//! The deparser: checksums, extern calls, then every valid header at the next place of the output.
//! What follows the headers is the caller's to append.

use std::mem::offset_of;

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::types::I64;

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
        for id in program.deparser.order.iter().copied() {
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
        let end = self.b.use_var(place);
        let bytes = self.b.ins().isub(end, start);
        self.b.ins().return_(&[bytes]);
    }
}
