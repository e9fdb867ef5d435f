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
//! [`layout`] defines the offsets in a record, [`storage`] holds the records, [`record`] reads a record and
//! [`write`](mod@write) writes it.

mod layout;
mod record;
mod storage;
mod write;

pub(crate) use layout::RecordLayout;
pub(crate) use record::{Record, Target, class_target, default_row};
pub(crate) use storage::Slab;
pub(crate) use write::NewRecord;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::layout::LINE;
    use super::*;
    use crate::action::ActionRef;
    use crate::binding::BindingRef;
    use crate::entry_state::EntryState;
    use crate::key::KeyRef;
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
            let layout = RecordLayout::of(Some(false), param_words, true, false, [20, 20]);
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
        let layout = RecordLayout::of(Some(false), 4, false, false, [20, 20]);
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
        let layout = RecordLayout::of(Some(true), 1, false, false, [8, 8]);
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
