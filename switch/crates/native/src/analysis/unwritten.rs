// SPDX-License-Identifier: Apache-2.0
//! Finds the bytes of the header vector that may be read before they are written. Only these bytes must be cleared when
//! a packet starts.

use std::collections::BTreeSet;

use sluice_program::{FieldSlot, HeaderId, Program};

use crate::analysis::field_usage::FieldUsage;

impl FieldUsage {
    /// Returns the byte ranges of the header vector that may be read before they are written, in order, each as start
    /// and end. Headers with a `varbit` field are not included.
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
}

/// Returns the number of bytes that contain a field.
fn whole_bytes(slot: FieldSlot) -> u32 {
    (u32::from(slot.lead) + u32::from(slot.width)).div_ceil(8)
}
