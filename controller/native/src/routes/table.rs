// SPDX-License-Identifier: Apache-2.0
//! Implements the table of prefixes. Each prefix has a record with these values:
//!
//! - entry: the next hops that the routing daemon's route uses
//! - onlink target: the target of a connected prefix or of a neighbour's host route
//! - desired target: the target that the switch should have
//! - installed target: the target that the switch has
//!
//! An *entry* is a set of next hops, which many routes share. A *target* is the next hop, group or
//! drop action in the switch to which a route leads. A record holds entries and targets as numbers;
//! 0 means none. Python maps the numbers to objects.
//!
//! A record is freed when all its values are 0, and its number can then be reused. So a caller that
//! uses a record number in several calls must pin the record.

use std::collections::HashMap;

use super::index::Index;
use super::memo::Meaning;
use super::queue::Queue;
use super::slot::{IPV4, IPV6, RouteSlot};

/// Maximum number of records that one step of a walk visits. A step may find nothing in most of
/// these records.
const LOOKED_AT: usize = 4096;
/// Maximum number of visited records for steps that only compare two numbers of a record and usually
/// skip it. Such a step takes about 0.2 ms.
const COMPARED: usize = 65_536;

/// Record of a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteRecord {
    pub(super) slot: RouteSlot,
    entry: u32,
    pub(super) onlink: u32,
    desired: u32,
    pub(super) installed: u32,
    places: [u32; 2],
    pins: u32,
    pub(super) in_flight: bool,
}

/// The two values of a record that Python accesses as dictionaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The desired target in the switch.
    Desired,
    /// The installed target in the switch.
    Installed,
}

/// The queues of prefixes that wait for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteQueue {
    /// Prefixes to insert or modify.
    Upserts,
    /// Prefixes to delete.
    Deletes,
}

/// Holds the records of all prefixes, and their queues.
#[derive(Debug, Default)]
pub struct Table {
    index: Index,
    pub(super) records: Vec<RouteRecord>,
    free: Vec<u32>,
    counts: [usize; 2],
    queues: [Queue; 2],
    in_flight: usize,
    /// Number of calls of [`Self::clear_in_flight`], which is called when a session ends. A batch
    /// with a smaller number belongs to an earlier session.
    era: u64,
    entry_uses: Vec<usize>,
    target_uses: Vec<usize>,
    /// For each VRF and address size: the number of the routing daemon's routes of each prefix
    /// length.
    lengths: HashMap<(u32, u8), Vec<usize>>,
    neighbors: [Vec<u128>; 2],
    pub(super) meanings: HashMap<u32, Meaning>,
}

impl Table {
    // -- records

    pub(super) fn find(&self, slot: &RouteSlot) -> Option<u32> {
        self.index.get(slot)
    }

