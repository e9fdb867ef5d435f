// SPDX-License-Identifier: Apache-2.0
//! Operations on headers, stacks and unions, as P4_16 defines them (sections 8.17 to 8.20).

use sluice_program::{HeaderId, Program, StackId, UnionId, UnionStackId};

use crate::bits;
use crate::packet::Packet;
use crate::phv::{Phv, varbit_slot};

impl Packet {
    /// Makes a header valid (`setValid`). Has no effect on a valid header.
    pub fn add_header(&mut self, program: &Program, id: HeaderId) {
        let phv = &mut self.phv;
        if !phv.is_valid(id) {
            phv.clear(program, id);
            phv.set_valid(program, id);
            let bytes = phv.wire_bytes(program, id) as u64;
            self.length = self.length.wrapping_add(bytes);
        }
    }

    /// Makes a header invalid (`setInvalid`). Has no effect on an invalid header.
    pub fn remove_header(&mut self, program: &Program, id: HeaderId) {
        let phv = &mut self.phv;
        if phv.is_valid(id) {
            let bytes = phv.wire_bytes(program, id) as u64;
            phv.set_invalid(id);
            self.length = self.length.wrapping_sub(bytes);
        }
    }

    /// Copies the `varbit` field of one header to the `varbit` field of another header. Overwrites `scratch`.
    pub fn assign_varbit(
        &mut self,
        program: &Program,
        to: HeaderId,
        from: HeaderId,
        scratch: &mut Vec<u8>,
    ) {
        let slot = |id| varbit_slot(program, id);
        let (Some(target), Some(source)) = (slot(to), slot(from)) else {
            return;
        };
        let phv = &mut self.phv;
        let used = phv.varbit_bits(from).min(u32::from(target.width));
        let count = used as usize;
        scratch.clear();
        scratch.resize(count.div_ceil(8), 0);
        bits::copy_bits(&phv.bytes, source.bit(), scratch, 0, count);
        bits::copy_bits(scratch, 0, &mut phv.bytes, target.bit(), count);
        phv.set_varbit_bits(to, used);
    }
}

impl Phv {
    /// Copies a union. If a member of `from` is valid, the same member of `to` becomes valid and gets the same bytes.
    /// Otherwise no member of `to` is valid afterwards.
    pub fn assign_union(&mut self, program: &Program, to: UnionId, from: UnionId) {
        let (to, from) = (program.union(to), program.union(from));
        // Invalidates members first, because making one member valid invalidates the others.
        let pairs = || to.headers.iter().zip(&from.headers);
        for (to, _) in pairs().filter(|(to, from)| to != from) {
            self.set_invalid(*to);
        }
        let valid = pairs().find(|(_, from)| self.is_valid(**from));
        if let Some((to, from)) = valid {
            self.copy_header(program, *to, *from);
        }
    }

    /// Copies a stack of headers.
    pub fn assign_stack(&mut self, program: &Program, to: StackId, from: StackId) {
        let filled = self.filled(from);
        self.set_filled(to, filled);
        let (to, from) = (&program.stack(to).headers, &program.stack(from).headers);
        for (to, from) in to.iter().zip(from) {
            self.copy_header(program, *to, *from);
        }
    }

    /// Copies a stack of unions.
    pub fn assign_union_stack(&mut self, program: &Program, to: UnionStackId, from: UnionStackId) {
        let filled = self.union_filled(from);
        self.set_union_filled(to, filled);
        let (to, from) = (program.union_stack(to), program.union_stack(from));
        for (to, from) in to.unions.iter().zip(&from.unions) {
            self.assign_union(program, *to, *from);
        }
    }

    /// `push_front`: moves elements up and makes the first ones invalid (P4_16 section 8.18).
    pub fn push(&mut self, program: &Program, stack: StackId, count: u64) {
        let headers = &program.stack(stack).headers;
        let count = count.min(headers.len() as u64) as usize;
        for index in (count..headers.len()).rev() {
            self.copy_header(program, headers[index], headers[index - count]);
        }
        headers[..count].iter().for_each(|id| self.set_invalid(*id));
        let filled = (self.filled(stack) + count).min(headers.len());
        self.set_filled(stack, filled);
    }

    /// `pop_front`: moves elements down and makes the last ones invalid (P4_16 section 8.18).
    pub fn pop(&mut self, program: &Program, stack: StackId, count: u64) {
        let headers = &program.stack(stack).headers;
        let count = count.min(headers.len() as u64) as usize;
        for index in count..headers.len() {
            self.copy_header(program, headers[index - count], headers[index]);
        }
        let remaining = headers.len() - count;
        headers[remaining..]
            .iter()
            .for_each(|id| self.set_invalid(*id));
        let filled = self.filled(stack).saturating_sub(count);
        self.set_filled(stack, filled);
    }

    /// `push_front` on a stack of unions; see [`push`](Self::push).
    pub fn push_union(&mut self, program: &Program, stack: UnionStackId, count: u64) {
        let unions = &program.union_stack(stack).unions;
        let count = count.min(unions.len() as u64) as usize;
        for index in (count..unions.len()).rev() {
            self.assign_union(program, unions[index], unions[index - count]);
        }
        unions[..count]
            .iter()
            .for_each(|union| self.clear_union(program, *union));
        let filled = (self.union_filled(stack) + count).min(unions.len());
        self.set_union_filled(stack, filled);
    }

    /// `pop_front` on a stack of unions; see [`pop`](Self::pop).
    pub fn pop_union(&mut self, program: &Program, stack: UnionStackId, count: u64) {
        let unions = &program.union_stack(stack).unions;
        let count = count.min(unions.len() as u64) as usize;
        for index in count..unions.len() {
            self.assign_union(program, unions[index - count], unions[index]);
        }
        unions[unions.len() - count..]
            .iter()
            .for_each(|union| self.clear_union(program, *union));
        let filled = self.union_filled(stack).saturating_sub(count);
        self.set_union_filled(stack, filled);
    }

    fn clear_union(&mut self, program: &Program, union: UnionId) {
        for id in &program.union(union).headers {
            self.set_invalid(*id);
        }
    }
}
