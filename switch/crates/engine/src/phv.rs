// SPDX-License-Identifier: Apache-2.0
//! The packet's header vector: all headers and metadata, their validity, and how far stacks are
//! filled.

use std::ops::Range;

use sluice_program::layout::SLACK;
use sluice_program::{HeaderId, Program, Slot, StackId, UnionStackId};

use crate::bits;

/// See the module. The bytes of a header that is not valid are kept, as BMv2 keeps them; at the
/// start of a packet all bytes are 0, so that nothing of one packet is seen by another. The space
/// reserved for `varbit` fields is left alone, since only the part in use is ever looked at.
#[derive(Clone, Debug)]
pub(crate) struct Phv {
    ///
    /// Behind as many bytes as [`Program::phv_bytes`] one for each header says whether it is valid, 0 or 1: machine
    /// code has both at known distances from one address.
    pub(crate) bytes: Vec<u8>,
    /// Everything but what is reserved for `varbit` fields, as few runs: first those outside of headers
    /// that have such a field.
    fixed: Vec<Range<usize>>,
    /// How many of them lie outside.
    plain: usize,
    /// The end of the first of these if it begins with the first byte, else 0: mostly it has all that a packet uses,
    /// and what a packet needs at once is not looked for in lists.
    front: usize,
    /// Whether anything may be other than it was at the start in headers with `varbit` fields, in these
    /// fields' lengths, or in the fill levels of stacks.
    touched: bool,
    /// The first of the bytes that say which headers are valid.
    validity: usize,
    /// These bytes before parsing: metadata is valid.
    valid_at_start: Vec<u8>,
    /// Bits that the `varbit` field of each header has now.
    varbit_bits: Vec<u32>,
    /// Elements in each header stack, then in each union stack.
    filled: Vec<u32>,
    stacks: usize,
    metadata_bytes: usize,
}

/// Addresses of the parts, for machine code.
pub(crate) struct Parts {
    /// As many as [`Program::phv_bytes`], and behind them one for each header: 0 or 1, whether it is valid.
    pub(crate) bytes: *mut u8,
    /// One for each header.
    pub(crate) varbit_bits: *mut u32,
    /// One for each stack, then one for each union stack.
    pub(crate) filled: *mut u32,
    /// To be set to 1 by whoever does what [`Phv::touch`] is for.
    pub(crate) touched: *mut u8,
}

impl Phv {
    /// Where everything lies. It stays there as long as the value lives.
    #[inline]
    pub(crate) fn parts(&mut self) -> Parts {
        Parts {
            bytes: self.bytes.as_mut_ptr(),
            varbit_bits: self.varbit_bits.as_mut_ptr(),
            filled: self.filled.as_mut_ptr(),
            touched: (&raw mut self.touched).cast(),
        }
    }

    pub(crate) fn new(program: &Program) -> Self {
        let stacks = program.stacks.len();
        let mut fixed = plain_ranges(program);
        let plain = fixed.len();
        let first = fixed.first().filter(|run| run.start == 0);
        let front = first.map_or(0, |run| run.end);
        fixed.extend(ranges_beside_varbits(program));
        let headers = program.headers.iter();
        let valid_at_start: Vec<_> = headers.map(|h| u8::from(h.metadata)).collect();
        let mut bytes = vec![0; program.phv_bytes];
        bytes.extend_from_slice(&valid_at_start);
        Self {
            bytes,
            fixed,
            plain,
            front,
            touched: false,
            validity: program.phv_bytes,
            valid_at_start,
            varbit_bits: vec![0; program.headers.len()],
            filled: vec![0; stacks + program.union_stacks.len()],
            stacks,
            metadata_bytes: program.metadata_bytes,
        }
    }

    /// As it is before parsing.
    pub(crate) fn reset(&mut self) {
        self.bytes[..self.front].fill(0);
        let further = usize::from(self.front != 0);
        if self.plain > further {
            for run in &self.fixed[further..self.plain] {
                self.bytes[run.clone()].fill(0);
            }
        }
        self.bytes[self.validity..].copy_from_slice(&self.valid_at_start);
        self.reset_touched();
    }

    /// What an engine that starts packets has to write before it reads it holds no zeros by luck.
    #[cfg(debug_assertions)]
    pub(crate) fn poison(&mut self) {
        const POISON: u8 = 0xa5;
        for run in &self.fixed[..self.plain] {
            self.bytes[run.clone()].fill(POISON);
        }
        self.bytes[self.validity..].fill(POISON);
    }

    /// Likewise, but only what [`touch`](Self::touch) is for.
    #[inline]
    pub(crate) fn reset_touched(&mut self) {
        if std::mem::take(&mut self.touched) {
            self.clear_touched();
        }
    }

