// SPDX-License-Identifier: Apache-2.0
//! Batch lookups. All keys of a group are hashed first, with SIMD instructions where available. So a misprediction in
//! one lookup does not discard hashes of later lookups.
//!
//! If the table fits into a core's own caches, the keys of the group are compared next. In a larger table, lookups are
//! pipelined in three steps. The first step prefetches the bucket. The second step prefetches the key whose tag
//! matches, or the second bucket if no tag matches. The third step compares keys. So memory accesses overlap with each
//! other and with computation.

use crate::bucket::BucketRef;
use crate::hash::HashKey;
use crate::key::{Key, with_words};
use crate::lanes::Lanes;
use crate::{Exact, NONE};

/// Maximum number of segments that fit into a core's own caches. For such a table, pipelining costs more time than it
/// saves.
const OWN_CACHE_SEGMENTS: usize = 24;

/// Number of lookups in a group, for a table of at most `OWN_CACHE_SEGMENTS` segments.
const GROUP: usize = 32;

/// Number of lookups between two pipeline steps, for larger tables. A core can fetch about this number of lines at a
/// time.
const AHEAD: usize = 16;

/// Number of lookups in the pipeline.
const RING: usize = 2 * AHEAD;

impl<H: HashKey> Exact<H> {
    /// Looks up many keys. `keys` holds the keys one after the other. Writes one value for each key to `values`, or
    /// [`NONE`] if the key is not in the table.
    ///
    /// # Panics
    /// Panics if the length of `keys` is not the key size times the length of `values`.
    pub fn lookup_batch(&self, keys: &[u8], values: &mut [u32]) {
        let key_bytes = self.shape.key_bytes;
        assert_eq!(keys.len(), key_bytes * values.len(), "a value for each key");
        if key_bytes == 0 {
            return values.fill(self.get(&[]).unwrap_or(NONE));
        }
        with_words!(key_bytes, new => {
            if self.segments.len() <= OWN_CACHE_SEGMENTS {
                self.lookup_cached(keys, values, &new);
            } else {
                self.lookup_pipelined(keys, values, &new);
            }
        });
    }

    #[inline(never)]
    fn lookup_cached<'k, K: Key>(
        &self,
        keys: &'k [u8],
        values: &mut [u32],
        new: &impl Fn(&'k [u8]) -> K,
    ) {
        let mut lanes = Lanes::<GROUP>::EMPTY;
        assert_eq!(keys.len(), self.shape.key_bytes * values.len());
        let mut rest = keys;
        for values in values.chunks_mut(GROUP) {
            self.begin(rest, values.len(), &mut lanes, new);
            // A single segment stays in the first-level or second-level cache, so its lookups need no prefetch.
            if self.depth > 0 {
                let buckets = &lanes.buckets[..values.len()];
                buckets.iter().for_each(|bucket| bucket.prefetch_first());
            }
            let mut start = 0;
            for (lane, value) in values.iter_mut().enumerate() {
                let end = start + self.shape.key_bytes;
                // SAFETY: there is a key for each value.
                let bytes = unsafe { rest.get_unchecked(start..end) };
                *value = self.finish(bytes, &lanes, lane, new);
                start = end;
            }
            rest = &rest[start..];
        }
    }

    #[inline(never)]
    fn lookup_pipelined<'k, K: Key>(
        &self,
        keys: &'k [u8],
        values: &mut [u32],
        new: &impl Fn(&'k [u8]) -> K,
    ) {
        let mut lanes = Lanes::<RING>::EMPTY;
        let (count, key_bytes) = (values.len(), self.shape.key_bytes);
        assert_eq!(keys.len(), key_bytes * count);
        // SAFETY: there is a key for each value, and `at` stays below their number.
        let bytes = |at: usize| unsafe { keys.get_unchecked(at * key_bytes..(at + 1) * key_bytes) };
        for at in 0..count + RING {
            let lane = at % RING;
            if let Some(at) = at.checked_sub(RING) {
                values[at] = self.finish(bytes(at), &lanes, lane, new);
            }
            if at < count {
                let hash = new(bytes(at)).hash(&self.hasher);
                let bucket = self.first(hash);
                bucket.prefetch_first();
                lanes.set(lane, hash, bucket);
            }
            if (AHEAD..count + AHEAD).contains(&at) {
                let lane = (at - AHEAD) % RING;
                lanes.buckets[lane] = self.follow(&lanes, lane);
            }
        }
    }

    /// Hashes the first `count` keys of `keys`, and locates their first buckets.
    #[inline(always)]
    fn begin<'a, 'k, K: Key, const N: usize>(
        &'a self,
        keys: &'k [u8],
        count: usize,
        lanes: &mut Lanes<'a, N>,
        new: &impl Fn(&'k [u8]) -> K,
    ) {
        #[cfg(target_arch = "x86_64")]
        if let (Some(wide), Some(hasher)) = (&self.wide, self.hasher.known()) {
            let locator = crate::wide::BucketLocator {
                directory: &self.directory,
                offsets: self.offsets,
            };
            // SAFETY: `wide` exists only if the processor has the instructions. The keys have the size for which the
            // kernel was made, and the directory is this table's.
            return unsafe { wide.begin(hasher, locator, keys, count, lanes) };
        }
        let keys = keys.chunks_exact(self.shape.key_bytes).take(count);
        for (lane, key) in keys.enumerate() {
            let hash = new(key).hash(&self.hasher);
            lanes.set(lane, hash, self.first(hash));
        }
    }

    /// Performs the second step of a lookup, after its first bucket has arrived. Prefetches the key whose tag matches,
    /// or the second bucket if no tag matches. Returns the bucket with which the lookup continues.
    #[inline(always)]
    fn follow<'a, const N: usize>(&'a self, lanes: &Lanes<'a, N>, lane: usize) -> BucketRef<'a> {
        let first = lanes.buckets[lane];
        // SAFETY: the bucket is one of this table, and has the slot that its header names.
        unsafe {
            let header = first.header();
            match header.first(&self.shape, lanes.tags[lane]) {
                Some(slot) => first.prefetch_key(&self.shape, slot),
                None if header.overflowed() => {
                    let second = self.second(lanes.hashes[lane]);
                    second.prefetch(&self.shape);
                    return second;
                }
                None => {}
            }
        }
        first
    }

    /// Performs the last step of a lookup. Compares keys in the bucket of the second step, then in the key's other
    /// bucket and in the stash.
    #[inline(always)]
    fn finish<'k, K: Key, const N: usize>(
        &self,
        bytes: &'k [u8],
        lanes: &Lanes<'_, N>,
        lane: usize,
        new: &impl Fn(&'k [u8]) -> K,
    ) -> u32 {
        let (key, tag) = (new(bytes), lanes.tags[lane]);
        // SAFETY: the bucket is one of this table.
        match unsafe { lanes.buckets[lane].find(&self.shape, tag, key) } {
            Some(value) => value,
            None => {
                let found = self.find_elsewhere(lanes.hashes[lane], bytes);
                found.unwrap_or(NONE)
            }
        }
    }
}
