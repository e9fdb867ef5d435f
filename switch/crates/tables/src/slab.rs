// SPDX-License-Identifier: Apache-2.0
//! Storage of a table's entries. A record is a fixed number of 64-bit words, and its index is called the slot.
//!
//! The authoritative copy, both replicas and all [`Entry`](crate::Entry) handles share a slab.
//!
//! Invariant: a record is written only while it is unreachable, that is, before the authoritative copy or a replica
//! refers to its slot. Modifying an entry writes a new record, so each replica keeps its own version. A slot becomes
//! free when both replicas have dropped it (see [`left_right`](crate::left_right)) and no handle refers to it.
//!
//! All versions of an entry share the state that packets write (counter, time of the last hit). This state is in the
//! record of the entry's first version, the *holder*. The holder stays in use as long as the entry exists.
//!
//! Records are contiguous. At creation, a slab reserves address space for the largest number of records that the table
//! can need. So a record never moves, and its slot alone determines its address. Records that were never written take
//! no memory.
//!
//! [`layout`] defines the offsets in a record, [`record`] reads a record.

mod layout;
mod record;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_program::{Program, Table};

use crate::binding::BindingRef;
use crate::group::Group;
use crate::key::KeyRef;
use crate::meter::Meter;
use crate::row::{
    KIND_ACTION as DIRECT, KIND_GROUP as GROUP, KIND_MEMBER as MEMBER, ROW_HIT, ROW_HOLDER,
    ROW_KIND as KIND, Row,
};
use crate::staggered::StaggeredArray;

pub(crate) use layout::Layout;
pub(crate) use record::{Record, Target, class_target, default_row};

use layout::*;

/// A table has `VERSIONS` slots for each entry that it may hold, plus [`SPARE`] slots. The extra slots are for versions
/// that a running transaction adds or removes, and for versions that handles keep.
const VERSIONS: usize = 4;
const SPARE: usize = 1 << 16;

/// Maximum number of slots of a table. The slot field of a row's head cannot hold larger numbers, and address space is
/// limited.
const MAX_SLOTS: usize = 1 << (u64::BITS - ROW_HOLDER);

/// Fields that most entries do not have. They are stored outside the record.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) one_shot: Option<Arc<Group>>,
}

/// Contents of a record to write.
pub(crate) struct NewRecord<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) rank: i32,
    pub(crate) sequence: u64,
    pub(crate) binding: BindingRef<'a>,
    pub(crate) idle_timeout_ns: u64,
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Vec<u8>,
    pub(crate) is_const: bool,
}

/// The records of one table.
pub(crate) struct Slab {
    layout: Layout,
    slots: u32,
    records: StaggeredArray,
    /// One meter for each record, in a table with direct meters.
    meters: Option<StaggeredArray>,
    /// Optional fields, by slot. Packets do not read them.
    extras: Mutex<HashMap<u32, Arc<Extras>>>,
}

impl Slab {
    /// Reserves address space for a table's records. A table without a key has no records.
    pub(crate) fn of(program: &Program, table: &Table) -> Self {
        let entries = table.max_size.max(table.entries.len());
        let entries = if table.key.is_empty() { 0 } else { entries };
        Self::new(Layout::new(program, table), entries)
    }