    #[cold]
    fn clear_touched(&mut self) {
        for run in &self.fixed[self.plain..] {
            self.bytes[run.clone()].fill(0);
        }
        self.varbit_bits.fill(0);
        self.filled.fill(0);
    }

    /// To be called before bytes are written that may belong to a header with a `varbit` field.
    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    /// All metadata 0, headers as they are.
    pub(crate) fn reset_metadata(&mut self) {
        self.bytes[..self.metadata_bytes].fill(0);
    }

    pub(crate) fn copy_from(&mut self, program: &Program, other: &Self) {
        self.touch();
        for range in &self.fixed {
            self.bytes[range.clone()].copy_from_slice(&other.bytes[range.clone()]);
        }
        for (index, bits) in other.varbit_bits.iter().enumerate() {
            if *bits != 0
                && let Some(slot) = varbit_slot(program, HeaderId(index as u32))
            {
                let (start, count) = (slot.bit(), *bits as usize);
                bits::copy_bits(&other.bytes, start, &mut self.bytes, start, count);
            }
        }
        let validity = self.validity..;
        self.bytes[validity.clone()].copy_from_slice(&other.bytes[validity]);
        self.varbit_bits.copy_from_slice(&other.varbit_bits);
        self.filled.copy_from_slice(&other.filled);
    }

    #[inline]
    pub(crate) fn is_valid(&self, header: HeaderId) -> bool {
        self.bytes[self.validity + header.index()] != 0
    }

    /// Makes a header valid; in a union that makes the other members invalid.
    pub(crate) fn set_valid(&mut self, program: &Program, id: HeaderId) {
        if let Some(union) = program.header(id).union {
            for member in &program.union(union).headers {
                self.set_invalid(*member);
            }
        }
        self.bytes[self.validity + id.index()] = 1;
    }

    pub(crate) fn set_invalid(&mut self, header: HeaderId) {
        self.bytes[self.validity + header.index()] = 0;
    }

    pub(crate) fn varbit_bits(&self, header: HeaderId) -> u32 {
        self.varbit_bits[header.index()]
    }

    pub(crate) fn set_varbit_bits(&mut self, header: HeaderId, bits: u32) {
        self.touch();
        self.varbit_bits[header.index()] = bits;
    }

    pub(crate) fn filled(&self, stack: StackId) -> usize {
        self.filled[stack.index()] as usize
    }

    pub(crate) fn set_filled(&mut self, stack: StackId, elements: usize) {
        self.touch();
        self.filled[stack.index()] = elements as u32;
    }

    pub(crate) fn union_filled(&self, stack: UnionStackId) -> usize {
        self.filled[self.stacks + stack.index()] as usize
    }

    pub(crate) fn set_union_filled(&mut self, stack: UnionStackId, elements: usize) {
        self.touch();
        self.filled[self.stacks + stack.index()] = elements as u32;
    }

    /// The bytes of a header in the PHV.
    fn range(program: &Program, header: HeaderId) -> Range<usize> {
        let header = program.header(header);
        let start = header.offset as usize;
        start..start + header.bytes as usize
    }

    /// All fields 0; a `varbit` field keeps the length it had, as in BMv2.
    pub(crate) fn clear(&mut self, program: &Program, header: HeaderId) {
        self.touch();
        self.bytes[Self::range(program, header)].fill(0);
    }

    /// Copies fields and validity from a header of the same type.
    pub(crate) fn copy_header(&mut self, program: &Program, to: HeaderId, from: HeaderId) {
        self.touch();
        if !self.is_valid(from) {
            self.set_invalid(to);
            return;
        }
        let start = program.header(to).offset as usize;
        self.bytes.copy_within(Self::range(program, from), start);
        self.varbit_bits[to.index()] = self.varbit_bits[from.index()];
        self.set_valid(program, to);
    }

    /// Both valid with equal fields, or both invalid.
    pub(crate) fn headers_equal(&self, program: &Program, left: HeaderId, right: HeaderId) -> bool {
        if self.is_valid(left) != self.is_valid(right) {
            return false;
        }
        if !self.is_valid(left) {
            return true;
        }
        if program
            .header_type(program.header(left).ty)
            .varbit
            .is_none()
        {
            return self.bytes[Self::range(program, left)]
                == self.bytes[Self::range(program, right)];
        }
        let wire = |header| {
            let mut out = Vec::new();
            self.emit(program, header, &mut out);
            out
        };
        self.varbit_bits(left) == self.varbit_bits(right) && wire(left) == wire(right)
    }

