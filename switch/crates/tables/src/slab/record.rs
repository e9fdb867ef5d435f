// SPDX-License-Identifier: Apache-2.0
//! A record as truth, sides and handles look at it, and rows: what a packet needs of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_program::{ActionId, Program};

use super::layout::*;
use super::{Extras, Slab};
use crate::entry::{ActionEntry, ActionRef, Binding, EntryState};
use crate::group::Group;
use crate::handle::{
    KIND_ACTION as DIRECT, KIND_GROUP as GROUP, KIND_MEMBER as MEMBER, NO_ACTION, ROW_HIT,
    ROW_HOLDER, ROW_KIND as KIND,
};
use crate::meter::Meter;

/// A record, looked at by who may: see the module.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(super) slab: &'a Slab,
    pub(super) slot: u32,
    pub(super) words: &'a [AtomicU64],
}

impl<'a> Record<'a> {
    /// The head of its row.
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

    /// The slot that holds what packets leave behind.
    #[inline]
    pub(crate) fn holder(&self) -> u32 {
        (self.head() >> ROW_HOLDER) as u32
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
        let words = words
            .get(self.slab.layout.state..)?
            .first_chunk::<STATE_WORDS>()?;
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
        // SAFETY: these bytes are usable, and begin at a multiple of a meter's size from the beginning of
        // a cache line. A meter consists of atomic numbers, for which cleared memory and whatever they were
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

    /// What it leads to and nothing else of it, as a row of the same words as the record begins with.
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

    /// The group of an entry that has one of its own.
    pub(crate) fn one_shot(&self) -> Option<Arc<Group>> {
        self.extras()?.one_shot.as_ref().map(Arc::clone)
    }

    pub(crate) fn is_const(&self) -> bool {
        self.flag(CONST)
    }

    /// Whether it is in truth.
    pub(crate) fn is_live(&self) -> bool {
        self.flag(LIVE)
    }

    /// Notes whether it is in truth; for the one who changes it.
    pub(crate) fn set_live(&self, live: bool) {
        // Others may note handles at the same time.
        if live {
            self.notes().fetch_or(LIVE, Ordering::Relaxed);
        } else {
            self.notes().fetch_and(!LIVE, Ordering::Relaxed);
        }
    }

    /// Notes one more handle.
    pub(crate) fn hold(&self) {
        self.notes().fetch_add(1, Ordering::Relaxed);
    }

    /// Notes one handle fewer.
    pub(crate) fn let_go(&self) {
        self.notes().fetch_sub(1, Ordering::Release);
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
        (self.notes().load(Ordering::Relaxed) >> PREFIX_LEN) as u32
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
    let slot = (row[HEAD] >> ROW_HOLDER) as u32;
    let target = match row[HEAD] >> KIND & 3 {
        DIRECT => Target::Direct(ActionRef {
            action: ActionId(target),
            params: &row[PARAMS..],
        }),
        MEMBER => Target::Member(target),
        GROUP => Target::Group(target),
        _ => Target::OneShot,
    };
    (target, slot)
}

/// The row of what a table does on a miss.
pub(crate) fn default_row(binding: Option<&Binding>) -> Box<[u64]> {
    let (kind, target) = match binding {
        None => (DIRECT, NO_ACTION),
        Some(Binding::Direct(call)) => (DIRECT, call.action.0),
        Some(Binding::Member(id)) => (MEMBER, *id),
        Some(Binding::Group(id)) => (GROUP, *id),
        Some(Binding::OneShot(_)) => (ONE_SHOT, 0),
    };
    let mut row = vec![u64::from(target) | kind << KIND];
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
