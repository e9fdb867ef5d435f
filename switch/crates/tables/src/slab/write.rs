// SPDX-License-Identifier: Apache-2.0
//! Writes records into free slots, and releases slots.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::layout::*;
use super::storage::{Extras, Slab};
use crate::binding::BindingRef;
use crate::key::KeyRef;
use crate::meter::Meter;
use crate::row::{
    KIND_ACTION as DIRECT, KIND_GROUP as GROUP, KIND_MEMBER as MEMBER, ROW_HIT, ROW_HOLDER,
    ROW_KIND as KIND,
};

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

impl Slab {
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

    /// Returns whether this slot holds packet state. If so, it must stay in use when its entry is modified.
    pub(crate) fn is_holder(&self, slot: u32) -> bool {
        self.layout.keeps_state && self.record(slot).holder() == slot
    }

    /// Releases a slot that neither the authoritative copy nor a replica refers to. Returns false, and does not free
    /// the slot, if a handle still refers to it.
    pub(crate) fn release(&self, slot: u32) -> bool {
        let record = self.record(slot);
        // Acquire: reads through dropped handles must be complete before the slot is reused.
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
