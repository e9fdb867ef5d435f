// SPDX-License-Identifier: Apache-2.0
//! For each prefix: the routing daemon's route, what is known of it on the router's own links, and
//! what the switch shall hold and holds.
//!
//! Values are numbers: of *entries* (where routes lead that say the same) and of *targets* (what
//! the switch does with packets); 0 is none. Python knows what they stand for. A record goes when
//! nothing is known of its prefix any more; who holds its number beyond a call pins it.

use std::collections::HashMap;

use super::index::Index;
use super::queue::Queue;
use super::runs::Meaning;
use super::slot::{IPV4, IPV6, Slot};

/// Records looked at in one step of a walk, most of which may be passed over.
const LOOKED_AT: usize = 4096;
/// The same where two numbers of each record are compared, and as a rule all are passed over: about
/// 0.2 ms.
const COMPARED: usize = 65_536;

/// What is known of a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) slot: Slot,
    entry: u32,
    pub(super) onlink: u32,
    desired: u32,
    pub(super) installed: u32,
    places: [u32; 2],
    pins: u32,
    pub(super) in_flight: bool,
}

/// The two values of a prefix that Python reads and writes as dictionaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// What the switch shall hold.
    Desired,
    /// What it holds.
    Installed,
}

/// The two queues of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Those to be inserted or modified.
    Upserts,
    /// Those to be deleted.
    Deletes,
}

/// All prefixes of which anything is known.
#[derive(Debug, Default)]
pub struct Table {
    index: Index,
    pub(super) records: Vec<Record>,
    free: Vec<u32>,
    counts: [usize; 2],
    queues: [Queue; 2],
    in_flight: usize,
    /// Counts how often all writes under way were forgotten.
    era: u64,
    entry_uses: Vec<usize>,
    target_uses: Vec<usize>,
    /// Routes of the routing daemon by VRF, size of the address and length.
    lengths: HashMap<(u32, u8), Vec<usize>>,
    neighbors: [Vec<u128>; 2],
    pub(super) meanings: HashMap<u32, Meaning>,
}

impl Table {
    // -- records

    pub(super) fn find(&self, slot: &Slot) -> Option<u32> {
        self.index.get(slot)
    }

    /// The record of a prefix, made if there is none. Whoever makes one and leaves it as it is has
    /// to [`Self::release`] it.
    pub(super) fn at(&mut self, slot: Slot) -> u32 {
        let (records, free) = (&mut self.records, &mut self.free);
        self.index.get_or_insert_with(&slot, || {
            let record = Record {
                slot,
                entry: 0,
                onlink: 0,
                desired: 0,
                installed: 0,
                places: [0; 2],
                pins: 0,
                in_flight: false,
            };
            if let Some(number) = free.pop() {
                records[number as usize] = record;
                return number;
            }
            records.push(record);
            records.len() as u32 - 1
        })
    }

    /// Forgets a prefix of which nothing is known.
    fn release(&mut self, number: u32) {
        let record = &self.records[number as usize];
        let known = record.entry | record.onlink | record.desired | record.installed;
        let waits = record.places[0] | record.places[1] | record.pins;
        if known == 0 && waits == 0 && !record.in_flight {
            self.index.remove(&record.slot);
            self.free.push(number);
        }
    }

    pub(super) fn pin(&mut self, number: u32) {
        self.records[number as usize].pins += 1;
    }

    /// Gives a pin back.
    pub fn unpin(&mut self, number: u32) {
        self.records[number as usize].pins -= 1;
        self.release(number);
    }

    /// The prefix of a pinned record.
    pub fn slot(&self, number: u32) -> Slot {
        self.records[number as usize].slot
    }

