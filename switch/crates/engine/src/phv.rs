// SPDX-License-Identifier: Apache-2.0
//! The packet header vector (PHV): all headers and metadata, their validity, and the fill levels of stacks.

use std::ops::Range;

use sluice_program::layout::SLACK;
use sluice_program::{FieldSlot, HeaderId, Program, StackId, UnionStackId};

use crate::bits;

/// The packet header vector of one packet.
///
/// An invalid header keeps its bytes, as in BMv2. At the start of a packet all bytes are 0, so that no packet sees the
/// content of another. Exception: the space of `varbit` fields is not reset, because only the part that was written is
/// ever read.
#[derive(Clone, Debug)]
pub struct Phv {
    /// [`Program::phv_bytes`] bytes of headers and metadata, then one byte per header: 1 if the header is valid, else
    /// 0. Fields and validity are in one buffer, so that native code reaches all of them at fixed offsets from one
    /// address.
    pub bytes: Vec<u8>,
    /// Byte ranges outside the space of `varbit` fields. Adjacent ranges are merged. The first `plain` ranges lie
    /// outside all headers that have a `varbit` field.
    fixed: Vec<Range<usize>>,
    /// Number of ranges at the start of `fixed` that lie outside headers with a `varbit` field.
    plain: usize,
    /// End of the first range of `fixed` if that range starts at byte 0, else 0. Most programs have no other range to
    /// reset. So a reset need not read the list of ranges.
    front: usize,
    /// True if any of these may differ from its initial value: a header with a `varbit` field, the length of such a
    /// field, or the fill level of a stack.
    touched: bool,
    /// Offset of the validity bytes.
    validity: usize,
    /// Initial validity bytes: only metadata is valid.
    valid_at_start: Vec<u8>,
    /// Current length in bits of each header's `varbit` field.
    varbit_bits: Vec<u32>,
    /// Number of elements in each header stack, then in each union stack.
    filled: Vec<u32>,
    stacks: usize,
    metadata_bytes: usize,
}

/// Addresses of a PHV's parts, for native code.
pub struct PhvParts {
    /// [`Program::phv_bytes`] bytes of headers and metadata, then one validity byte per header.
    pub bytes: *mut u8,
    /// Current length in bits of each header's `varbit` field.
    pub varbit_bits: *mut u32,
    /// Number of elements in each header stack, then in each union stack.
    pub filled: *mut u32,
    /// The flag that [`Phv::touch`] sets. Native code sets the flag to 1 where other code would call [`Phv::touch`].
    pub touched: *mut u8,
}

impl Phv {
    /// Returns the addresses of the parts. They stay valid as long as the header vector lives.
    #[inline]
    pub fn parts(&mut self) -> PhvParts {
        PhvParts {
            bytes: self.bytes.as_mut_ptr(),
            varbit_bits: self.varbit_bits.as_mut_ptr(),
            filled: self.filled.as_mut_ptr(),
            touched: (&raw mut self.touched).cast(),
        }
    }