    /// Returns the record number of a prefix. Creates the record if there is none. A caller that
    /// then sets no value must call [`Self::release`] with the record.
    pub(super) fn at(&mut self, slot: RouteSlot) -> u32 {
        let (records, free) = (&mut self.records, &mut self.free);
        self.index.get_or_insert_with(&slot, || {
            let record = RouteRecord {
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

    /// Frees a record if all its values are 0, it is neither queued nor pinned, and no write is in
    /// flight.
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

    /// Removes a pin from a record.
    pub fn unpin(&mut self, number: u32) {
        self.records[number as usize].pins -= 1;
        self.release(number);
    }

    /// Returns the prefix of a pinned record.
    pub fn slot(&self, number: u32) -> RouteSlot {
        self.records[number as usize].slot
    }

    /// Returns prefixes that have an entry or an onlink target, in order, starting with the first
    /// prefix after `after`.
    ///
    /// Returns at most `limit` prefixes, or fewer if many records were skipped. The second result is
    /// the value of `after` for the next call, or `None` at the end.
    pub fn walk(
        &self,
        after: Option<RouteSlot>,
        limit: usize,
    ) -> (Vec<RouteSlot>, Option<RouteSlot>) {
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

    /// Returns the target of a prefix in this column, or 0.
    pub fn get(&self, slot: &RouteSlot, column: Column) -> u32 {
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

    /// Sets the target of a prefix in this column. Target 0 removes the target. Returns the previous
    /// target.
    pub fn set(&mut self, slot: RouteSlot, column: Column, target: u32) -> u32 {
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

    /// Returns the number of prefixes with a target in this column.
    pub fn count(&self, column: Column) -> usize {
        self.counts[column as usize]
    }

    /// Returns at most `limit` prefixes with their targets, starting at record number `from`. Also
    /// returns the record number at which to continue.
    pub fn items(&self, from: u32, column: Column, limit: usize) -> (Vec<(RouteSlot, u32)>, u32) {
        self.select(from, LOOKED_AT, limit, |record| {
            let target = match column {
                Column::Desired => record.desired,
                Column::Installed => record.installed,
            };
            (target != 0).then_some((record.slot, target))
        })
    }

    /// Returns at most `limit` prefixes whose desired target is not installed, each with the
    /// desired target. Starts at record number `from`. Also returns the record number at which to
    /// continue.
    pub fn unwritten(&self, from: u32, limit: usize) -> (Vec<(RouteSlot, u32)>, u32) {
        self.select(from, COMPARED, limit, |record| {
            let differs = record.desired != 0 && record.desired != record.installed;
            differs.then_some((record.slot, record.desired))
        })
    }

    /// Returns at most `limit` prefixes that are installed but not desired. Starts at record number
    /// `from`. Also returns the record number at which to continue.
    pub fn unwanted(&self, from: u32, limit: usize) -> (Vec<RouteSlot>, u32) {
        self.select(from, COMPARED, limit, |record| {
            (record.installed != 0 && record.desired == 0).then_some(record.slot)
        })
    }

    /// Calls `pick` with records, starting at record number `from`, and collects its results. Visits
    /// at most `looked_at` records and returns at most `limit` results. Also returns the record
    /// number at which to continue.
    fn select<T>(
        &self,
        from: u32,
        looked_at: usize,
        limit: usize,
        pick: impl Fn(&RouteRecord) -> Option<T>,
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

    /// Returns whether a walk by record numbers has reached the end.
    pub fn is_end(&self, next: u32) -> bool {
        next as usize >= self.records.len()
    }

    /// Removes the targets of all prefixes in this column.
    pub fn clear(&mut self, column: Column) {
        for number in 0..self.records.len() as u32 {
            if self.value_of(number, column) != 0 {
                self.put(number, column, 0);
                self.release(number);
            }
        }
    }

    /// Returns the number of prefixes whose installed target is this target.
    pub fn uses_of_target(&self, target: u32) -> usize {
        self.target_uses.get(target as usize).copied().unwrap_or(0)
    }

    // -- queues

    /// Queues a prefix, unless it is already queued.
    pub fn wait(&mut self, slot: RouteSlot, waiting: WriteQueue) {
        let number = self.at(slot);
        self.enqueue(number, waiting);
    }

    pub(super) fn enqueue(&mut self, number: u32, waiting: WriteQueue) {
        let place = &mut self.records[number as usize].places[waiting as usize];
        if *place == 0 {
            *place = self.queues[waiting as usize].push(number);
        }
    }

    /// Removes a prefix from a queue. Returns whether it was queued.
    pub fn stop_waiting(&mut self, slot: &RouteSlot, waiting: WriteQueue) -> bool {
        let Some(number) = self.find(slot) else {
            return false;
        };
        let waited = self.dequeue(number, waiting);
        self.release(number);
        waited
    }

    pub(super) fn dequeue(&mut self, number: u32, waiting: WriteQueue) -> bool {
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

    /// Removes the newest record from a queue, pins it and returns its number.
    pub(super) fn pop_pinned(&mut self, waiting: WriteQueue) -> Option<u32> {
        let number = self.queues[waiting as usize].pop()?;
        self.records[number as usize].places[waiting as usize] = 0;
        self.pin(number);
        Some(number)
    }

    /// Removes and returns the newest prefix of a queue.
    pub fn pop(&mut self, waiting: WriteQueue) -> Option<RouteSlot> {
        let number = self.pop_pinned(waiting)?;
        let slot = self.slot(number);
        self.unpin(number);
        Some(slot)
    }

    /// Returns whether a prefix is queued.
    pub fn waits(&self, slot: &RouteSlot, waiting: WriteQueue) -> bool {
        self.find(slot)
            .is_some_and(|number| self.records[number as usize].places[waiting as usize] != 0)
    }

    /// Returns the number of queued prefixes.
    pub fn waiting(&self, waiting: WriteQueue) -> usize {
        self.queues[waiting as usize].len()
    }

    /// Returns at most `limit` queued prefixes after a place, the oldest first. Also returns the
    /// place after which to continue.
    pub fn waiting_after(
        &self,
        place: u32,
        waiting: WriteQueue,
        limit: usize,
    ) -> (Vec<RouteSlot>, u32) {
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

    /// Empties a queue.
    pub fn clear_waiting(&mut self, waiting: WriteQueue) {
        for number in self.queues[waiting as usize].clear() {
            self.records[number as usize].places[waiting as usize] = 0;
            self.release(number);
        }
    }

    // -- writes in flight

    /// Returns the number of prefixes with a write in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether a prefix has a write in flight.
    pub fn is_in_flight(&self, slot: &RouteSlot) -> bool {
        self.find(slot)
            .is_some_and(|number| self.records[number as usize].in_flight)
    }

    /// Sets whether a prefix has a write in flight.
    pub fn mark_in_flight(&mut self, slot: RouteSlot, under_way: bool) {
        let number = self.at(slot);
        self.set_in_flight(number, under_way);
        self.release(number);
    }

    pub(super) fn set_in_flight(&mut self, number: u32, under_way: bool) {
        let before = std::mem::replace(&mut self.records[number as usize].in_flight, under_way);
        self.in_flight = self.in_flight + usize::from(under_way) - usize::from(before);
    }

    /// Marks all records as having no write in flight, because the session that sent the writes has
    /// ended.
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

    /// Returns the entry of a prefix, or 0 if it has none.
    pub fn entry(&self, slot: &RouteSlot) -> u32 {
        self.find(slot)
            .map_or(0, |number| self.records[number as usize].entry)
    }

    /// Sets the entry of a prefix. Entry 0 removes the entry. Returns the previous entry.
    pub fn set_entry(&mut self, slot: RouteSlot, entry: u32) -> u32 {
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

    /// Returns the number of routes with this entry.
    pub fn uses_of_entry(&self, entry: u32) -> usize {
        self.entry_uses.get(entry as usize).copied().unwrap_or(0)
    }

    /// Returns the number of the routing daemon's routes in a VRF.
    pub fn routes(&self, vrf: u32) -> usize {
        [IPV4, IPV6]
            .iter()
            .filter_map(|size| self.lengths.get(&(vrf, *size)))
            .flatten()
            .sum()
    }

    /// Returns the prefix lengths of the routing daemon's routes in a VRF. The longest is first.
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

    /// Sets the onlink target of a prefix. 0 means none.
    pub fn set_onlink(&mut self, slot: RouteSlot, target: u32) {
        let number = self.at(slot);
        self.records[number as usize].onlink = target;
        self.release(number);
    }

    /// Sets the addresses of neighbours: a sorted list for IPv4, and a sorted list for IPv6.
    pub fn set_neighbors(&mut self, neighbors: [Vec<u128>; 2]) {
        self.neighbors = neighbors;
    }

    pub(super) fn covers_neighbor(&self, slot: &RouteSlot) -> bool {
        let all = &self.neighbors[usize::from(slot.size() == IPV6)];
        let at = all.partition_point(|bits| *bits < slot.bits());
        all.get(at).is_some_and(|bits| slot.covers(*bits))
    }
}

/// Returns the use count of a number. If the number is new, its count is 0.
fn use_of(uses: &mut Vec<usize>, number: u32) -> &mut usize {
    let number = number as usize;
    if uses.len() <= number {
        uses.resize(number + 1, 0);
    }
    &mut uses[number]
}