    /// Prefixes behind `after`, in order, of which the routing daemon or the router's own links know
    /// something: `limit` at most, and fewer where many others lie between. The second value is
    /// where to go on; None at the end.
    pub fn walk(&self, after: Option<Slot>, limit: usize) -> (Vec<Slot>, Option<Slot>) {
        let mut found = Vec::with_capacity(limit);
        for (looked_at, number) in self.index.after(after.as_ref()).enumerate() {
            let record = &self.records[number as usize];
            if record.entry != 0 || record.onlink != 0 {
                found.push(record.slot);
            }
            if found.len() >= limit || looked_at + 1 >= LOOKED_AT {
                return (found, Some(record.slot));
            }
        }
        (found, None)
    }

    // -- columns

    fn value(&mut self, number: u32, column: Column) -> &mut u32 {
        let record = &mut self.records[number as usize];
        match column {
            Column::Desired => &mut record.desired,
            Column::Installed => &mut record.installed,
        }
    }

    pub(super) fn put(&mut self, number: u32, column: Column, target: u32) -> u32 {
        let before = std::mem::replace(self.value(number, column), target);
        let count = &mut self.counts[column as usize];
        *count = *count + usize::from(target != 0) - usize::from(before != 0);
        if column == Column::Installed && before != target {
            if target != 0 {
                *use_of(&mut self.target_uses, target) += 1;
            }
            if before != 0 {
                *use_of(&mut self.target_uses, before) -= 1;
            }
        }
        before
    }

    /// A prefix's target; 0 where it has none.
    pub fn get(&self, slot: &Slot, column: Column) -> u32 {
        self.find(slot)
            .map_or(0, |number| self.value_of(number, column))
    }

    pub(super) fn value_of(&self, number: u32, column: Column) -> u32 {
        let record = &self.records[number as usize];
        match column {
            Column::Desired => record.desired,
            Column::Installed => record.installed,
        }
    }

    /// Sets a prefix's target; 0 takes it away. Returns the one before.
    pub fn set(&mut self, slot: Slot, column: Column, target: u32) -> u32 {
        let number = match target {
            0 => match self.find(&slot) {
                Some(number) => number,
                None => return 0,
            },
            _ => self.at(slot),
        };
        let before = self.put(number, column, target);
        self.release(number);
        before
    }

    /// How many prefixes have a target.
    pub fn count(&self, column: Column) -> usize {
        self.counts[column as usize]
    }

    /// Prefixes with their targets, from a record's number on: `limit` at most, and where to go on.
    pub fn items(&self, from: u32, column: Column, limit: usize) -> (Vec<(Slot, u32)>, u32) {
        self.select(from, LOOKED_AT, limit, |record| {
            let target = match column {
                Column::Desired => record.desired,
                Column::Installed => record.installed,
            };
            (target != 0).then_some((record.slot, target))
        })
    }

    /// Prefixes of which the switch does not hold what it shall, with that, from a record's number
    /// on: `limit` at most, and where to go on.
    pub fn unwritten(&self, from: u32, limit: usize) -> (Vec<(Slot, u32)>, u32) {
        self.select(from, COMPARED, limit, |record| {
            let differs = record.desired != 0 && record.desired != record.installed;
            differs.then_some((record.slot, record.desired))
        })
    }

    /// The same of prefixes that the switch holds and shall not.
    pub fn unwanted(&self, from: u32, limit: usize) -> (Vec<Slot>, u32) {
        self.select(from, COMPARED, limit, |record| {
            (record.installed != 0 && record.desired == 0).then_some(record.slot)
        })
    }

    /// Returns what `pick` finds in the records from this number on, and where to go on. It looks at
    /// `looked_at` records at most, and finds `limit` at most.
    fn select<T>(
        &self,
        from: u32,
        looked_at: usize,
        limit: usize,
        pick: impl Fn(&Record) -> Option<T>,
    ) -> (Vec<T>, u32) {
        let mut found = Vec::new();
        let mut next = from;
        for record in self.records.iter().skip(from as usize).take(looked_at) {
            if found.len() >= limit {
                break;
            }
            next += 1;
            found.extend(pick(record));
        }
        (found, next)
    }

