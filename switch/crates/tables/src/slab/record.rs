// SPDX-License-Identifier: Apache-2.0
//! Reads records, for the authoritative copy, the replicas and the handles. Also builds rows. A row is the part of a
//! record that packets need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_program::{ActionId, Program};

use super::layout::*;
use super::storage::{Extras, Slab};
use crate::action::{ActionEntry, ActionRef};
use crate::binding::Binding;
use crate::entry_state::EntryState;
use crate::group::Group;
use crate::meter::Meter;
use crate::row::{
    KIND_ACTION as DIRECT, KIND_GROUP as GROUP, KIND_MEMBER as MEMBER, NO_ACTION, ROW_HIT,
    ROW_HOLDER, ROW_KIND as KIND,
};

/// A record that is in use. Only code that has the slot from the authoritative copy, a replica or a handle may access
/// it; see the parent module.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    slab: &'a Slab,
    slot: u32,
    pub(super) words: &'a [AtomicU64],
}

impl Slab {
    /// Returns the record of a slot. The authoritative copy, a replica or a handle must refer to the slot.
    #[inline]
    pub(crate) fn record(&self, slot: u32) -> Record<'_> {
        let start = slot as usize * self.layout.bytes();
        let words = if start + self.layout.bytes() <= self.records.usable() {
            // SAFETY: these bytes are usable, aligned to eight bytes, and always valid numbers. All accesses are
            // atomic, or there are only reads (see `plain`). The memory lives as long as the slab.
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
}

impl<'a> Record<'a> {
    /// Returns the head of the record's row.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.words[HEAD].load(Ordering::Relaxed)
    }

    #[inline]
    fn notes(&self) -> &'a AtomicU64 {
        &self.words[self.slab.layout.notes]
    }

    fn flag(&self, flag: u64) -> bool {
        self.notes().load(Ordering::Relaxed) & flag != 0
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns the slot that holds the packet state.
    #[inline]
    pub(crate) fn holder(&self) -> u32 {
        (self.head() >> ROW_HOLDER) as u32
    }

    /// Returns the state that packets wrote, if the table keeps packet state.
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
        let words = words
            .get(self.slab.layout.state..)?
            .first_chunk::<STATE_WORDS>()?;
        // SAFETY: `EntryState` is `repr(C)` and consists of `STATE_WORDS` values of `AtomicU64`, so it has the layout
        // of this array. All accesses to it are atomic. The result lives no longer than the words.
        Some(unsafe { &*std::ptr::from_ref(words).cast::<EntryState>() })
    }

    /// Returns the direct meter, if the table has one.
    #[inline]
    pub(crate) fn meter(&self) -> Option<&'a Meter> {
        let meters = self.slab.meters.as_ref()?;
        let start = self.holder() as usize * size_of::<Meter>();
        if start + size_of::<Meter>() > meters.usable() {
            return None;
        }
        // SAFETY: these bytes are usable. They are aligned, because they begin at a multiple of a meter's size after
        // the start of a cache line. A meter consists of atomic numbers, for which any bytes are valid. A meter is
        // never borrowed exclusively, and lives as long as the slab.
        Some(unsafe { &*meters.start().add(start).cast::<Meter>() })
    }

    #[inline]
    pub(crate) fn target(&self) -> Target<'a> {
        let head = self.head();
        let target = head as u32;
        match head >> KIND & 3 {
            DIRECT => {
                let layout = &self.slab.layout;
                let params = &self.words[PARAMS..layout.row_words()];
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

    /// Writes the row of the record's class to `row`: a head with the target alone, and the parameters.
    pub(crate) fn class(&self, row: &mut Vec<u64>) {
        let layout = &self.slab.layout;
        let head = self.head();
        let slot = match head >> KIND & 3 {
            ONE_SHOT => u64::from(self.slot) << ROW_HOLDER,
            _ => 0,
        };
        row.clear();
        row.push(head & (3 << KIND | u64::from(u32::MAX)) | ROW_HIT | slot);
        row.extend_from_slice(plain(&self.words[PARAMS..layout.row_words()]));
    }

    /// Converts the record's target to the control plane's form.
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
                let none = || Arc::new(Group::one_shot_group(std::iter::empty(), None));
                Binding::OneShot(self.one_shot().unwrap_or_else(none))
            }
        }
    }

    pub(crate) fn extras(&self) -> Option<Arc<Extras>> {
        if !self.flag(EXTRAS) {
            return None;
        }
        self.slab.extras.lock().get(&self.slot).map(Arc::clone)
    }

    /// Returns the entry's one-shot group, if it has one.
    pub(crate) fn one_shot(&self) -> Option<Arc<Group>> {
        self.extras()?.one_shot.as_ref().map(Arc::clone)
    }

    pub(crate) fn is_const(&self) -> bool {
        self.flag(CONST)
    }

    /// Returns whether the record is part of the authoritative copy.
    pub(crate) fn is_live(&self) -> bool {
        self.flag(LIVE)
    }

    /// Records whether the record is part of the authoritative copy. Only the code that changes the authoritative copy
    /// calls this.
    pub(crate) fn set_live(&self, live: bool) {
        // Changes only the flag's bit, because other threads may change the handle count in the same word at the same
        // time.
        if live {
            self.notes().fetch_or(LIVE, Ordering::Relaxed);
        } else {
            self.notes().fetch_and(!LIVE, Ordering::Relaxed);
        }
    }

    /// Increments the handle count.
    pub(crate) fn add_handle(&self) {
        self.notes().fetch_add(1, Ordering::Relaxed);
    }

    /// Decrements the handle count.
    pub(crate) fn drop_handle(&self) {
        self.notes().fetch_sub(1, Ordering::Release);
    }

    /// Returns the idle timeout in nanoseconds; 0 for no timeout.
    pub(crate) fn idle_timeout_ns(&self) -> u64 {
        let timeout = self.slab.layout.timeout;
        timeout.map_or(0, |index| self.words[index].load(Ordering::Relaxed))
    }

    /// Returns the priority that the control plane gave. For a prefix field that is too wide for a FIB, returns the
    /// prefix length instead.
    pub(crate) fn rank(&self) -> i32 {
        let order = self.slab.layout.order;
        order.map_or(0, |index| {
            self.words[index].load(Ordering::Relaxed) as u32 as i32
        })
    }

    /// Returns the insertion number. If several matching entries have equal ranks, the entry with the lowest number
    /// wins, because it was inserted first.
    pub(crate) fn sequence(&self) -> u64 {
        let order = self.slab.layout.order;
        order.map_or(0, |index| self.words[index + 1].load(Ordering::Relaxed))
    }

    /// Returns the prefix length of the longest-prefix field.
    pub(crate) fn prefix_len(&self) -> u32 {
        (self.notes().load(Ordering::Relaxed) >> PREFIX_LEN) as u32
    }

    /// Returns the key's value, followed by masks and upper bounds.
    pub(crate) fn stored(&self) -> &'a [u8] {
        let layout = &self.slab.layout;
        &bytes(plain(&self.words[layout.key..layout.words]))[..layout.stored_bytes]
    }

    /// Returns the key's value.
    pub(crate) fn value(&self) -> &'a [u8] {
        &self.stored()[..self.slab.layout.key_bytes]
    }

    /// Returns masks and upper bounds. They are empty unless the table is matched by priority.
    pub(crate) fn second(&self) -> &'a [u8] {
        &self.stored()[self.slab.layout.key_bytes..]
    }
}

