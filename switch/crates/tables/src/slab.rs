// SPDX-License-Identifier: Apache-2.0
//! Where a table's entries are kept: records of a fixed number of 64-bit words, found by slot.
//!
//! Truth, both sides and whoever holds an [`Entry`](crate::Entry) share a slab. A record is written
//! while nobody can reach it: its slot is on the free list, and appears in truth and on the sides only
//! afterwards. What an entry is changed to is another record, so that each side keeps the version
//! that belongs to it. A slot is free again when both sides have left it (see
//! [`left_right`](crate::left_right)) and no handle is left.
//!
//! What packets leave behind belongs to all versions of an entry. It lies in the record that the
//! entry began with, its *holder*, which stays as long as the entry.
//!
//! Records lie one after the other in memory that is reserved for as many as a table can ever need,
//! so a slot says where its record is; memory of records that were never written is not touched.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_program::{ActionId, Program, Table};

use crate::entry::{ActionEntry, ActionRef, Binding, BindingRef, EntryState};
use crate::group::Group;
use crate::handle::{
    KIND_ACTION as DIRECT, KIND_GROUP as GROUP, KIND_MEMBER as MEMBER, NO_ACTION, ROW_HIT,
    ROW_KIND as KIND,
};
use crate::key::{KeyRef, KeyShape};
use crate::meter::Meter;
use crate::reserved::Reserved;

/// A table has slots for so many times the entries that it may hold, and for [`SPARE`] more: versions
/// that a transaction under way brings or takes away, and those that handles keep.
const VERSIONS: usize = 4;
const SPARE: usize = 1 << 16;

/// No table has more slots, whatever it declares: address space is finite, too.
const MOST: usize = 1 << 28;

/// Where things are in a record, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    keeps_state: bool,
    metered: bool,
    params: usize,
    param_words: usize,
    timeout: Option<usize>,
    /// Rank and sequence number, where the order of entries matters.
    order: Option<usize>,
    key: usize,
    /// Bytes of the key's value.
    key_bytes: usize,
    /// Bytes of value, and of masks and upper bounds.
    stored_bytes: usize,
    words: usize,
}

/// Bytes that come from memory together.
const LINE: usize = 64;

/// What leads where, and flags.
const HEAD: usize = 0;

/// Low half: handles that refer to the record. High half: the slot of its holder.
const LINKS: usize = 1;

pub(crate) const STATE: usize = 2;

const STATE_WORDS: usize = size_of::<EntryState>() / size_of::<u64>();

/// Bits of the head, above the target.
const CONST: u64 = 1 << 34;
const LIVE: u64 = 1 << 35;
const EXTRAS: u64 = 1 << 36;
const PREFIX_LEN: u32 = 48;

const ONE_SHOT: u64 = 3;

impl Layout {
    pub(crate) fn new(program: &Program, table: &Table) -> Self {
        let ordered = KeyShape::of(table) == KeyShape::Ordered;
        let keeps_state = EntryState::kept_by(table);
        // Members and groups of a profile keep their parameters themselves.
        let param_words = match table.profile {
            Some(_) => 0,
            None => {
                let actions = table.actions.iter().map(|id| program.action(*id));
                actions.map(|action| action.param_words).max().unwrap_or(0)
            }
        };
        let stored_bytes = table.key_bytes * if ordered { 2 } else { 1 };
        Self::of(
            keeps_state.then_some(table.meter.is_some()),
            param_words,
            table.support_timeout,
            ordered,
            [table.key_bytes, stored_bytes],
        )
    }

    /// `state` says whether it is kept and if so, whether with a meter.
    pub(crate) fn of(
        state: Option<bool>,
        param_words: usize,
        timeout: bool,
        ordered: bool,
        [key_bytes, stored_bytes]: [usize; 2],
    ) -> Self {
        let mut words = STATE;
        let mut take = |count: usize| {
            words += count;
            words - count
        };
        take(if state.is_some() { STATE_WORDS } else { 0 });
        let params = take(param_words);
        let timeout = timeout.then(|| take(1));
        let order = ordered.then(|| take(2));
        let key = take(stored_bytes.div_ceil(size_of::<u64>()));
        Self {
            keeps_state: state.is_some(),
            metered: state == Some(true),
            params,
            param_words,
            timeout,
            order,
            key,
            key_bytes,
            stored_bytes,
            words,
        }
    }

    /// Bytes of a record.
    pub(crate) fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }

    /// Where the parameters are, in words.
    pub(crate) fn params(&self) -> usize {
        self.params
    }

    /// Words of a record up to the last parameter.
    pub(crate) fn row_words(&self) -> usize {
        self.params + self.param_words
    }
}

/// What few entries have.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) one_shot: Option<Arc<Group>>,
}

