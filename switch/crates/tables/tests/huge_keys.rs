// SPDX-License-Identifier: Apache-2.0
//! Tests tables that are matched by priority and whose keys are longer than the classifier supports. Compares lookups
//! between changes with a linear search over the accepted entries.

mod common;

use common::{entry, id, look_up, store};
use proptest::prelude::*;
use sluice_tables::KeyField;

/// Size of the key's second field in bytes.
const HUGE: usize = 520;

/// A key: a number that is matched by range, and two bytes of the long field. The two bytes are at distant positions.
type Key = (u16, u8, u8);

/// An entry: the range, values and masks of the two bytes, and the priority.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    range: (u16, u16),
    front: (u8, u8),
    back: (u8, u8),
    priority: i32,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Row),
    Delete(usize),
    Packet(Key),
}

fn long(front: u8, back: u8) -> Vec<u8> {
    let mut bytes = vec![0; HUGE];
    (bytes[0], bytes[HUGE - 1]) = (front, back);
    bytes
}

impl Row {
    fn fields(&self) -> Vec<KeyField> {
        let (value, mask) = (
            long(self.front.0 & self.front.1, self.back.0 & self.back.1),
            long(self.front.1, self.back.1),
        );
        let range = KeyField::Range {
            low: self.range.0.to_be_bytes().to_vec(),
            high: self.range.1.to_be_bytes().to_vec(),
        };
        let all = mask.iter().all(|byte| *byte == 0);
        let ternary = match all {
            true => KeyField::DontCare,
            false => KeyField::Ternary { value, mask },
        };
        let range = if self.range == (0, u16::MAX) {
            KeyField::DontCare
        } else {
            range
        };
        vec![range, ternary]
    }

    fn matches(&self, (number, front, back): Key) -> bool {
        let same = |byte: u8, (value, mask): (u8, u8)| (byte ^ value) & mask == 0;
        (self.range.0..=self.range.1).contains(&number)
            && same(front, self.front)
            && same(back, self.back)
    }

    /// Returns whether two entries conflict, so that a table cannot contain both.
    fn is_like(&self, other: &Self) -> bool {
        self.priority == other.priority && self.fields() == other.fields()
    }
}

/// Returns one of a few values. With few values, entries overlap and packets match them.
fn byte() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0, 1, 0x80, 0xff])
}

fn row() -> impl Strategy<Value = Row> {
    let ends = (0..6u16, prop::sample::select(vec![0, 1, 3, u16::MAX]));
    let range = ends.prop_map(|(low, span)| (low, low.saturating_add(span)));
    let bytes = || (byte(), byte());
    let parts = (range, bytes(), bytes(), 1..4i32);
    parts.prop_map(|(range, front, back, priority)| Row {
        range,
        front,
        back,
        priority,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => row().prop_map(Step::Insert),
        1 => any::<usize>().prop_map(Step::Delete),
        4 => (0..9u16, byte(), byte()).prop_map(Step::Packet),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn the_first_of_the_highest_priority_matches(steps in steps()) {
        let store = store();
        let table = id(&store, "huge");
        // Accepted entries in insertion order, each with its value.
        let mut present: Vec<(Row, u8)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let mut tx = store.transaction();
            match step {
                Step::Insert(row) => {
                    let value = number as u8;
                    let done = tx.insert(table, entry(row.fields(), row.priority, value));
                    let known = present.iter().any(|(other, _)| other.is_like(&row));
                    prop_assert_eq!(done.is_ok(), !known, "{:?}", done);
                    if !known {
                        present.push((row, value));
                    }
                    tx.commit();
                }
                Step::Delete(index) if !present.is_empty() => {
                    let (row, _) = present.remove(index % present.len());
                    prop_assert!(tx.delete(table, &row.fields(), row.priority).is_ok());
                    tx.commit();
                }
                Step::Delete(_) => drop(tx),
                Step::Packet(packet) => {
                    drop(tx);
                    let (number, front, back) = packet;
                    let key = [&number.to_be_bytes()[..], &long(front, back)].concat();
                    let mut best: Option<&(Row, u8)> = None;
                    for one in present.iter().filter(|(row, _)| row.matches(packet)) {
                        if best.is_none_or(|(best, _)| one.0.priority > best.priority) {
                            best = Some(one);
                        }
                    }
                    let expected = best.map(|(_, value)| u64::from(*value));
                    prop_assert_eq!(look_up(&store, "huge", &key, 0), expected);
                }
            }
        }
    }
}
