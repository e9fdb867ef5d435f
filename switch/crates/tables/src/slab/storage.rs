// SPDX-License-Identifier: Apache-2.0
//! The memory of a table's records, and the rows in it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluice_program::{Program, Table};

use super::layout::*;
use crate::group::Group;
use crate::meter::Meter;
use crate::row::{ROW_HOLDER, Row};
use crate::staggered::StaggeredArray;

/// A table has `VERSIONS` slots for each entry that it may hold, plus [`SPARE`] slots. The extra slots are for versions
/// that a running transaction adds or removes, and for versions that handles keep.
const VERSIONS: usize = 4;
const SPARE: usize = 1 << 16;

/// Maximum number of slots of a table. The slot field of a row's head cannot hold larger numbers, and address space is
/// limited.
const MAX_SLOTS: usize = 1 << (u64::BITS - ROW_HOLDER);

/// Optional fields that few entries have.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) one_shot: Option<Arc<Group>>,
}

/// The records of one table.
pub(crate) struct Slab {
    pub(super) layout: RecordLayout,
    slots: u32,
    pub(super) records: StaggeredArray,
    /// One meter for each record, in a table with direct meters.
    pub(super) meters: Option<StaggeredArray>,
    /// Optional fields, by slot. Packets do not read them.
    pub(super) extras: Mutex<HashMap<u32, Arc<Extras>>>,
}

impl Slab {
    /// Reserves address space for a table's records. A table without a key has no records.
    pub(crate) fn of(program: &Program, table: &Table) -> Self {
        let entries = table.max_size.max(table.entries.len());
        let entries = if table.key.is_empty() { 0 } else { entries };
        Self::new(RecordLayout::new(program, table), entries)
    }

    /// Reserves address space for the records of a table that may hold `entries` entries.
    pub(crate) fn new(layout: RecordLayout, entries: usize) -> Self {
        let slots = entries.saturating_mul(VERSIONS).saturating_add(SPARE);
        let slots = slots.min(MAX_SLOTS);
        let reserve = |bytes: usize| StaggeredArray::new(slots * bytes);
        Self {
            layout,
            slots: slots as u32,
            records: reserve(layout.bytes()),
            meters: layout.metered.then(|| reserve(size_of::<Meter>())),
            extras: Mutex::default(),
        }
    }

    /// Returns the layout of the records.
    pub(crate) fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the start of the records.
    pub(crate) fn start(&self) -> *const u8 {
        self.records.start()
    }

    /// Returns the row of a slot. A replica must refer to the slot.
    #[inline]
    pub(crate) fn row(&self, slot: u32) -> Row<'_> {
        let start = slot as usize * self.layout.bytes();
        debug_assert!(start < self.records.usable());
        // SAFETY: a replica refers to the slot, so its record has been written. Records never move.
        unsafe { Row::at(self.records.start().wrapping_add(start).cast()) }
    }

    /// Calls `visit` with each cache line of a slot's row.
    #[inline(always)]
    pub(crate) fn for_each_line(&self, slot: u32, visit: impl Fn(*const u8)) {
        let row = self.row(slot).as_ptr().cast::<u8>();
        visit(row);
        let (end, mut at) = (row.addr() % LINE + self.layout.hot_bytes, LINE);
        while at < end {
            visit(row.wrapping_add(at));
            at += LINE;
        }
    }

    /// Returns the address of the packet state, if the state is in the record of another slot.
    #[inline(always)]
    pub(crate) fn state_of_holder(&self, slot: u32) -> Option<*const u8> {
        let layout = &self.layout;
        let holder = (self.row(slot).head() >> ROW_HOLDER) as u32;
        let state = || self.row(holder).as_ptr().wrapping_add(layout.state).cast();
        (layout.keeps_state && holder != slot).then(state)
    }

    /// Prefetches a slot's row.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        #[cfg(target_arch = "x86_64")]
        self.for_each_line(slot, |line| {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: SSE is part of x86_64, and a prefetch has no architectural effect.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        });
        #[cfg(not(target_arch = "x86_64"))]
        let _ = slot;
    }

    /// Returns the slot of a row.
    pub(crate) fn slot_of(&self, row: Row<'_>) -> u32 {
        let start = row.as_ptr().addr() - self.records.start().addr();
        (start / self.layout.bytes()) as u32
    }
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "records of {} words", self.layout.words)
    }
}
