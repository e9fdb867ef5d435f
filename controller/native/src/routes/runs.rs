// SPDX-License-Identifier: Apache-2.0
//! Applies runs to the table. A run is a list of decoded route messages. Python sets the meaning
//! of each message text.

use super::memo::{Meaning, Run};
use super::table::{Column, Table, WriteQueue};

/// Result of applying a run.
#[derive(Debug, Default)]
pub struct Applied {
    /// The changed records, by number, with the targets that they should have. The records are
    /// pinned.
    pub changes: Vec<(u32, u32)>,
    /// Entries that no route uses any more.
    pub unused: Vec<u32>,
    /// Whether a changed prefix covers the address of a neighbour.
    pub covers_neighbor: bool,
}

impl Table {
    /// Sets the meaning of a text. The meaning is valid until [`Self::forget_meanings`].
    pub fn set_meaning(&mut self, text: u32, meaning: Meaning) {
        self.meanings.insert(text, meaning);
    }

    /// Forgets all meanings.
    pub fn forget_meanings(&mut self) {
        self.meanings.clear();
    }

    /// Returns the texts of a run that have no meaning yet. Each text is returned once.
    pub fn unknown_texts(&self, run: &Run) -> Vec<u32> {
        let mut unknown = Vec::new();
        for message in &run.messages {
            if !self.meanings.contains_key(&message.text) && !unknown.contains(&message.text) {
                unknown.push(message.text);
            }
        }
        unknown
    }

    /// Applies the routes of a run. If a text has no meaning, changes nothing and returns `None`.
    pub fn apply(&mut self, run: &Run) -> Option<Applied> {
        let meanings: Option<Vec<Meaning>> = run
            .messages
            .iter()
            .map(|message| self.meanings.get(&message.text).copied())
            .collect();
        let mut applied = Applied::default();
        for (message, meaning) in run.messages.iter().zip(meanings?) {
            let (before, number, target) = match meaning {
                Meaning::Updated { vrf, entry, target } => {
                    let number = self.at(message.slot.in_vrf(vrf));
                    (self.put_entry(number, entry), number, target)
                }
                Meaning::Deleted { vrf } => {
                    let Some(number) = self.find(&message.slot.in_vrf(vrf)) else {
                        continue;
                    };
                    let before = self.put_entry(number, 0);
                    if before == 0 {
                        continue; // zebra also sends deletions of routes that it has never sent.
                    }
                    (before, number, self.records[number as usize].onlink)
                }
            };
            self.pin(number);
            applied.changes.push((number, target));
            applied.covers_neighbor |= self.covers_neighbor(&message.slot);
            if before != 0 && self.uses_of_entry(before) == 0 && !applied.unused.contains(&before) {
                applied.unused.push(before);
            }
        }
        applied
            .unused
            .retain(|entry| self.uses_of_entry(*entry) == 0);
        Some(applied)
    }

    /// Sets the desired targets of the changed records of a run. Queues the records whose desired
    /// target is not installed. Unpins all of them.
    pub fn take_in(&mut self, changes: &[(u32, u32)]) {
        for &(number, target) in changes {
            self.put(number, Column::Desired, target);
            let record = &self.records[number as usize];
            if target == 0 {
                self.dequeue(number, WriteQueue::Upserts);
                self.enqueue(number, WriteQueue::Deletes);
            } else if record.installed == target && !record.in_flight {
                self.dequeue(number, WriteQueue::Upserts);
            } else {
                self.enqueue(number, WriteQueue::Upserts);
            }
            self.unpin(number);
        }
    }
}