/// What an entry is to be.
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
    records: Reserved,
    /// One for each record of a table with a direct meter.
    meters: Option<Reserved>,
    /// By slot. Nothing that a packet needs.
    extras: Mutex<HashMap<u32, Arc<Extras>>>,
}

/// A record, looked at by who may: see the module.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    slab: &'a Slab,
    slot: u32,
    words: &'a [AtomicU64],
}

impl Slab {
    /// Room for a table's records. Without a key there are none.
    pub(crate) fn of(program: &Program, table: &Table) -> Self {
        let entries = table.max_size.max(table.entries.len());
        let entries = if table.key.is_empty() { 0 } else { entries };
        Self::new(Layout::new(program, table), entries)
    }

    /// Room for the records of a table that may hold so many entries.
    pub(crate) fn new(layout: Layout, entries: usize) -> Self {
        let slots = entries.saturating_mul(VERSIONS).saturating_add(SPARE);
        let slots = slots.min(MOST);
        let room = |bytes: usize| Reserved::new(slots * bytes);
        Self {
            layout,
            slots: slots as u32,
            records: room(layout.bytes()),
            meters: layout.metered.then(|| room(size_of::<Meter>())),
            extras: Mutex::default(),
        }
    }

    /// Where things are in its records.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The record of a slot that truth, a side or a handle names.
    #[inline]
    pub(crate) fn record(&self, slot: u32) -> Record<'_> {
        let start = slot as usize * self.layout.bytes();
        let words = if start + self.layout.bytes() <= self.records.usable() {
            // SAFETY: these bytes are usable, lie on a boundary of eight bytes and hold numbers,
            // whatever was written; all of their access is atomic (or there is none but reads: see
            // `plain`); they stay as long as the slab.
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

    /// Where the records begin.
    pub(crate) fn start(&self) -> *const u8 {
        self.records.start()
    }

    /// The row of a slot that a side names.
    #[inline]
    pub(crate) fn row(&self, slot: u32) -> *const u64 {
        let start = slot as usize * self.layout.bytes();
        debug_assert!(start < self.records.usable());
        self.records.start().wrapping_add(start).cast()
    }

    /// The lines of a slot's row.
    #[inline]
    pub(crate) fn lines(&self, slot: u32) -> impl Iterator<Item = *const u8> + use<> {
        let (row, bytes) = (self.row(slot).cast::<u8>(), self.layout.row_words() * 8);
        let lines = (row.addr() % LINE + bytes).div_ceil(LINE);
        (0..lines).map(move |line| row.wrapping_add(line * LINE))
    }

    /// Asks for a slot's row ahead of its use.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        #[cfg(target_arch = "x86_64")]
        for line in self.lines(slot) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: SSE is part of x86_64, and a prefetch has no effect that a program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = slot;
    }

    /// The slot whose row this is.
    pub(crate) fn slot_of(&self, row: *const u64) -> u32 {
        let start = row.addr() - self.records.start().addr();
        (start / self.layout.bytes()) as u32
    }

    /// Makes room for a slot's record.
    fn make_room(&self, slot: u32) {
        let records = slot as usize + 1;
        self.records.grow(records * self.layout.bytes());
        if let Some(meters) = &self.meters {
            meters.grow(records * size_of::<Meter>());
        }
    }