    /// Whether a walk by record numbers has come to the end.
    pub fn is_end(&self, next: u32) -> bool {
        next as usize >= self.records.len()
    }

    /// Takes all targets away.
    pub fn clear(&mut self, column: Column) {
        for number in 0..self.records.len() as u32 {
            if self.value_of(number, column) != 0 {
                self.put(number, column, 0);
                self.release(number);
            }
        }
    }

    /// How many prefixes the switch has with a target.
    pub fn uses_of_target(&self, target: u32) -> usize {
        self.target_uses.get(target as usize).copied().unwrap_or(0)
    }

    // -- queues

    /// Has a prefix wait, unless it does.
    pub fn wait(&mut self, slot: Slot, waiting: Waiting) {
        let number = self.at(slot);
        self.enqueue(number, waiting);
    }

    pub(super) fn enqueue(&mut self, number: u32, waiting: Waiting) {
        let place = &mut self.records[number as usize].places[waiting as usize];
        if *place == 0 {
            *place = self.queues[waiting as usize].push(number);
        }
    }

    /// Takes a prefix out; returns whether it waited.
    pub fn stop_waiting(&mut self, slot: &Slot, waiting: Waiting) -> bool {
        let Some(number) = self.find(slot) else {
            return false;
        };
        let waited = self.dequeue(number, waiting);
        self.release(number);
        waited
    }

    pub(super) fn dequeue(&mut self, number: u32, waiting: Waiting) -> bool {
        let place = std::mem::take(&mut self.records[number as usize].places[waiting as usize]);
        if place == 0 {
            return false;
        }
        let queue = &mut self.queues[waiting as usize];
        queue.remove(place);
        if queue.has_many_gaps() {
            let records = &mut self.records;
            queue.close_gaps(|number, place| {
                records[number as usize].places[waiting as usize] = place;
            });
        }
        true
    }

    /// The newest that waits, pinned.
    pub(super) fn pop_pinned(&mut self, waiting: Waiting) -> Option<u32> {
        let number = self.queues[waiting as usize].pop()?;
        self.records[number as usize].places[waiting as usize] = 0;
        self.pin(number);
        Some(number)
    }

    /// The newest that waits.
    pub fn pop(&mut self, waiting: Waiting) -> Option<Slot> {
        let number = self.pop_pinned(waiting)?;
        let slot = self.slot(number);
        self.unpin(number);
        Some(slot)
    }

    /// Whether a prefix waits.
    pub fn waits(&self, slot: &Slot, waiting: Waiting) -> bool {
        self.find(slot)
            .is_some_and(|number| self.records[number as usize].places[waiting as usize] != 0)
    }

    /// How many wait.
    pub fn waiting(&self, waiting: Waiting) -> usize {
        self.queues[waiting as usize].len()
    }

    /// Those that wait, the oldest first, behind a place; and where to go on.
    pub fn waiting_after(&self, place: u32, waiting: Waiting, limit: usize) -> (Vec<Slot>, u32) {
        let mut last = place;
        let found = self.queues[waiting as usize].after(place).take(limit);
        let slots = found
            .map(|(place, number)| {
                last = place;
                self.records[number as usize].slot
            })
            .collect();
        (slots, last)
    }

    /// Has none wait any more.
    pub fn clear_waiting(&mut self, waiting: Waiting) {
        for number in self.queues[waiting as usize].clear() {
            self.records[number as usize].places[waiting as usize] = 0;
            self.release(number);
        }
    }

    // -- writes under way

    /// How many prefixes have a write under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether a prefix has.
    pub fn is_in_flight(&self, slot: &Slot) -> bool {
        self.find(slot)
            .is_some_and(|number| self.records[number as usize].in_flight)
    }

    /// Says whether a prefix has.
    pub fn mark_in_flight(&mut self, slot: Slot, under_way: bool) {
        let number = self.at(slot);
        self.set_in_flight(number, under_way);
        self.release(number);
    }