    /// Creates the header vector of a program: no header is valid.
    pub fn new(program: &Program) -> Self {
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

    /// Restores the initial state.
    pub fn reset(&mut self) {
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

    /// Fills bytes with a nonzero pattern: metadata, validity bytes, and headers without a `varbit` field. For engines
    /// that initialise the header vector themselves ([`crate::Engine::starts_packets`]). Such an engine must write each
    /// byte before it reads the byte. Zeros left from an earlier packet could hide a missing write.
    #[cfg(debug_assertions)]
    pub fn poison(&mut self) {
        const POISON: u8 = 0xa5;
        for run in &self.fixed[..self.plain] {
            self.bytes[run.clone()].fill(POISON);
        }
        self.bytes[self.validity..].fill(POISON);
    }

    /// Restores only the state that [`touch`](Self::touch) covers.
    #[inline]
    pub fn reset_touched(&mut self) {
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

    /// Records that a header with a `varbit` field, or a stack's fill level, may change. Must be called before each
    /// such write.
    #[inline]
    pub fn touch(&mut self) {
        self.touched = true;
    }

    /// Sets all metadata to 0 and leaves headers as they are.
    pub fn reset_metadata(&mut self) {
        self.bytes[..self.metadata_bytes].fill(0);
    }

    /// Copies another header vector of the same program.
    pub fn copy_from(&mut self, program: &Program, other: &Self) {
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

    /// Returns whether a header is valid.
    #[inline]
    pub fn is_valid(&self, header: HeaderId) -> bool {
        self.bytes[self.validity + header.index()] != 0
    }

    /// Makes a header valid, and the other members of its union invalid.
    pub fn set_valid(&mut self, program: &Program, id: HeaderId) {
        if let Some(union) = program.header(id).union {
            for member in &program.union(union).headers {
                self.set_invalid(*member);
            }
        }
        self.bytes[self.validity + id.index()] = 1;
    }

    /// Makes a header invalid.
    pub fn set_invalid(&mut self, header: HeaderId) {
        self.bytes[self.validity + header.index()] = 0;
    }

    /// Returns the number of bits in the `varbit` field of a header.
    pub fn varbit_bits(&self, header: HeaderId) -> u32 {
        self.varbit_bits[header.index()]
    }

    /// Sets the number of bits in the `varbit` field of a header.
    pub fn set_varbit_bits(&mut self, header: HeaderId, bits: u32) {
        self.touch();
        self.varbit_bits[header.index()] = bits;
    }

    /// Returns the number of elements in a stack.
    pub fn filled(&self, stack: StackId) -> usize {
        self.filled[stack.index()] as usize
    }

    /// Sets the number of elements in a stack.
    pub fn set_filled(&mut self, stack: StackId, elements: usize) {
        self.touch();
        self.filled[stack.index()] = elements as u32;
    }

    /// Returns the number of elements in a stack of unions.
    pub fn union_filled(&self, stack: UnionStackId) -> usize {
        self.filled[self.stacks + stack.index()] as usize
    }

    /// Sets the number of elements in a stack of unions.
    pub fn set_union_filled(&mut self, stack: UnionStackId, elements: usize) {
        self.touch();
        self.filled[self.stacks + stack.index()] = elements as u32;
    }

    /// Returns the byte range of a header.
    fn range(program: &Program, header: HeaderId) -> Range<usize> {
        let header = program.header(header);
        let start = header.offset as usize;
        start..start + header.bytes as usize
    }

    /// Sets all fields of a header to 0. A `varbit` field keeps its length, as in BMv2.
    pub fn clear(&mut self, program: &Program, header: HeaderId) {
        self.touch();
        self.bytes[Self::range(program, header)].fill(0);
    }

    /// Copies fields and validity from a header of the same type.
    pub fn copy_header(&mut self, program: &Program, to: HeaderId, from: HeaderId) {
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

    /// Returns whether two headers are both valid with equal fields, or both invalid.
    pub fn headers_equal(&self, program: &Program, left: HeaderId, right: HeaderId) -> bool {
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

    /// Returns whether the `varbit` fields of two headers have equal length and content.
    pub fn varbits_equal(&self, program: &Program, left: HeaderId, right: HeaderId) -> bool {
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

    /// Returns the length of a valid header on the wire, in bytes.
    pub fn wire_bytes(&self, program: &Program, header: HeaderId) -> usize {
        let ty = program.header_type(program.header(header).ty);
        (ty.fixed_bits + self.varbit_bits(header) as usize) / 8
    }

    /// Appends a header in wire format.
    pub fn emit(&self, program: &Program, id: HeaderId, out: &mut Vec<u8>) {
        let header = program.header(id);
        let ty = program.header_type(header.ty);
        let start = header.offset as usize;
        let Some(varbit) = ty.varbit else {
            out.extend_from_slice(&self.bytes[start..start + header.bytes as usize]);
            return;
        };
        // Copies the parts before, in and after the varbit field. The field's content is left-aligned in its reserved
        // space.
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

    /// Fills a header from `data`. The length of `data` is exactly that of the header with a `varbit` field of
    /// `varbit_bits` bits.
    pub fn extract(&mut self, program: &Program, id: HeaderId, varbit_bits: u32, data: &[u8]) {
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

/// Returns the space reserved for a header's `varbit` field, if the header has such a field.
pub fn varbit_slot(program: &Program, id: HeaderId) -> Option<FieldSlot> {
    let ty = program.header_type(program.header(id).ty);
    ty.varbit.map(|field| program.slot(id, field))
}

/// Returns two byte ranges for each header with a `varbit` field: the header, and the space reserved for the field. The
/// headers are in the order of their positions.
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

/// Returns the merged byte ranges of metadata and of headers without a `varbit` field.
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

/// Returns the byte ranges of headers with a `varbit` field that lie before and after the field.
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
