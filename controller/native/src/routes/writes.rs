// SPDX-License-Identifier: Apache-2.0
//! Encodes the next updates of routes as fields of a P4Runtime WriteRequest.
//!
//! Python encodes the parts that many routes share: the *head* of a TableEntry (table and VRF), and
//! its *tail* (the action). This module encodes only the LPM match between head and tail.

use std::collections::{HashMap, HashSet};

use super::slot::RouteSlot;
use super::table::{Column, Table, WriteQueue};

/// Values of P4Runtime's Update.Type.
const INSERT: u8 = 1;
const MODIFY: u8 = 2;
const DELETE: u8 = 3;

/// Encoded table and VRF of a TableEntry, and the encoded field id of its LPM match.
pub type EncodedHead = (Box<[u8]>, Box<[u8]>);

/// Encoded parts that many routes share.
#[derive(Debug, Default)]
pub struct Encoding {
    /// Heads by (address size in octets, VRF).
    pub heads: HashMap<(u8, u32), EncodedHead>,
    /// Encoded actions by target number.
    pub tails: HashMap<u32, Box<[u8]>>,
}

/// One update of a route.
#[derive(Clone, Copy, Debug)]
pub struct RouteUpdate {
    number: u32,
    /// Target of the route. 0 deletes the route.
    pub target: u32,
    /// Operation, a value of P4Runtime's Update.Type.
    pub operation: u8,
}

/// Updates that are sent to the switch together. The records of the updates stay pinned until the batch
/// ends ([`Table::land`]).
#[derive(Debug, Default)]
pub struct UpdateBatch {
    items: Vec<RouteUpdate>,
    era: u64,
    landed: bool,
}

impl UpdateBatch {
    /// Returns all updates.
    pub fn items(&self) -> &[RouteUpdate] {
        &self.items
    }
}

/// Records that were taken from a queue, and are pinned. Python must still decide which of them may be
/// written.
#[derive(Debug, Default)]
pub struct Taken {
    numbers: Vec<u32>,
    /// Targets of the records. Each target is listed once.
    pub targets: Vec<u32>,
    /// Heads that the records need, as (address size in octets, VRF). Each is listed once.
    pub heads: Vec<(u8, u32)>,
}

/// Taken records, after Python has decided which targets are ready.
#[derive(Debug, Default)]
pub struct Sorted {
    /// Updates to write now.
    pub batch: UpdateBatch,
    /// Routes whose target is not ready.
    pub unready: Vec<(RouteSlot, u32)>,
    /// Routes that need no deletion, because they are not installed.
    pub absent: Vec<RouteSlot>,
}

impl Table {
    /// Takes at most `limit` records from a queue. Moves records with a write in flight to
    /// `postponed`, and keeps these records pinned. Drops records that no longer need a write.
    pub fn take(&mut self, waiting: WriteQueue, limit: usize, postponed: &mut Vec<u32>) -> Taken {
        let mut taken = Taken::default();
        let (mut targets, mut heads) = (HashSet::new(), HashSet::new());
        while taken.numbers.len() < limit {
            let Some(number) = self.pop_pinned(waiting) else {
                break;
            };
            let record = self.records[number as usize];
            if record.in_flight {
                postponed.push(number);
                continue;
            }
            let desired = self.value_of(number, Column::Desired);
            let settled = match waiting {
                WriteQueue::Upserts => {
                    desired == 0 || desired == self.value_of(number, Column::Installed)
                }
                WriteQueue::Deletes => desired != 0,
            };
            if settled {
                self.unpin(number);
                continue;
            }
            if desired != 0 && targets.insert(desired) {
                taken.targets.push(desired);
            }
            let head = (record.slot.size(), record.slot.vrf());
            if heads.insert(head) {
                taken.heads.push(head);
            }
            taken.numbers.push(number);
        }
        taken
    }

