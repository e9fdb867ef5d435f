// SPDX-License-Identifier: Apache-2.0
//! Wraps the crate hashbrown, with foldhash or ahash as hash function, whichever is faster. Both have a secret seed. So
//! an attacker who chooses the table's keys cannot choose their buckets.

use std::hash::{BuildHasher, Hash, Hasher};

use ::hashbrown::HashMap;

use crate::lookup_tables::{ExactTable, Keys, choose};
use crate::system::thread_time;

/// Number of entries in the table on which both hash functions are timed.
const TRIAL: usize = 100_000;

/// A key of the table. Only the key's bytes are hashed, without a length.
#[derive(PartialEq, Eq)]
struct Key<const N: usize>([u8; N]);

impl<const N: usize> Hash for Key<N> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl<const N: usize> Key<N> {
    #[inline]
    fn at(bytes: &[u8], number: usize) -> &[u8; N] {
        let key = bytes[number * N..].first_chunk();
        key.expect("the trace contains this key")
    }
}

struct Map<const N: usize, S>(HashMap<Key<N>, u32, S>);

impl<const N: usize, S: BuildHasher + Default> Map<N, S> {
    fn new(table: &[u8]) -> Self {
        let count = table.len() / N;
        let mut map = HashMap::with_capacity_and_hasher(count, S::default());
        map.extend((0..count).map(|entry| (Key(*Key::at(table, entry)), entry as u32)));
        Self(map)
    }

    #[inline]
    fn get(&self, keys: &Keys, at: usize) -> Option<u32> {
        self.0.get(&Key(*Key::<N>::at(&keys.bytes, at))).copied()
    }
}

impl<const N: usize, S: BuildHasher + Default> ExactTable for Map<N, S> {
    fn name(&self) -> &str {
        "hashbrown"
    }

    fn entries(&self, keys: &Keys, count: usize) -> Vec<Option<u32>> {
        (0..count).map(|at| self.get(keys, at)).collect()
    }

    fn lookup(&self, keys: &Keys) -> u64 {
        let all = 0..keys.entries.len();
        all.map(|at| u64::from(self.get(keys, at).unwrap_or(0)))
            .sum()
    }

    fn chain(&self, keys: &Keys) -> u64 {
        let (mut value, mut digest) = (0, 0);
        for step in 0..keys.entries.len() / 2 {
            value = self.get(keys, choose(step, value)).unwrap_or(0);
            digest += u64::from(value);
        }
        digest
    }

    fn memory_bytes(&self) -> Option<usize> {
        Some(self.0.allocation_size())
    }
}

/// Returns the map with the faster hash function, and the name of this function.
pub(crate) fn fastest(table: &[u8], keys: &Keys) -> (Box<dyn ExactTable>, &'static str) {
    match keys.width {
        13 => of_width::<13>(table, keys),
        37 => of_width::<37>(table, keys),
        other => unreachable!("keys of {other} bytes are not measured"),
    }
}

fn of_width<const N: usize>(table: &[u8], keys: &Keys) -> (Box<dyn ExactTable>, &'static str) {
    let some = &table[..table.len().min(TRIAL * N)];
    let fold = Map::<N, foldhash::fast::RandomState>::new(some);
    let aes = Map::<N, ahash::RandomState>::new(some);
    if best_time(&fold, keys) < best_time(&aes, keys) {
        let map = Map::<N, foldhash::fast::RandomState>::new(table);
        (Box::new(map), "foldhash")
    } else {
        (Box::new(Map::<N, ahash::RandomState>::new(table)), "ahash")
    }
}

fn best_time(table: &dyn ExactTable, keys: &Keys) -> Option<std::time::Duration> {
    let passes = (0..3).map(|_| {
        let start = thread_time();
        std::hint::black_box(table.lookup(keys));
        thread_time() - start
    });
    passes.min()
}
