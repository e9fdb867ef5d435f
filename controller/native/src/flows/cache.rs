// SPDX-License-Identifier: Apache-2.0
//! Records which flows of one policy list are installed in the switch.
//!
//! `state/flow_cache.py` is the specification of this module; a test compares the two. The methods do no I/O: they
//! return the writes to make, and the caller reports the results ([`Cache::written`]).
//!
//! Invariants:
//!
//! * At most one write of a key is queued or in flight.
//! * Every written verdict is of the list's current epoch.
//! * The switch never holds more than `capacity` entries, if it applies the writes in order.
//! * Each flow is in exactly one pool ([`Pool`]), except a flow that is being deleted, which is in none.

use std::collections::VecDeque;

use super::key::{FlowKey, FlowVerdict};
use super::pool::Pool;
use super::store::{FlowRecord, NONE, Pending, Store};

/// Time in seconds after a write in which packets can still arrive that the switch punted before it applied the write.
const LATE_SECONDS: f64 = 1.0;
/// A cache counts as nearly full from this fraction of its capacity on.
const NEARLY_FULL: f64 = 0.75;

/// Operation on a flow's entry in the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds the entry.
    Insert,
    /// Changes the entry's verdict.
    Modify,
    /// Removes the entry.
    Delete,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Insert, Self::Modify, Self::Delete];

    fn pending(self) -> Pending {
        match self {
            Self::Insert => Pending::Insert,
            Self::Modify => Pending::Modify,
            Self::Delete => Pending::Delete,
        }
    }
}

/// One write. A deletion has no verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Write {
    /// Operation.
    pub operation: Operation,
    /// Key of the flow.
    pub key: FlowKey,
    /// Verdict, unless the write is a deletion.
    pub verdict: Option<FlowVerdict>,
}

/// Result of offering a flow to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A write of the flow was returned.
    Installed,
    /// The flow is installed already. The switch probably punted the packet before it applied the last write.
    Known,
    /// A write of the flow is queued or in flight.
    UnderWay,
    /// The list's flow cache is off, so no flow is installed.
    Off,
    /// The verdict is not of the current epoch.
    Stale,
    /// The cache is full, and no flow can be evicted because a write of every flow is in flight.
    Full,
    /// A commit of the policy is changing the list, so no flow of it may be written now.
    Held,
    /// The list has no cache yet, because the switch's flows are still being read.
    Unread,
}

impl Outcome {
    /// Number of outcomes.
    pub const COUNT: usize = 8;
}

/// The switch's answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAnswer {
    /// The write is applied.
    Done,
    /// The entry exists already.
    Exists,
    /// There is no such entry.
    Absent,
    /// Any other answer; the entry is unchanged.
    Failed,
}

impl WriteAnswer {
    /// All answers.
    pub const ALL: [Self; 4] = [Self::Done, Self::Exists, Self::Absent, Self::Failed];
}

/// The recorded flows of one list.
#[derive(Debug)]
pub struct Cache {
    capacity: usize,
    epoch: u32,
    /// Whether flows are installed.
    pub enabled: bool,
    /// Whether the record is complete: it has every flow of this epoch that the switch may hold.
    is_exact: bool,
    store: Store,
    /// Number of flows, without those that are being deleted.
    recorded: usize,
    pools: Vec<Pool>,
    free_pools: Vec<u32>,
    /// Numbers of the pools in the order of eviction. The last pool has the flows of the current epoch.
    order: VecDeque<u32>,
}

impl Cache {
    /// Creates an empty cache. `capacity` counts all entries, including stale ones.
    pub fn new(capacity: usize, epoch: u32, enabled: bool) -> Self {
        Self {
            capacity,
            epoch,
            enabled,
            is_exact: true,
            store: Store::default(),
            recorded: 0,
            pools: vec![Pool::EMPTY],
            free_pools: Vec::new(),
            order: VecDeque::from([0]),
        }
    }

    /// Returns the capacity.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the current epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns whether the record is complete: it has every flow of this epoch that the switch may hold.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns the number of flows that the switch may hold.
    pub fn len(&self) -> usize {
        self.recorded
    }

