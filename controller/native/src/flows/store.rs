// SPDX-License-Identifier: Apache-2.0
//! Stores records of flows. A record is found by its flow's key or by its own number.
//!
//! Invariant: no operation takes time that grows with the number of flows. So the records are in chunks that never
//! move, and the index consists of shards that grow one at a time. With a single hash table, the insertion that
//! doubles a table of a million flows would take tens of milliseconds.

use std::hash::{BuildHasher, RandomState};

use super::key::{FlowKey, FlowVerdict};

/// Stands for "no record".
pub(super) const NONE: u32 = u32::MAX;

const CHUNK: usize = 512;
/// Number of shards of the index. With a million flows, a shard has 4,000 of them.
const SHARDS: usize = 256;
/// Smallest number of buckets of a shard that has flows.
const FEWEST: usize = 8;

/// State of a record: without a flow (`Free`), with a flow that has no unanswered write (`Nothing`), or with a flow
/// whose write is queued or in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Free,
    Nothing,
    Insert,
    Modify,
    Delete,
}

/// A flow, with its links in the index and in the order of eviction.
#[derive(Clone, Debug)]
pub(super) struct FlowRecord {
    pub(super) key: FlowKey,
    pub(super) verdict: FlowVerdict,
    /// Time of the last packet or write.
    pub(super) used: f64,
    /// The switch's packet count of the flow, as last read.
    pub(super) packets: u64,
    /// The flow's pool, or `NONE`. The next two fields are the neighbours in this pool.
    pub(super) pool: u32,
    pub(super) colder: u32,
    pub(super) warmer: u32,
    pub(super) pending: Pending,
    /// Next record of the same bucket, or next free record.
    chain: u32,
}

const FREE: FlowRecord = FlowRecord {
    key: FlowKey::EMPTY,
    verdict: FlowVerdict::EMPTY,
    used: 0.0,
    packets: 0,
    pool: NONE,
    colder: NONE,
    warmer: NONE,
    pending: Pending::Free,
    chain: NONE,
};

#[derive(Clone, Debug, Default)]
struct Shard {
    /// Number of the first record of each bucket. The number of buckets is 0 or a power of two.
    buckets: Vec<u32>,
    flows: usize,
}

/// Records of flows. At most one record has a given key.
#[derive(Debug)]
pub(super) struct Store {
    chunks: Vec<Box<[FlowRecord]>>,
    first_free: u32,
    shards: Box<[Shard]>,
    /// The hash has a random key. Hosts choose the addresses and ports of their flows, and could otherwise choose keys
    /// that collide.
    hasher: RandomState,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            first_free: NONE,
            shards: vec![Shard::default(); SHARDS].into(),
            hasher: RandomState::new(),
        }
    }
}