    /// Writes a record into a free slot. `holder` is the first version of the entry, if this is not
    /// it; else what packets leave behind begins with `now_us`.
    pub(crate) fn fill(&self, slot: u32, new: NewRecord<'_>, holder: Option<u32>, now_us: u64) {
        self.make_room(slot);
        let (record, layout) = (self.record(slot), &self.layout);
        let holder = holder.filter(|_| layout.keeps_state);
        let set = |index: usize, word: u64| record.words[index].store(word, Ordering::Relaxed);
        let mut one_shot = None;
        let (kind, target) = match new.binding {
            BindingRef::Direct(call) => {
                let params = call.params.iter().copied().chain(std::iter::repeat(0));
                for (index, word) in params.take(layout.param_words).enumerate() {
                    set(layout.params + index, word);
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
        let head = u64::from(target) | kind << KIND | u64::from(new.key.prefix_len()) << PREFIX_LEN;
        let flags = flag(CONST, new.is_const) | flag(EXTRAS, with_extras) | ROW_HIT;
        set(HEAD, head | flags);
        set(LINKS, u64::from(holder.unwrap_or(slot)) << 32);
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

    /// Whether what is at this slot has to stay when its entry is changed: it holds what packets leave
    /// behind.
    pub(crate) fn is_holder(&self, slot: u32) -> bool {
        self.layout.keeps_state && self.record(slot).holder() == slot
    }

    /// Gives a slot up that is in neither truth nor sides; false while a handle refers to it, and
    /// then it is not free yet.
    pub(crate) fn release(&self, slot: u32) -> bool {
        let record = self.record(slot);
        // Acquire: what was read through a handle must be over.
        let links = record.words[LINKS].load(Ordering::Acquire);
        if links as u32 != 0 {
            return false;
        }
        if record.head() & EXTRAS != 0 {
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

impl<'a> Record<'a> {
    #[inline]
    fn head(&self) -> u64 {
        self.words[HEAD].load(Ordering::Relaxed)
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// The slot that holds what packets leave behind.
    #[inline]
    pub(crate) fn holder(&self) -> u32 {
        (self.words[LINKS].load(Ordering::Relaxed) >> 32) as u32
    }

    /// What packets left behind, where the table keeps that.
    #[inline]
    pub(crate) fn state(&self) -> Option<&'a EntryState> {
        if !self.slab.layout.keeps_state {
            return None;
        }
        let holder = self.holder();
        let words = if holder == self.slot {
            self.words
        } else {
            self.slab.record(holder).words
        };
        let words = words.get(STATE..)?.first_chunk::<STATE_WORDS>()?;
        // SAFETY: `EntryState` is `repr(C)` and consists of `STATE_WORDS` values of `AtomicU64`, so it
        // has the layout of this array; all of its access is atomic, and the borrow is kept.
        Some(unsafe { &*std::ptr::from_ref(words).cast::<EntryState>() })
    }

    /// The direct meter, if the table has one.
    #[inline]
    pub(crate) fn meter(&self) -> Option<&'a Meter> {
        let meters = self.slab.meters.as_ref()?;
        let start = self.holder() as usize * size_of::<Meter>();
        if start + size_of::<Meter>() > meters.usable() {
            return None;
        }
        // SAFETY: these bytes are usable, and begin at a multiple of a meter's size from a boundary of
        // pages. A meter consists of atomic numbers, for which cleared memory and whatever they were
        // changed to are valid, and it is only ever borrowed shared; it stays as long as the slab.
        Some(unsafe { &*meters.start().add(start).cast::<Meter>() })
    }

    #[inline]
    pub(crate) fn target(&self) -> Target<'a> {
        let head = self.head();
        let target = head as u32;
        match head >> KIND & 3 {
            DIRECT => {
                let layout = &self.slab.layout;
                let params = &self.words[layout.params..layout.params + layout.param_words];
                Target::Direct(ActionRef {
                    action: ActionId(target),
                    params: plain(params),
                })
            }
            MEMBER => Target::Member(target),
            GROUP => Target::Group(target),
            _ => Target::OneShot,
        }
    }

    /// What it leads to and nothing else of it, as a row of the same words as the record begins with.
    pub(crate) fn class(&self, row: &mut Vec<u64>) {
        let layout = &self.slab.layout;
        let head = self.head();
        let is_one_shot = head >> KIND & 3 == ONE_SHOT;
        row.clear();
        row.push(head & (3 << KIND | u64::from(u32::MAX)) | ROW_HIT);
        row.push(if is_one_shot {
            u64::from(self.slot) << 32
        } else {
            0
        });
        row.resize(layout.params, 0);
        row.extend_from_slice(plain(&self.words[layout.params..layout.row_words()]));
    }

    /// What it leads to, for the control plane.
    pub(crate) fn binding(&self, program: &Program) -> Binding {
        match self.target() {
            Target::Direct(call) => {
                let words = program.action(call.action).param_words;
                Binding::Direct(ActionEntry {
                    action: call.action,
                    params: call.params[..words].into(),
                })
            }
            Target::Member(id) => Binding::Member(id),
            Target::Group(id) => Binding::Group(id),
            Target::OneShot => {
                let none = || Arc::new(Group::one_shot_group(std::iter::empty()));
                Binding::OneShot(self.one_shot().unwrap_or_else(none))
            }
        }
    }

    pub(crate) fn extras(&self) -> Option<Arc<Extras>> {
        if self.head() & EXTRAS == 0 {
            return None;
        }
        self.slab.extras.lock().get(&self.slot).map(Arc::clone)
    }

    /// The group of an entry that has one of its own.
    pub(crate) fn one_shot(&self) -> Option<Arc<Group>> {
        self.extras()?.one_shot.as_ref().map(Arc::clone)
    }

    pub(crate) fn is_const(&self) -> bool {
        self.head() & CONST != 0
    }

    /// Whether it is in truth.
    pub(crate) fn is_live(&self) -> bool {
        self.head() & LIVE != 0
    }

    /// Notes whether it is in truth; for the one who changes it.
    pub(crate) fn set_live(&self, live: bool) {
        let head = self.head();
        let head = if live { head | LIVE } else { head & !LIVE };
        self.words[HEAD].store(head, Ordering::Relaxed);
    }

    /// Notes one more handle.
    pub(crate) fn hold(&self) {
        self.words[LINKS].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes one handle fewer.
    pub(crate) fn let_go(&self) {
        self.words[LINKS].fetch_sub(1, Ordering::Release);
    }

    /// The idle timeout in nanoseconds; 0 for none.
    pub(crate) fn idle_timeout_ns(&self) -> u64 {
        let timeout = self.slab.layout.timeout;
        timeout.map_or(0, |index| self.words[index].load(Ordering::Relaxed))
    }

    /// The priority as the control plane gave it; for an over-wide longest-prefix field, the length.
    pub(crate) fn rank(&self) -> i32 {
        let order = self.slab.layout.order;
        order.map_or(0, |index| {
            self.words[index].load(Ordering::Relaxed) as u32 as i32
        })
    }

    /// Among equal ranks the one inserted first wins: the lower number.
    pub(crate) fn sequence(&self) -> u64 {
        let order = self.slab.layout.order;
        order.map_or(0, |index| self.words[index + 1].load(Ordering::Relaxed))
    }

    /// The length of the prefix of the longest-prefix field.
    pub(crate) fn prefix_len(&self) -> u32 {
        (self.head() >> PREFIX_LEN) as u32
    }

    /// The key's value, then masks and upper bounds.
    pub(crate) fn stored(&self) -> &'a [u8] {
        let layout = &self.slab.layout;
        &bytes(plain(&self.words[layout.key..layout.words]))[..layout.stored_bytes]
    }

    /// The key's value.
    pub(crate) fn value(&self) -> &'a [u8] {
        &self.stored()[..self.slab.layout.key_bytes]
    }

    /// Masks and upper bounds; empty unless the table is matched by priority.
    pub(crate) fn second(&self) -> &'a [u8] {
        &self.stored()[self.slab.layout.key_bytes..]
    }
}

/// What a record leads to, as a packet needs it.
pub(crate) enum Target<'a> {
    Direct(ActionRef<'a>),
    Member(u32),
    Group(u32),
    /// The group that the side keeps for the record.
    OneShot,
}

/// What the row of a class leads to, and the slot of the entry that a group belongs to.
#[inline]
pub(crate) fn class_target(row: &[u64]) -> (Target<'_>, u32) {
    let target = row[HEAD] as u32;
    let slot = (row[LINKS] >> 32) as u32;
    let target = match row[HEAD] >> KIND & 3 {
        DIRECT => Target::Direct(ActionRef {
            action: ActionId(target),
            // Tables with classes keep no state.
            params: &row[STATE..],
        }),
        MEMBER => Target::Member(target),
        GROUP => Target::Group(target),
        _ => Target::OneShot,
    };
    (target, slot)
}

/// The row of what a table does on a miss.
pub(crate) fn default_row(layout: &Layout, binding: Option<&Binding>) -> Box<[u64]> {
    let (kind, target) = match binding {
        None => (DIRECT, NO_ACTION),
        Some(Binding::Direct(call)) => (DIRECT, call.action.0),
        Some(Binding::Member(id)) => (MEMBER, *id),
        Some(Binding::Group(id)) => (GROUP, *id),
        Some(Binding::OneShot(_)) => (ONE_SHOT, 0),
    };
    let mut row = vec![0; layout.params];
    row[HEAD] = u64::from(target) | kind << KIND;
    if let Some(Binding::Direct(call)) = binding {
        row.extend_from_slice(&call.params);
    }
    row.into()
}

/// Words that nobody writes: parameters and key of a record that can be reached.
#[inline]
fn plain(words: &[AtomicU64]) -> &[u64] {
    // SAFETY: `AtomicU64` has the size and bit validity of `u64`, and at least its alignment. Nobody
    // writes these words during the borrow: `Slab::fill` alone does, for a slot from the free list,
    // and who calls this has the slot from truth (under the control lock), from a side (held by a
    // pin) or from a handle (counted in the record), all of which keep it off that list.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// Words as bytes.
fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: all bytes of a `u64` are initialised, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_meters_stay_apart_and_in_place() {
        let layout = Layout::of(Some(true), 1, false, false, [8, 8]);
        let slab = Slab::new(layout, 1000);
        let slots: Vec<u32> = (0..5000).step_by(7).chain([slab.slots() - 1]).collect();
        for slot in &slots {
            let record = NewRecord {
                key: KeyRef::new(&[], 0),
                rank: 0,
                sequence: 0,
                binding: BindingRef::Direct(ActionRef {
                    action: ActionId(*slot),
                    params: &[u64::from(*slot)],
                }),
                idle_timeout_ns: 0,
                controller_metadata: 0,
                metadata: Vec::new(),
                is_const: false,
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
