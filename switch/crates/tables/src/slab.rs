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
//! Records lie in chunks, each twice as large as the one before, which are never moved; the memory
//! of a chunk is not touched before its records are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluice_program::{ActionId, Program, Table};

use crate::entry::{ActionEntry, ActionRef, Binding, EntryState};
use crate::group::Group;
use crate::key::{KeyShape, MatchKey};
use crate::meter::Meter;

/// Records of the first chunk.
const FIRST: usize = 64;

/// So many chunks hold as many records as 32 bits can name.
const CHUNKS: usize = 27;

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

/// What leads where, and flags.
const HEAD: usize = 0;

/// Low half: handles that refer to the record. High half: the slot of its holder.
const LINKS: usize = 1;

const STATE: usize = 2;

const STATE_WORDS: usize = size_of::<EntryState>() / size_of::<u64>();

/// Bits of the head, above the target.
const KIND: u32 = 32;
const CONST: u64 = 1 << 34;
const LIVE: u64 = 1 << 35;
const EXTRAS: u64 = 1 << 36;
const PREFIX_LEN: u32 = 48;

const DIRECT: u64 = 0;
const MEMBER: u64 = 1;
const GROUP: u64 = 2;
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
}

struct Chunk {
    words: Box<[AtomicU64]>,
    /// One for each record of a table with a direct meter, else none.
    meters: Box<[Meter]>,
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
    pub(crate) key: &'a MatchKey,
    pub(crate) rank: i32,
    pub(crate) sequence: u64,
    pub(crate) binding: &'a Binding,
    pub(crate) idle_timeout_ns: u64,
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Vec<u8>,
    pub(crate) is_const: bool,
}

/// The records of one table.
pub(crate) struct Slab {
    layout: Layout,
    chunks: [OnceLock<Chunk>; CHUNKS],
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

/// The chunk of a slot, and where in it.
#[inline]
fn place(slot: u32) -> (usize, usize) {
    let group = slot as usize / FIRST + 1;
    let chunk = group.ilog2() as usize;
    (chunk, slot as usize - ((1 << chunk) - 1) * FIRST)
}

impl Slab {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            chunks: [const { OnceLock::new() }; CHUNKS],
            extras: Mutex::default(),
        }
    }

    fn chunk(&self, index: usize) -> &Chunk {
        self.chunks[index].get_or_init(|| {
            let records = FIRST << index;
            let meters = if self.layout.metered { records } else { 0 };
            Chunk {
                words: zeroed(records * self.layout.words),
                meters: std::iter::repeat_with(Meter::default)
                    .take(meters)
                    .collect(),
            }
        })
    }

    /// The record of a slot that truth, a side or a handle names.
    #[inline]
    pub(crate) fn record(&self, slot: u32) -> Record<'_> {
        let (chunk, index) = place(slot);
        let words = match self.chunks[chunk].get() {
            Some(chunk) => {
                let start = index * self.layout.words;
                &chunk.words[start..start + self.layout.words]
            }
            None => &[],
        };
        Record {
            slab: self,
            slot,
            words,
        }
    }

    /// Writes a record into a free slot. `holder` is the first version of the entry, if this is not
    /// it; else what packets leave behind begins with `now_us`.
    pub(crate) fn fill(&self, slot: u32, new: NewRecord<'_>, holder: Option<u32>, now_us: u64) {
        self.chunk(place(slot).0);
        let (record, layout) = (self.record(slot), &self.layout);
        let holder = holder.filter(|_| layout.keeps_state);
        let set = |index: usize, word: u64| record.words[index].store(word, Ordering::Relaxed);
        let mut one_shot = None;
        let (kind, target) = match new.binding {
            Binding::Direct(call) => {
                for (index, word) in call.params.iter().enumerate() {
                    set(layout.params + index, *word);
                }
                (DIRECT, call.action.0)
            }
            Binding::Member(id) => (MEMBER, *id),
            Binding::Group(id) => (GROUP, *id),
            Binding::OneShot(group) => {
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
        set(
            HEAD,
            head | flag(CONST, new.is_const) | flag(EXTRAS, with_extras),
        );
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
        if !self.slab.layout.metered {
            return None;
        }
        let (chunk, index) = place(self.holder());
        self.slab.chunks[chunk].get()?.meters.get(index)
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

/// Words of memory that the system has cleared and that nobody has touched.
fn zeroed(words: usize) -> Box<[AtomicU64]> {
    let plain = Box::into_raw(vec![0u64; words].into_boxed_slice());
    // SAFETY: the box was just taken apart, and `AtomicU64` has the same size, alignment (on the
    // 64-bit targets that this is built for, as checked below) and bit validity as `u64`.
    unsafe { Box::from_raw(plain as *mut [AtomicU64]) }
}

const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_without_a_gap() {
        let mut expected = (0, 0);
        for slot in 0..100_000 {
            assert_eq!(place(slot), expected);
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(u32::MAX).0 < CHUNKS);
    }
}
