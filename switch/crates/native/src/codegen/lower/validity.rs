// SPDX-License-Identifier: Apache-2.0
//! Generates access to the validity of headers, the fill levels of stacks, and the worker's counters.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use sluice_engine::Counters;
use sluice_program::HeaderId;

use super::Lower;
use crate::runtime::frame::Frame;

impl Lower<'_> {
    /// Returns the offset of a header's validity byte in the header vector. The byte is 1 if the header is valid, else
    /// 0.
    pub(crate) fn validity(&self, header: HeaderId) -> u32 {
        self.program.phv_bytes as u32 + header.0
    }

    pub(crate) fn is_valid(&mut self, header: HeaderId) -> Value {
        match self.known.valid(header) {
            Some(valid) => self.byte(valid),
            None => self.load(I8, self.phv, self.validity(header)),
        }
    }

    /// Returns whether the header with this id is valid. The header must exist.
    pub(crate) fn is_valid_at(&mut self, id: Value) -> Value {
        let place = self.b.ins().iadd(self.phv, id);
        self.load(I8, place, self.validity(HeaderId(0)))
    }

    pub(crate) fn set_invalid(&mut self, header: HeaderId) {
        self.known.set_valid(header, false);
        let no = self.byte(false);
        self.store(no, self.phv, self.validity(header));
    }

    /// Makes a header valid and the other members of its union invalid.
    pub(crate) fn set_valid(&mut self, header: HeaderId) {
        if let Some(union) = self.program.header(header).union {
            for member in &self.program.union(union).headers {
                self.set_invalid(*member);
            }
        }
        self.known.set_valid(header, true);
        let yes = self.byte(true);
        self.store(yes, self.phv, self.validity(header));
    }

    /// Marks the header vector as written; see [`sluice_engine::phv::Phv::touch`].
    pub(crate) fn touch(&mut self) {
        let place = self.frame_field(offset_of!(Frame<'static>, touched));
        let yes = self.byte(true);
        self.store(yes, place, 0);
    }

    /// Returns the number of elements in a stack. Union stacks are numbered after the `stacks` of the program.
    pub(crate) fn filled(&mut self, stack: usize) -> Value {
        let filled = self.frame_field(offset_of!(Frame<'static>, filled));
        let value = self.load(I32, filled, stack as u32 * 4);
        self.b.ins().uextend(I64, value)
    }

    pub(crate) fn set_filled(&mut self, stack: usize, elements: Value) {
        self.touch();
        let elements = self.b.ins().ireduce(I32, elements);
        let filled = self.frame_field(offset_of!(Frame<'static>, filled));
        self.store(elements, filled, stack as u32 * 4);
    }

    /// Returns the number of bits in a header's `varbit` field.
    pub(crate) fn varbit_bits(&mut self, header: HeaderId) -> Value {
        let varbit = self.frame_field(offset_of!(Frame<'static>, varbit));
        let value = self.load(I32, varbit, header.0 * 4);
        self.b.ins().uextend(I64, value)
    }

    /// Generates code that adds 1 to a counter of the worker, given by its offset in [`Counters`].
    pub(crate) fn bump(&mut self, offset: usize) {
        let counters = self.frame_field(offset_of!(Frame<'static>, counters));
        let old = self.load(I64, counters, offset as u32);
        let new = self.b.ins().iadd_imm_s(old, 1);
        self.store(new, counters, offset as u32);
    }

    /// Generates code that counts an access beyond the end of an array or stack.
    pub(crate) fn out_of_range(&mut self) {
        self.bump(offset_of!(Counters, index_out_of_range));
    }
}