    pub(super) fn set_in_flight(&mut self, number: u32, under_way: bool) {
        let before = std::mem::replace(&mut self.records[number as usize].in_flight, under_way);
        self.in_flight = self.in_flight + usize::from(under_way) - usize::from(before);
    }

    /// The session has ended: nothing is under way any more.
    pub fn clear_in_flight(&mut self) {
        self.era += 1;
        if self.in_flight == 0 {
            return;
        }
        for number in 0..self.records.len() as u32 {
            if self.records[number as usize].in_flight {
                self.set_in_flight(number, false);
                self.release(number);
            }
        }
    }

    pub(super) fn era(&self) -> u64 {
        self.era
    }

    // -- the routing daemon's routes

    /// The entry of a prefix; 0 where it has none.
    pub fn entry(&self, slot: &Slot) -> u32 {
        self.find(slot)
            .map_or(0, |number| self.records[number as usize].entry)
    }

    /// Sets a prefix's entry; 0 takes it away. Returns the one before.
    pub fn set_entry(&mut self, slot: Slot, entry: u32) -> u32 {
        let number = match entry {
            0 => match self.find(&slot) {
                Some(number) => number,
                None => return 0,
            },
            _ => self.at(slot),
        };
        let before = self.put_entry(number, entry);
        self.release(number);
        before
    }

    pub(super) fn put_entry(&mut self, number: u32, entry: u32) -> u32 {
        let record = &mut self.records[number as usize];
        let (slot, before) = (record.slot, std::mem::replace(&mut record.entry, entry));
        if entry != 0 {
            *use_of(&mut self.entry_uses, entry) += 1;
        }
        if before != 0 {
            *use_of(&mut self.entry_uses, before) -= 1;
        }
        if (entry == 0) != (before == 0) {
            let size = slot.size();
            let counts = self
                .lengths
                .entry((slot.vrf(), size))
                .or_insert_with(|| vec![0; usize::from(size) * 8 + 1]);
            let count = &mut counts[usize::from(slot.length())];
            *count = *count + usize::from(before == 0) - usize::from(entry == 0);
        }
        before
    }

    /// How many routes lead by an entry.
    pub fn uses_of_entry(&self, entry: u32) -> usize {
        self.entry_uses.get(entry as usize).copied().unwrap_or(0)
    }

    /// How many routes a VRF has.
    pub fn routes(&self, vrf: u32) -> usize {
        [IPV4, IPV6]
            .iter()
            .filter_map(|size| self.lengths.get(&(vrf, *size)))
            .flatten()
            .sum()
    }

    /// The lengths of a VRF's prefixes, the longest first.
    pub fn lengths(&self, vrf: u32, size: u8) -> Vec<u8> {
        let counts = self
            .lengths
            .get(&(vrf, size))
            .map_or(&[][..], Vec::as_slice);
        (0..=u8::MAX)
            .zip(counts)
            .filter(|(_, count)| **count > 0)
            .map(|(length, _)| length)
            .rev()
            .collect()
    }

    /// What the router's own links want for a prefix; 0: nothing.
    pub fn set_onlink(&mut self, slot: Slot, target: u32) {
        let number = self.at(slot);
        self.records[number as usize].onlink = target;
        self.release(number);
    }

    /// The neighbours' addresses, of both families, each in order.
    pub fn set_neighbors(&mut self, neighbors: [Vec<u128>; 2]) {
        self.neighbors = neighbors;
    }

    pub(super) fn covers_neighbor(&self, slot: &Slot) -> bool {
        let all = &self.neighbors[usize::from(slot.size() == IPV6)];
        let at = all.partition_point(|bits| *bits < slot.bits());
        all.get(at).is_some_and(|bits| slot.covers(*bits))
    }
}

/// The count of a number, which may be new.
fn use_of(uses: &mut Vec<usize>, number: u32) -> &mut usize {
    let number = number as usize;
    if uses.len() <= number {
        uses.resize(number + 1, 0);
    }
    &mut uses[number]
}
