// SPDX-License-Identifier: Apache-2.0
//! Takes runs of routes in: each text has one meaning, which Python has said.

use super::memo::Run;
use super::table::{Column, Table, Waiting};

/// What the routes of a text have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// They lead by an entry, to a target.
    Updated {
        /// Their VRF.
        vrf: u32,
        /// Of which they are one use each.
        entry: u32,
        /// Where it leads now.
        target: u32,
    },
    /// They are gone from a VRF.
    Deleted {
        /// Their VRF.
        vrf: u32,
    },
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Applied {
    /// Records and the targets that they are to have; each is pinned.
    pub changes: Vec<(u32, u32)>,
    /// Entries that no route has any more, and some had before.
    pub unused: Vec<u32>,
    /// Whether one of the prefixes covers a neighbour.
    pub covers_neighbor: bool,
}

impl Table {
    /// Says what the routes of a text have in common, until all is forgotten.
    pub fn set_meaning(&mut self, text: u32, meaning: Meaning) {
        self.meanings.insert(text, meaning);
    }

    /// Forgets what texts mean.
    pub fn forget_meanings(&mut self) {
        self.meanings.clear();
    }

    /// Texts of a run of which nothing is known, each once.
    pub fn unknown_texts(&self, run: &Run) -> Vec<u32> {
        let mut unknown = Vec::new();
        for message in &run.messages {
            if !self.meanings.contains_key(&message.text) && !unknown.contains(&message.text) {
                unknown.push(message.text);
            }
        }
        unknown
    }

    /// Takes in the routes of a run; None, and nothing is changed, where a text is not known.
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
                        continue; // zebra deletes what it never sent
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

    /// Has the switch hold what a run changed; queues what it does not hold. Gives the pins back.
    pub fn take_in(&mut self, changes: &[(u32, u32)]) {
        for &(number, target) in changes {
            self.put(number, Column::Desired, target);
            let record = &self.records[number as usize];
            if target == 0 {
                self.dequeue(number, Waiting::Upserts);
                self.enqueue(number, Waiting::Deletes);
            } else if record.installed == target && !record.in_flight {
                self.dequeue(number, Waiting::Upserts);
            } else {
                self.enqueue(number, Waiting::Upserts);
            }
            self.unpin(number);
        }
    }
}