    /// Makes a batch of taken records. Records whose target is not in `ready` are not part of the
    /// batch. The table must not have changed since [`Self::take`].
    pub fn sort(&mut self, taken: Taken, waiting: WriteQueue, ready: &HashSet<u32>) -> Sorted {
        let mut sorted = Sorted::default();
        sorted.batch.era = self.era();
        for number in taken.numbers {
            let slot = self.slot(number);
            let target = self.value_of(number, Column::Desired);
            let held = self.value_of(number, Column::Installed) != 0;
            let operation = match (waiting, held) {
                (WriteQueue::Upserts, _) if !ready.contains(&target) => {
                    sorted.unready.push((slot, target));
                    self.unpin(number);
                    continue;
                }
                (WriteQueue::Upserts, true) => MODIFY,
                (WriteQueue::Upserts, false) => INSERT,
                (WriteQueue::Deletes, true) => DELETE,
                (WriteQueue::Deletes, false) => {
                    sorted.absent.push(slot);
                    self.unpin(number);
                    continue;
                }
            };
            self.set_in_flight(number, true);
            sorted.batch.items.push(RouteUpdate {
                number,
                target,
                operation,
            });
        }
        sorted
    }

    /// Returns taken records to their queue.
    pub fn give_back(&mut self, taken: Taken, waiting: WriteQueue) {
        self.requeue(taken.numbers, waiting);
    }

    /// Queues pinned records again and unpins them.
    pub fn requeue(&mut self, numbers: Vec<u32>, waiting: WriteQueue) {
        for number in numbers {
            self.enqueue(number, waiting);
            self.unpin(number);
        }
    }

    /// Ends a batch. `applied` is true if the switch has applied all updates of the batch.
    /// Otherwise the batch has failed, or no answer will come. The records are then queued again in
    /// the queue `again`, if given.
    pub fn land(&mut self, batch: &mut UpdateBatch, applied: bool, again: Option<WriteQueue>) {
        if std::mem::replace(&mut batch.landed, true) {
            return;
        }
        let current = batch.era == self.era();
        for item in &batch.items {
            if current {
                self.set_in_flight(item.number, false);
            }
            if applied && current {
                self.put(item.number, Column::Installed, item.target);
            } else if let Some(waiting) = again {
                self.enqueue(item.number, waiting);
            }
            self.unpin(item.number);
        }
    }

    /// Returns the prefix of an update. The batch of the update must not have ended.
    pub fn slot_of(&self, item: &RouteUpdate) -> RouteSlot {
        self.slot(item.number)
    }
}

impl Encoding {
    /// Encodes an update as a field of a WriteRequest. Returns `None` if the head or the tail is unknown.
    pub fn update(
        &self,
        slot: &RouteSlot,
        target: u32,
        operation: u8,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (head, field) = self.heads.get(&(slot.size(), slot.vrf()))?;
        let tail: &[u8] = match target {
            0 => &[],
            _ => self.tails.get(&target)?,
        };
        let mut matched = Vec::with_capacity(32);
        if slot.length() > 0 {
            let (octets, size) = slot.address();
            let address = &octets[..size];
            let zeros = address.iter().take_while(|octet| **octet == 0).count();
            let value = &address[zeros.min(size - 1)..];
            let mut lpm = vec![0x0a, value.len() as u8];
            lpm.extend_from_slice(value);
            lpm.push(0x10);
            varint(usize::from(slot.length()), &mut lpm);
            matched.extend_from_slice(field);
            delimited(0x22, &lpm, &mut matched);
        }
        let mut entry = Vec::with_capacity(64);
        entry.extend_from_slice(head);
        if !matched.is_empty() {
            delimited(0x12, &matched, &mut entry);
        }
        entry.extend_from_slice(tail);
        let mut entity = Vec::with_capacity(entry.len() + 4);
        delimited(0x12, &entry, &mut entity);
        let mut body = vec![0x08, operation];
        delimited(0x12, &entity, &mut body);
        delimited(0x22, &body, out);
        Some(())
    }
}

fn delimited(tag: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    varint(payload.len(), out);
    out.extend_from_slice(payload);
}

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