    /// Returns whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.recorded == 0
    }

    /// Returns the number of flows of the current epoch.
    pub fn count_live(&self) -> usize {
        self.pools[self.live() as usize].len()
    }

    /// Returns whether the cache may soon have to evict flows.
    pub fn is_nearly_full(&self) -> bool {
        self.recorded as f64 >= self.capacity as f64 * NEARLY_FULL
    }

    // -- flows in order

    /// Returns the first `limit` flows in the order of eviction.
    pub fn eviction_order(&self, limit: usize) -> Vec<FlowKey> {
        let pools = self.pools_in_order();
        let flows = pools.flat_map(|pool| pool.flows(&self.store));
        flows.map(|(_, flow)| flow.key).take(limit).collect()
    }

    /// Returns all flows with their verdicts, in the order of eviction.
    pub fn flows(&self) -> Vec<(FlowKey, FlowVerdict)> {
        let mut flows = Vec::with_capacity(self.recorded);
        for pool in self.pools_in_order() {
            flows.extend(self.with_verdicts(pool));
        }
        flows
    }

    /// Returns the flows of the current epoch.
    pub fn live_flows(&self) -> Vec<(FlowKey, FlowVerdict)> {
        let live = &self.pools[self.live() as usize];
        let mut flows = Vec::with_capacity(live.len());
        flows.extend(self.with_verdicts(live));
        flows
    }

    fn with_verdicts(&self, pool: &Pool) -> impl Iterator<Item = (FlowKey, FlowVerdict)> {
        let flows = pool.flows(&self.store);
        flows.map(|(_, flow)| (flow.key, flow.verdict))
    }

    /// Returns all flows, in no particular order.
    pub fn keys(&self) -> Vec<FlowKey> {
        let mut keys = Vec::with_capacity(self.recorded);
        keys.extend(self.recorded_flows().map(|flow| flow.key));
        keys
    }

    /// Returns the flows that had neither a packet nor a write since `before`, in no particular order.
    pub fn keys_unused_since(&self, before: f64) -> Vec<FlowKey> {
        let unused = self.recorded_flows().filter(|flow| flow.used < before);
        unused.map(|flow| flow.key).collect()
    }

    fn recorded_flows(&self) -> impl Iterator<Item = &FlowRecord> {
        let records = self.store.records();
        records.filter(|record| record.pending != Pending::Delete)
    }

    /// Returns the flows not used since `before`, the least recently used first. Skips flows that are being written.
    pub fn idle_since(&self, before: f64) -> Vec<FlowKey> {
        let pools = self.pools_in_order();
        pools.flat_map(|pool| self.unused(pool, before)).collect()
    }

    /// Returns up to `limit` flows of the current epoch not used since `before`, the least recently used first. Skips
    /// flows that are being written.
    pub fn coldest_live(&self, before: f64, limit: usize) -> Vec<FlowKey> {
        let live = &self.pools[self.live() as usize];
        self.unused(live, before).take(limit).collect()
    }

    fn unused(&self, pool: &Pool, before: f64) -> impl Iterator<Item = FlowKey> {
        let flows = pool.flows(&self.store).map(|(_, flow)| flow);
        flows
            .take_while(move |flow| flow.used < before)
            .filter(|flow| flow.pending == Pending::Nothing)
            .map(|flow| flow.key)
    }

    /// Returns, for each pool number, the pool's position in the order of eviction.
    pub fn ranks(&self) -> Vec<usize> {
        let mut ranks = vec![0; self.pools.len()];
        for (rank, &pool) in self.order.iter().enumerate() {
            ranks[pool as usize] = rank;
        }
        ranks
    }

    /// Returns a flow's place in the order of eviction, and its verdict. The place is the position of its pool in
    /// `ranks`, and the time of its last use.
    pub fn ranked(&self, ranks: &[usize], key: &FlowKey) -> Option<(usize, f64, FlowVerdict)> {
        let flow = self.store.get(self.recorded(key)?);
        let rank = ranks.get(flow.pool as usize).copied().unwrap_or_default();
        Some((rank, flow.used, flow.verdict))
    }

    /// Returns the verdict recorded for a flow.
    pub fn verdict_of(&self, key: &FlowKey) -> Option<FlowVerdict> {
        let number = self.recorded(key)?;
        Some(self.store.get(number).verdict)
    }

    // -- packets

    /// Adds to `writes` the writes that install a flow. `verdict` is the result of searching the rules.
    pub fn offer(
        &mut self,
        key: FlowKey,
        verdict: FlowVerdict,
        now: f64,
        writes: &mut Vec<Write>,
    ) -> Outcome {
        if !self.enabled {
            return Outcome::Off;
        }
        if verdict.epoch != self.epoch {
            return Outcome::Stale;
        }
        let Some(number) = self.store.find(&key) else {
            return self.insert(key, verdict, now, writes);
        };
        let known = self.store.get(number);
        if known.pending != Pending::Nothing {
            return Outcome::UnderWay;
        }
        if known.verdict == verdict && now - known.used < LATE_SECONDS {
            return Outcome::Known;
        }
        writes.push(self.write(Operation::Modify, number, verdict, now));
        Outcome::Installed
    }

    fn insert(
        &mut self,
        key: FlowKey,
        verdict: FlowVerdict,
        now: f64,
        writes: &mut Vec<Write>,
    ) -> Outcome {
        while self.recorded >= self.capacity {
            let Some(victim) = self.victim() else {
                return Outcome::Full;
            };
            writes.push(self.delete(victim));
        }
        let number = self.add(key, verdict);
        writes.push(self.write(Operation::Insert, number, verdict, now));
        Outcome::Installed
    }

    /// Sets a new epoch. All flows become stale. The time for this does not depend on the number of flows.
    pub fn retire(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.is_exact = true;
        let (pools, free_pools) = (&self.pools, &mut self.free_pools);
        self.order.retain(|&pool| {
            let is_kept = !pools[pool as usize].is_empty();
            if !is_kept {
                free_pools.push(pool);
            }
            is_kept
        });
        let live = self.take_pool();
        self.order.push_back(live);
    }

    // -- answers of the switch

    /// Records the result of a write. If the result shows that the record was wrong, adds the writes that are needed
    /// next to `writes`.
    pub fn written(
        &mut self,
        write: &Write,
        answer: WriteAnswer,
        now: f64,
        writes: &mut Vec<Write>,
    ) {
        let Some(number) = self.store.find(&write.key) else {
            return;
        };
        let flow = self.store.get_mut(number);
        if flow.pending != write.operation.pending() {
            return;
        }
        flow.pending = Pending::Nothing;
        match (write.operation, answer) {
            (Operation::Delete, WriteAnswer::Failed) => {
                flow.packets = 0;
                self.recorded += 1;
                self.keep_as_unknown(number);
            }
            (Operation::Delete, _) => self.store.remove(number),
            (_, WriteAnswer::Done) => self.touch(number, now),
            (Operation::Insert, WriteAnswer::Exists) => {
                self.correct_write(Operation::Modify, number, now, writes);
            }
            (Operation::Modify, WriteAnswer::Absent) => {
                self.correct_write(Operation::Insert, number, now, writes);
            }
            (Operation::Modify, _) => {
                self.unlink(number);
                self.keep_as_unknown(number);
            }
            (Operation::Insert, _) => self.remove(number),
        }
    }

    /// Adds the other write: a MODIFY after an INSERT found that the entry exists, or an INSERT after a MODIFY found
    /// that it does not.
    fn correct_write(
        &mut self,
        operation: Operation,
        number: u32,
        now: f64,
        writes: &mut Vec<Write>,
    ) {
        let verdict = self.store.get(number).verdict;
        if verdict.epoch == self.epoch {
            writes.push(self.write(operation, number, verdict, now));
        } else if operation == Operation::Insert {
            self.remove(number); // stale and not in the switch
        }
    }

    // -- reading back

    /// Records a flow that was read back from the switch. Called before any flow is offered.
    pub fn found(&mut self, key: FlowKey, verdict: FlowVerdict, now: f64) {
        if let Some(number) = self.store.find(&key) {
            if self.store.get(number).pending == Pending::Delete {
                self.store.remove(number);
            } else {
                self.remove(number);
            }
        }
        let number = self.add(key, verdict);
        self.store.get_mut(number).used = now;
        if verdict.epoch == self.epoch {
            self.link(self.live(), number);
        } else {
            self.keep_as_stale(number);
        }
    }

    // -- comparing with the switch

    /// Returns whether the switch may hold `found` for a flow, according to the record. `None` means no entry.
    pub fn agrees(&self, key: &FlowKey, found: Option<FlowVerdict>) -> bool {
        let Some(number) = self.store.find(key) else {
            return found.is_none();
        };
        let flow = self.store.get(number);
        if flow.pending != Pending::Nothing {
            return true;
        }
        match found {
            None => false,
            Some(found) if flow.pool == self.live() => found == flow.verdict,
            Some(found) => found.epoch < self.epoch,
        }
    }

    /// Returns the write that corrects an entry for which [`Self::agrees`] is false. Returns `None` if no write is
    /// needed.
    pub fn correct(
        &mut self,
        key: &FlowKey,
        found: Option<FlowVerdict>,
        now: f64,
    ) -> Option<Write> {
        let known = self.store.find(key);
        if known.is_some_and(|number| self.store.get(number).pending != Pending::Nothing) {
            return None;
        }
        match (known, found) {
            (None, None) => None,
            (Some(number), None) => {
                self.remove(number); // The next packet of the flow is punted, and installs the flow again.
                None
            }
            (None, Some(found)) => {
                let number = self.store.add(*key, found);
                let flow = self.store.get_mut(number);
                (flow.used, flow.pending) = (now, Pending::Delete);
                Some(deletion(*key))
            }
            (Some(number), Some(_)) if self.store.get(number).pool == self.live() => {
                let verdict = self.store.get(number).verdict;
                Some(self.write(Operation::Modify, number, verdict, now))
            }
            (Some(number), Some(_)) => Some(self.delete(number)),
        }
    }

    /// Returns the write that deletes a flow, unless a write of the flow is in flight.
    pub fn discard(&mut self, key: &FlowKey) -> Option<Write> {
        let number = self.store.find(key)?;
        let is_idle = self.store.get(number).pending == Pending::Nothing;
        is_idle.then(|| self.delete(number))
    }

    // -- ageing

    /// Records that the switch used the flow's entry for a packet at `now`.
    pub fn used(&mut self, key: &FlowKey, now: f64) {
        if let Some(number) = self.recorded(key) {
            self.touch(number, now);
        }
    }

    /// Records the packet count that the switch reports for a flow. If the count has grown, the flow counts as used at
    /// `now`. Returns whether it has grown.
    pub fn counted(&mut self, key: &FlowKey, packets: u64, now: f64) -> bool {
        let Some(number) = self.recorded(key) else {
            return false;
        };
        let flow = self.store.get_mut(number);
        if packets <= flow.packets {
            return false;
        }
        flow.packets = packets;
        self.touch(number, now);
        true
    }

    /// Returns the write that deletes a flow, if the flow was not used since `before` and no write of it is in flight.
    pub fn expire(&mut self, key: &FlowKey, before: f64) -> Option<Write> {
        let number = self.store.find(key)?;
        let flow = self.store.get(number);
        let is_idle = flow.pending == Pending::Nothing && flow.used < before;
        is_idle.then(|| self.delete(number))
    }

    // -- bookkeeping

    fn pools_in_order(&self) -> impl Iterator<Item = &Pool> {
        self.order.iter().map(|&pool| &self.pools[pool as usize])
    }

    /// Returns the number of the pool of the current epoch.
    fn live(&self) -> u32 {
        self.order.back().copied().unwrap_or_default()
    }

    /// Returns the record number of a flow that is not being deleted.
    fn recorded(&self, key: &FlowKey) -> Option<u32> {
        let number = self.store.find(key)?;
        (self.store.get(number).pending != Pending::Delete).then_some(number)
    }

    fn add(&mut self, key: FlowKey, verdict: FlowVerdict) -> u32 {
        self.recorded += 1;
        self.store.add(key, verdict)
    }

    fn remove(&mut self, number: u32) {
        self.unlink(number);
        self.recorded -= 1;
        self.store.remove(number);
    }

    fn link(&mut self, pool: u32, number: u32) {
        self.pools[pool as usize].push(&mut self.store, pool, number);
    }

    fn unlink(&mut self, number: u32) {
        let pool = self.store.get(number).pool;
        if pool != NONE {
            self.pools[pool as usize].remove(&mut self.store, number);
        }
    }

    fn touch(&mut self, number: u32, now: f64) {
        let pool = self.store.get(number).pool;
        self.unlink(number);
        self.link(pool, number);
        self.store.get_mut(number).used = now;
    }

    fn write(
        &mut self,
        operation: Operation,
        number: u32,
        verdict: FlowVerdict,
        now: f64,
    ) -> Write {
        self.unlink(number);
        self.link(self.live(), number);
        let flow = self.store.get_mut(number);
        flow.verdict = verdict;
        flow.used = now;
        flow.pending = operation.pending();
        if operation == Operation::Insert {
            flow.packets = 0;
        }
        Write {
            operation,
            key: flow.key,
            verdict: Some(verdict),
        }
    }

    fn delete(&mut self, number: u32) -> Write {
        self.unlink(number);
        self.recorded -= 1;
        let flow = self.store.get_mut(number);
        flow.pending = Pending::Delete;
        deletion(flow.key)
    }

    /// Keeps a flow whose write was refused, because the switch may still apply the earlier verdict.
    fn keep_as_unknown(&mut self, number: u32) {
        self.is_exact = false;
        self.keep_as_stale(number);
    }

    /// Puts a flow into the pool that is evicted first. Used for a flow whose verdict is unknown or of an earlier
    /// epoch.
    fn keep_as_stale(&mut self, number: u32) {
        let pool = match self.order.front() {
            Some(&first) if first != self.live() => first,
            _ => {
                let first = self.take_pool();
                self.order.push_front(first);
                first
            }
        };
        self.link(pool, number);
    }

    fn take_pool(&mut self) -> u32 {
        self.free_pools.pop().unwrap_or_else(|| {
            self.pools.push(Pool::EMPTY);
            self.pools.len() as u32 - 1
        })
    }

    /// Returns the flow to evict: a stale flow, or if there is none, the least recently used flow. Skips flows that
    /// are being written.
    fn victim(&mut self) -> Option<u32> {
        while let Some(&first) = self.order.front()
            && first != self.live()
            && self.pools[first as usize].is_empty()
        {
            self.order.pop_front();
            self.free_pools.push(first);
        }
        let mut flows = self
            .pools_in_order()
            .flat_map(|pool| pool.flows(&self.store));
        let victim = flows.find(|(_, flow)| flow.pending == Pending::Nothing);
        victim.map(|(number, _)| number)
    }
}