impl Store {
    pub(super) fn get(&self, number: u32) -> &FlowRecord {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut FlowRecord {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// Returns all records that have a flow, in no particular order.
    pub(super) fn records(&self) -> impl Iterator<Item = &FlowRecord> {
        let all = self.chunks.iter().flat_map(|chunk| chunk.iter());
        all.filter(|record| record.pending != Pending::Free)
    }

    /// Returns the number of the record with this key.
    pub(super) fn find(&self, key: &FlowKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let shard = &self.shards[shard_of(hash)];
        let mut at = *shard.buckets.get(bucket_of(hash, shard.buckets.len()))?;
        while at != NONE {
            let record = self.get(at);
            if record.key == *key {
                return Some(at);
            }
            at = record.chain;
        }
        None
    }

    /// Adds a record with this key and returns its number. No record may have the key yet.
    pub(super) fn add(&mut self, key: FlowKey, verdict: FlowVerdict) -> u32 {
        if self.first_free == NONE {
            self.add_chunk();
        }
        let number = self.first_free;
        self.first_free = self.get(number).chain;
        let hash = self.hasher.hash_one(key);
        let shard = shard_of(hash);
        if self.shards[shard].flows >= self.shards[shard].buckets.len() {
            self.grow(shard);
        }
        let Shard { buckets, flows } = &mut self.shards[shard];
        let bucket = bucket_of(hash, buckets.len());
        let chain = std::mem::replace(&mut buckets[bucket], number);
        *flows += 1;
        *self.get_mut(number) = FlowRecord {
            key,
            verdict,
            pending: Pending::Nothing,
            chain,
            ..FREE
        };
        number
    }

    /// Removes a record. The record must be in no pool.
    pub(super) fn remove(&mut self, number: u32) {
        let (key, chain) = {
            let record = self.get(number);
            (record.key, record.chain)
        };
        let hash = self.hasher.hash_one(key);
        let shard = &mut self.shards[shard_of(hash)];
        shard.flows -= 1;
        let bucket = bucket_of(hash, shard.buckets.len());
        if shard.buckets[bucket] == number {
            shard.buckets[bucket] = chain;
        } else {
            let mut at = shard.buckets[bucket];
            while self.get(at).chain != number {
                at = self.get(at).chain;
            }
            self.get_mut(at).chain = chain;
        }
        let chain = self.first_free;
        *self.get_mut(number) = FlowRecord { chain, ..FREE };
        self.first_free = number;
    }

    fn add_chunk(&mut self) {
        let start = self.chunks.len() * CHUNK;
        let mut chunk = vec![FREE; CHUNK];
        for (at, record) in chunk.iter_mut().enumerate().take(CHUNK - 1) {
            record.chain = (start + at + 1) as u32;
        }
        self.chunks.push(chunk.into());
        self.first_free = start as u32;
    }

    /// Doubles the number of buckets of a shard.
    fn grow(&mut self, shard: usize) {
        let old = std::mem::take(&mut self.shards[shard].buckets);
        let mut buckets = vec![NONE; (2 * old.len()).max(FEWEST)];
        for first in old {
            let mut at = first;
            while at != NONE {
                let hash = self.hasher.hash_one(self.get(at).key);
                let bucket = bucket_of(hash, buckets.len());
                let next = std::mem::replace(&mut buckets[bucket], at);
                at = std::mem::replace(&mut self.get_mut(at).chain, next);
            }
        }
        self.shards[shard].buckets = buckets;
    }
}

fn shard_of(hash: u64) -> usize {
    (hash >> 56) as usize % SHARDS
}

/// Returns the bucket of a hash. `buckets`, the number of buckets, is 0 or a power of two.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    hash as usize & buckets.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u16) -> FlowKey {
        let mut key = FlowKey::EMPTY;
        key.source_port = number;
        key
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<FlowRecord>() <= 96);
    }

    #[test]
    fn all_of_many_flows_are_found() {
        let mut store = Store::default();
        let numbers: Vec<u32> = (0..50_000)
            .map(|port| store.add(key(port), FlowVerdict::default()))
            .collect();
        for (port, number) in numbers.iter().enumerate() {
            assert_eq!(store.find(&key(port as u16)), Some(*number));
        }
        assert_eq!(store.find(&key(50_000)), None);
        assert_eq!(store.records().count(), 50_000);
    }

    proptest! {
        #[test]
        fn the_store_is_a_map(steps in proptest::collection::vec((0..40_u16, any::<bool>()), 0..300)) {
            let (mut store, mut known) = (Store::default(), HashMap::new());
            for (port, add) in steps {
                match (known.get(&port), add) {
                    (None, true) => {
                        known.insert(port, store.add(key(port), FlowVerdict::default()));
                    }
                    (Some(&number), false) => {
                        store.remove(number);
                        known.remove(&port);
                    }
                    _ => {}
                }
                for port in 0..40 {
                    prop_assert_eq!(store.find(&key(port)), known.get(&port).copied());
                }
                prop_assert_eq!(store.records().count(), known.len());
            }
        }
    }
}
