// SPDX-License-Identifier: Apache-2.0
//! Generates code that initialises a packet before it is parsed. The code clears only those bytes of the header vector
//! that may be read before they are written. Of standard metadata, the code writes only the fields that are read from
//! the header vector.
//!
//! A packet that enters ingress again with preserved fields is already initialised.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I8, I8X16};
use cranelift_codegen::ir::{ConstantData, InstBuilder, Value};

use crate::codegen::lower::{Lower, chunks};
use crate::runtime::frame::Frame;

/// Number of bytes that one store clears. Two byte ranges with a smaller gap are cleared together with the gap.
const VECTOR: u32 = 16;

impl Lower<'_> {
    /// Generates code that initialises a packet if it is new.
    pub(crate) fn start(&mut self) {
        let [new, ready] = [(); 2].map(|()| self.b.create_block());
        let fresh = self.frame_field(offset_of!(Frame<'static>, fresh));
        self.branch(fresh, new, ready);
        self.enter(new);
        self.clear_what_is_read();
        self.only_metadata_is_valid();
        self.enter_ingress();
        self.jump(ready);
        self.enter(ready);
    }

    fn clear_what_is_read(&mut self) {
        // The last store of a run may write beyond the run's end. This is harmless. The bytes there must be cleared
        // too, or are written before they are read. The header vector is followed by spare bytes, so the store stays
        // inside the allocation.
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (start, end) in self.facts.read_unwritten(self.program) {
            match runs.last_mut() {
                Some((_, last)) if start < *last + VECTOR => *last = end.max(*last),
                _ => runs.push((start, end)),
            }
        }
        let zero = self.b.ins().iconst(I8, 0);
        let zeros = self.b.ins().splat(I8X16, zero);
        for (start, end) in runs {
            for at in (start..end).step_by(VECTOR as usize) {
                self.store(zeros, self.phv, at);
            }
        }
    }

    fn only_metadata_is_valid(&mut self) {
        let headers = self.program.headers.iter();
        let valid: Vec<u8> = headers.map(|header| u8::from(header.metadata)).collect();
        let base = self.program.phv_bytes as u32;
        for (ty, offset) in chunks(valid.len() as u32) {
            let bytes = &valid[offset as usize..][..ty.bytes() as usize];
            let value = if ty == I8X16 {
                let constant = ConstantData::from(bytes);
                let constant = self.b.func.dfg.constants.insert(constant);
                self.b.ins().vconst(ty, constant)
            } else {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                self.b.ins().iconst(ty, i64::from_le_bytes(word))
            };
            self.store(value, self.phv, base + offset);
        }
    }

    /// Writes standard metadata as `Standard` of the traffic manager does.
    fn enter_ingress(&mut self) {
        let standard = &self.program.standard_metadata;
        let field = |offset| move |lower: &mut Self| -> Value { lower.frame_field(offset) };
        self.set_observed(
            Some(standard.ingress_port),
            field(offset_of!(Frame<'static>, ingress_port)),
        );
        self.set_observed(
            Some(standard.packet_length),
            field(offset_of!(Frame<'static>, ingress_length)),
        );
        self.set_observed(
            standard.ingress_global_timestamp,
            field(offset_of!(Frame<'static>, now_us)),
        );
    }
}