fn deletion(key: FlowKey) -> Write {
    Write {
        operation: Operation::Delete,
        key,
        verdict: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> FlowKey {
        let mut key = FlowKey::EMPTY;
        key.source_port = port;
        key
    }

    fn verdict(epoch: u32) -> FlowVerdict {
        FlowVerdict {
            epoch,
            ..FlowVerdict::EMPTY
        }
    }

    /// Offers a flow. Returns the operations of the resulting writes, and reports each of them as done.
    fn offer(cache: &mut Cache, port: u16) -> Vec<(Operation, u16)> {
        let (epoch, mut writes) = (cache.epoch(), Vec::new());
        cache.offer(key(port), verdict(epoch), 0.0, &mut writes);
        for write in &writes {
            cache.written(write, WriteAnswer::Done, 0.0, &mut Vec::new());
        }
        let told = writes.iter();
        told.map(|write| (write.operation, write.key.source_port))
            .collect()
    }

    #[test]
    fn stale_flows_are_evicted_first() {
        let mut cache = Cache::new(2, 1, true);
        assert_eq!(offer(&mut cache, 1), [(Operation::Insert, 1)]);
        cache.retire(2);
        assert_eq!(offer(&mut cache, 2), [(Operation::Insert, 2)]);
        cache.used(&key(1), 9.0);
        let writes = [(Operation::Delete, 1), (Operation::Insert, 3)];
        assert_eq!(offer(&mut cache, 3), writes);
        let writes = [(Operation::Delete, 2), (Operation::Insert, 4)];
        assert_eq!(offer(&mut cache, 4), writes);
    }

    #[test]
    fn pools_of_old_epochs_are_used_again() {
        let mut cache = Cache::new(2, 1, true);
        for epoch in 2..100 {
            offer(&mut cache, epoch as u16);
            cache.retire(epoch);
        }
        assert_eq!(cache.len(), 2);
        assert!(cache.pools.len() <= 4, "{}", cache.pools.len());
    }

    #[test]
    fn a_flow_being_deleted_is_not_recorded_but_blocks_its_key() {
        let mut cache = Cache::new(2, 1, true);
        offer(&mut cache, 1);
        assert!(cache.discard(&key(1)).is_some());
        assert_eq!((cache.len(), cache.keys().len()), (0, 0));
        let mut writes = Vec::new();
        let outcome = cache.offer(key(1), verdict(1), 0.0, &mut writes);
        assert_eq!((outcome, writes.len()), (Outcome::UnderWay, 0));
        assert_eq!(cache.discard(&key(1)), None);
    }
}