    /// The `varbit` fields of two headers equal, in length and content.
    pub(crate) fn varbits_equal(&self, program: &Program, left: HeaderId, right: HeaderId) -> bool {
        let count = self.varbit_bits(left) as usize;
        let content = |header| {
            let mut out = vec![0; count.div_ceil(8)];
            if let Some(slot) = varbit_slot(program, header) {
                bits::copy_bits(&self.bytes, slot.bit(), &mut out, 0, count);
            }
            out
        };
        count == self.varbit_bits(right) as usize && content(left) == content(right)
    }

    /// Bytes that a valid header has on the wire.
    pub(crate) fn wire_bytes(&self, program: &Program, header: HeaderId) -> usize {
        let ty = program.header_type(program.header(header).ty);
        (ty.fixed_bits + self.varbit_bits(header) as usize) / 8
    }

    /// Appends a header as it is on the wire.
    pub(crate) fn emit(&self, program: &Program, id: HeaderId, out: &mut Vec<u8>) {
        let header = program.header(id);
        let ty = program.header_type(header.ty);
        let start = header.offset as usize;
        let Some(varbit) = ty.varbit else {
            out.extend_from_slice(&self.bytes[start..start + header.bytes as usize]);
            return;
        };
        // The parts before, in and after the varbit field, whose content is left-aligned in the
        // space that is reserved for it.
        let slot = ty.fields[varbit].slot;
        let (before, reserved) = (slot.bit(), usize::from(slot.width));
        let used = self.varbit_bits(id) as usize;
        let after = ty.fixed_bits - before;
        let first = out.len();
        out.resize(first + self.wire_bytes(program, id), 0);
        let (source, target) = (&self.bytes[start..], &mut out[first..]);
        bits::copy_bits(source, 0, target, 0, before + used);
        bits::copy_bits(source, before + reserved, target, before + used, after);
    }

    /// Takes a header off `data`, which has as many bytes as the header with `varbit_bits`.
    pub(crate) fn extract(
        &mut self,
        program: &Program,
        id: HeaderId,
        varbit_bits: u32,
        data: &[u8],
    ) {
        let header = program.header(id);
        let ty = program.header_type(header.ty);
        let start = header.offset as usize;
        match ty.varbit {
            None => self.bytes[start..start + data.len()].copy_from_slice(data),
            Some(varbit) => {
                self.touched = true;
                let slot = ty.fields[varbit].slot;
                let (before, reserved) = (slot.bit(), usize::from(slot.width));
                let used = varbit_bits as usize;
                let after = ty.fixed_bits - before;
                let target = &mut self.bytes[start..];
                bits::copy_bits(data, 0, target, 0, before + used);
                bits::copy_bits(data, before + used, target, before + reserved, after);
                self.varbit_bits[id.index()] = varbit_bits;
            }
        }
        self.set_valid(program, id);
    }
}

/// The space reserved for a header's `varbit` field.
pub(crate) fn varbit_slot(program: &Program, id: HeaderId) -> Option<Slot> {
    let ty = program.header_type(program.header(id).ty);
    ty.varbit.map(|field| program.slot(id, field))
}

/// The headers with a `varbit` field: their bytes, and those reserved for the field, in order.
fn varbits(program: &Program) -> Vec<(Range<usize>, Range<usize>)> {
    let ids = (0..program.headers.len()).map(|index| HeaderId(index as u32));
    let mut varbits: Vec<_> = ids
        .filter_map(|id| {
            let slot = varbit_slot(program, id)?;
            let reserved = slot.bit().div_ceil(8)..(slot.bit() + usize::from(slot.width)) / 8;
            Some((Phv::range(program, id), reserved))
        })
        .collect();
    varbits.sort_by_key(|(header, _)| header.start);
    varbits
}

/// The bytes of headers, and of metadata, outside of headers with a `varbit` field, as few runs.
fn plain_ranges(program: &Program) -> Vec<Range<usize>> {
    let mut plain = Vec::new();
    let mut start = 0;
    for (header, _) in varbits(program) {
        plain.push(start..header.start);
        start = header.end;
    }
    plain.push(start..program.phv_bytes - SLACK);
    plain.retain(|range| !range.is_empty());
    plain
}

/// The bytes of headers with a `varbit` field before and behind it.
fn ranges_beside_varbits(program: &Program) -> Vec<Range<usize>> {
    let varbits = varbits(program).into_iter();
    varbits
        .flat_map(|(header, reserved)| {
            if reserved.is_empty() {
                return [header, 0..0];
            }
            [header.start..reserved.start, reserved.end..header.end]
        })
        .filter(|range| !range.is_empty())
        .collect()
}