/// Target of a record, in the form that packets use.
pub(crate) enum Target<'a> {
    Direct(ActionRef<'a>),
    Member(u32),
    Group(u32),
    /// A one-shot group. The replica stores the group under the record's slot.
    OneShot,
}

/// Returns the target of a class's row. If the target is a one-shot group, also returns the slot of the entry that owns
/// the group. Otherwise the returned slot has no meaning.
#[inline]
pub(crate) fn class_target(row: &[AtomicU64]) -> (Target<'_>, u32) {
    let head = row[HEAD].load(Ordering::Relaxed);
    let target = head as u32;
    let slot = (head >> ROW_HOLDER) as u32;
    let target = match head >> KIND & 3 {
        DIRECT => Target::Direct(ActionRef {
            action: ActionId(target),
            params: plain(&row[PARAMS..]),
        }),
        MEMBER => Target::Member(target),
        GROUP => Target::Group(target),
        _ => Target::OneShot,
    };
    (target, slot)
}

/// Returns the row of a table's default entry.
pub(crate) fn default_row(binding: Option<&Binding>) -> Box<[AtomicU64]> {
    let (kind, target) = match binding {
        None => (DIRECT, NO_ACTION),
        Some(Binding::Direct(call)) => (DIRECT, call.action.0),
        Some(Binding::Member(id)) => (MEMBER, *id),
        Some(Binding::Group(id)) => (GROUP, *id),
        Some(Binding::OneShot(_)) => (ONE_SHOT, 0),
    };
    let mut row = vec![AtomicU64::new(u64::from(target) | kind << KIND)];
    if let Some(Binding::Direct(call)) = binding {
        row.extend(call.params.iter().copied().map(AtomicU64::new));
    }
    row.into()
}

/// Returns words as plain numbers. Invariant: the parameters and the key of a record in use are never written. The
/// parameters of a class are not written while a reader holds the replica.
#[inline]
fn plain(words: &[AtomicU64]) -> &[u64] {
    // SAFETY: `AtomicU64` has the size and bit validity of `u64`, and at least its alignment. These words are not
    // written during the borrow: only `Slab::fill` writes them, and only for a slot from the free list. The caller has
    // the slot from the authoritative copy (under the control lock), from a replica (held by a pin) or from a handle
    // (counted in the record). A slot that any of these three refers to is not on the free list.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// Returns words as bytes.
fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: all bytes of a `u64` are initialised, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());
