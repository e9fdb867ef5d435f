// SPDX-License-Identifier: Apache-2.0
//! Bytes of the header vector that may be read before they are written. Only these must be cleared when a packet
//! starts.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use sluice_program::{HeaderId, Program, Slot};

use crate::analysis::field_usage::FieldUsage;

impl FieldUsage {
    /// Returns the ranges of the header vector that may be read before they are written, as start and end, in order.
    /// Headers with a `varbit` field are not included.
    pub(crate) fn read_unwritten(&self, program: &Program) -> Vec<(u32, u32)> {
        let all = self.whole.get() || !self.pruned.get();
        let fields = self.fields.iter();
        let fields = fields.filter(|field| all || field.observed.get() || field.reread.get());
        let fields =
            fields.map(|field| (field.slot.byte, field.slot.byte + whole_bytes(field.slot)));
        let named = self.headers.iter();
        let written = named.filter(|(_, _, read)| !read.get() && !all);
        let written: BTreeSet<HeaderId> = written.map(|(_, id, _)| *id).collect();
        let headers = program.headers.iter().zip(0..);
        let headers = headers.filter(|(header, id)| {
            let plain = program.header_type(header.ty).varbit.is_none();
            !header.metadata && plain && header.bytes != 0 && !written.contains(&HeaderId(*id))
        });
        let headers = headers.map(|(header, _)| (header.offset, header.offset + header.bytes));
        let mut runs: Vec<(u32, u32)> = fields.chain(headers).collect();
        runs.sort_unstable();
        runs
    }

    /// Returns the header outside of stacks and unions that contains a slot.
    pub(crate) fn named_header(&self, slot: Slot) -> Option<&(Range<u32>, HeaderId, Cell<bool>)> {
        let after = self
            .headers
            .partition_point(|(bytes, ..)| bytes.start <= slot.byte);
        let header = &self.headers[after.checked_sub(1)?];
        header.0.contains(&slot.byte).then_some(header)
    }
}

/// Returns the number of bytes that contain a field.
fn whole_bytes(slot: Slot) -> u32 {
    (u32::from(slot.lead) + u32::from(slot.width)).div_ceil(8)
}

/// Returns the headers outside of stacks and unions, by offset, marked as not read. Code refers to these headers by
/// constant ids, so each read can be noted.
pub(crate) fn named_headers(program: &Program) -> Vec<(Range<u32>, HeaderId, Cell<bool>)> {
    let stacked = program.stacks.iter().flat_map(|stack| &stack.headers);
    let stacked: BTreeSet<HeaderId> = stacked.copied().collect();
    let headers = program.headers.iter().zip(0..);
    let named = headers.filter(|(header, id)| {
        !header.metadata && header.union.is_none() && !stacked.contains(&HeaderId(*id))
    });
    let mut named: Vec<_> = named
        .map(|(header, id)| {
            let bytes = header.offset..header.offset + header.bytes;
            (bytes, HeaderId(id), Cell::new(false))
        })
        .collect();
    named.sort_by_key(|(bytes, ..)| bytes.start);
    named
}