    /// Reserves address space for the records of a table that may hold `entries` entries.
    pub(crate) fn new(layout: Layout, entries: usize) -> Self {
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
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the record of a slot. The authoritative copy, a replica or a handle must refer to the slot.
    #[inline]
    pub(crate) fn record(&self, slot: u32) -> Record<'_> {
        let start = slot as usize * self.layout.bytes();
        let words = if start + self.layout.bytes() <= self.records.usable() {
            // SAFETY: these bytes are usable, aligned to eight bytes, and valid as numbers. Records are accessed either
            // atomically or only for reading (see `plain`). The memory lives as long as the slab.
            unsafe {
                let first = self.records.start().add(start).cast::<AtomicU64>();
                std::slice::from_raw_parts(first, self.layout.words)
            }
        } else {
            &[]
        };
        Record {
            slab: self,
            slot,
            words,
        }
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

    /// Returns the address of the packet state if another slot's record holds it.
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

    /// Makes the memory of a slot's record usable.
    fn make_usable(&self, slot: u32) {
        let records = slot as usize + 1;
        self.records.grow(records * self.layout.bytes());
        if let Some(meters) = &self.meters {
            meters.grow(records * size_of::<Meter>());
        }
    }

    /// Writes a record into a free slot. `holder` is the slot of the entry's first version, or `None` if this record is
    /// the first version. For a first version the packet state is reset, with `now_us` as the time of the last hit.
    pub(crate) fn fill(&self, slot: u32, new: NewRecord<'_>, holder: Option<u32>, now_us: u64) {
        self.make_usable(slot);
        let (record, layout) = (self.record(slot), &self.layout);
        let holder = holder.filter(|_| layout.keeps_state);
        let set = |index: usize, word: u64| record.words[index].store(word, Ordering::Relaxed);
        let mut one_shot = None;
        let (kind, target) = match new.binding {
            BindingRef::Direct(call) => {
                let params = call.params.iter().copied().chain(std::iter::repeat(0));
                for (index, word) in params.take(layout.param_words).enumerate() {
                    set(PARAMS + index, word);
                }
                (DIRECT, call.action.0)
            }
            BindingRef::Member(id) => (MEMBER, id),
            BindingRef::Group(id) => (GROUP, id),
            BindingRef::OneShot(group) => {
                one_shot = Some(Arc::clone(group));
                (ONE_SHOT, 0)
            }
        };
        let with_extras =
            new.controller_metadata != 0 || !new.metadata.is_empty() || one_shot.is_some();
        if with_extras {
            let extras = Extras {
                controller_metadata: new.controller_metadata,
                metadata: new.metadata.into_boxed_slice(),
                one_shot,
            };
            self.extras.lock().insert(slot, Arc::new(extras));
        }
        let flag = |flag: u64, on: bool| if on { flag } else { 0 };
        let holding = u64::from(holder.unwrap_or(slot)) << ROW_HOLDER;
        set(HEAD, u64::from(target) | kind << KIND | ROW_HIT | holding);
        let flags = flag(CONST, new.is_const) | flag(EXTRAS, with_extras);
        set(
            layout.notes,
            flags | u64::from(new.key.prefix_len()) << PREFIX_LEN,
        );
        if let Some(timeout) = layout.timeout {
            set(timeout, new.idle_timeout_ns);
        }
        if let Some(order) = layout.order {
            set(order, new.rank as u32 as u64);
            set(order + 1, new.sequence);
        }
        for (index, chunk) in new.key.stored().chunks(size_of::<u64>()).enumerate() {
            let mut word = [0; size_of::<u64>()];
            word[..chunk.len()].copy_from_slice(chunk);
            set(layout.key + index, u64::from_ne_bytes(word));
        }
        if holder.is_none() {
            if let Some(state) = record.state() {
                state.begin(now_us);
            }
            if let Some(meter) = record.meter() {
                meter.reset();
            }
        }
    }

    /// Returns whether this slot's record holds the packet state of its entry. If so, the slot must stay in use when
    /// the entry is modified.
    pub(crate) fn is_holder(&self, slot: u32) -> bool {
        self.layout.keeps_state && self.record(slot).holder() == slot
    }

    /// Releases a slot that neither the authoritative copy nor a replica refers to. Returns false, and does not free
    /// the slot, if a handle still refers to it.
    pub(crate) fn release(&self, slot: u32) -> bool {
        let record = self.record(slot);
        // Acquire: reads through handles that were dropped must be complete before the slot is reused.
        let notes = record.words[self.layout.notes].load(Ordering::Acquire);
        if notes as u32 != 0 {
            return false;
        }
        if notes & EXTRAS != 0 {
            self.extras.lock().remove(&slot);
        }
        true
    }
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "records of {} words", self.layout.words)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::action::ActionRef;
    use crate::entry_state::EntryState;
    use sluice_program::ActionId;

    /// Returns a new record with this action and no parameters.
    fn plain(action: u32) -> NewRecord<'static> {
        NewRecord {
            key: KeyRef::new(&[0; 20], 0),
            rank: 0,
            sequence: 0,
            binding: BindingRef::Direct(ActionRef {
                action: ActionId(action),
                params: &[],
            }),
            idle_timeout_ns: 0,
            controller_metadata: 0,
            metadata: Vec::new(),
            is_const: false,
        }
    }

    #[test]
    fn packets_use_one_line_of_a_record_wherever_that_fits() {
        for (param_words, lines) in [(0, 1), (4, 1), (5, 2), (12, 2), (13, 3)] {
            let layout = Layout::of(Some(false), param_words, true, false, [20, 20]);
            let slab = Slab::new(layout, 1000);
            for slot in 0..100 {
                slab.fill(slot, plain(1), None, 0);
                let visited = Cell::new(0);
                slab.for_each_line(slot, |line| {
                    let row = slab.row(slot).as_ptr().cast::<u8>();
                    assert_eq!(line, row.wrapping_add(visited.get() * LINE));
                    visited.set(visited.get() + 1);
                });
                assert_eq!(visited.get(), lines, "{param_words} words, slot {slot}");
            }
        }
    }

    #[test]
    fn the_packet_state_of_a_modified_entry_is_in_the_record_of_its_first_version() {
        let layout = Layout::of(Some(false), 4, false, false, [20, 20]);
        let slab = Slab::new(layout, 1000);
        slab.fill(3, plain(1), None, 7);
        slab.fill(900, plain(2), Some(3), 9);
        assert_eq!(slab.state_of_holder(3), None);
        let state = slab.record(3).state().expect("the table keeps it");
        let elsewhere = slab.state_of_holder(900);
        assert_eq!(elsewhere, Some(std::ptr::from_ref(state).cast()));
    }

    #[test]
    fn records_and_meters_stay_apart_and_in_place() {
        let layout = Layout::of(Some(true), 1, false, false, [8, 8]);
        let slab = Slab::new(layout, 1000);
        let slots: Vec<u32> = (0..5000).step_by(7).chain([slab.slots() - 1]).collect();
        for slot in &slots {
            let record = NewRecord {
                key: KeyRef::new(&[], 0),
                binding: BindingRef::Direct(ActionRef {
                    action: ActionId(*slot),
                    params: &[u64::from(*slot)],
                }),
                ..plain(*slot)
            };
            slab.fill(*slot, record, None, 3);
            let meter = slab.record(*slot).meter().expect("there is one");
            meter.execute(1, u64::from(*slot), 3);
        }
        for slot in &slots {
            let record = slab.record(*slot);
            let Target::Direct(call) = record.target() else {
                panic!("an action");
            };
            assert_eq!((call.action.0, call.params[0]), (*slot, u64::from(*slot)));
            assert_eq!(record.state().map(EntryState::last_hit_us), Some(3));
            let green = record.meter().map(|meter| meter.colors()[0].get());
            assert_eq!(green, Some((1, u64::from(*slot))));
        }
    }
}
