// SPDX-License-Identifier: Apache-2.0
//! Many look-ups at once. All of a group are hashed first, with wide instructions where there are any:
//! the branches of one look-up that a processor guesses wrongly then do not cost the hashes of those
//! behind it, too.
//!
//! In a table that fits into a core's own caches a group's keys are compared next. In a larger one two groups are
//! under way while another begins: the buckets of one are asked for; then the keys within them whose
//! tags agree, or second buckets where none does; then keys are compared. So the ways from memory
//! overlap with each other and with what there is to compute.

use crate::bucket::{Look, Tag};
use crate::hash::HashKey;
use crate::key::{Key, with_words};
use crate::{Exact, NONE};

/// Segments that fit into a core's own caches: a batch has nothing to wait for.
const NEARBY: usize = 24;

/// Look-ups of a group in a table that fits into these.
const NEAR: usize = 32;

/// Look-ups between two steps in another table: about as many as a core fetches lines at a time.
const AHEAD: usize = 16;

/// Places for those under way.
const RING: usize = 2 * AHEAD;

/// Look-ups under way: their hashes, tags and the buckets that they go on with.
pub(crate) struct Lanes<'a, const N: usize> {
    pub(crate) hashes: [u64; N],
    pub(crate) tags: [Tag; N],
    pub(crate) buckets: [Look<'a>; N],
}

impl<'a, const N: usize> Lanes<'a, N> {
    const EMPTY: Self = Self {
        hashes: [0; N],
        tags: [Tag::NONE; N],
        buckets: [Look::NOWHERE; N],
    };

    #[inline(always)]
    fn set(&mut self, lane: usize, hash: u64, bucket: Look<'a>) {
        self.hashes[lane] = hash;
        self.tags[lane] = Tag::of(hash);
        self.buckets[lane] = bucket;
    }
}

impl<H: HashKey> Exact<H> {
    /// Looks many keys up: `keys` holds them one after the other, `values` gets one value for each,
    /// [`NONE`] where there is none.
    ///
    /// # Panics
    /// If `keys` is not as long as `values` says.
    pub fn lookup_batch(&self, keys: &[u8], values: &mut [u32]) {
        let key_bytes = self.shape.key_bytes;
        assert_eq!(keys.len(), key_bytes * values.len(), "a value for each key");
        if key_bytes == 0 {
            return values.fill(self.get(&[]).unwrap_or(NONE));
        }
        with_words!(key_bytes, new => {
            if self.segments.len() <= NEARBY {
                self.lookup_near(keys, values, &new);
            } else {
                self.lookup_far(keys, values, &new);
            }
        });
    }

    #[inline(never)]
    fn lookup_near<'k, K: Key>(
        &self,
        keys: &'k [u8],
        values: &mut [u32],
        new: &impl Fn(&'k [u8]) -> K,
    ) {
        let mut lanes = Lanes::<NEAR>::EMPTY;
        assert_eq!(keys.len(), self.shape.key_bytes * values.len());
        let mut rest = keys;
        for values in values.chunks_mut(NEAR) {
            self.begin(rest, values.len(), &mut lanes, new);
            // A single segment is in the first or second cache: the processor reads ahead far enough.
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
    fn lookup_far<'k, K: Key>(
        &self,
        keys: &'k [u8],
        values: &mut [u32],
        new: &impl Fn(&'k [u8]) -> K,
    ) {
        let mut lanes = Lanes::<RING>::EMPTY;
        let (count, key_bytes) = (values.len(), self.shape.key_bytes);
        assert_eq!(keys.len(), key_bytes * count);
        // SAFETY: there is a key for each value, and none further is asked for.
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

    /// Hashes `count` keys, with which `keys` begins, and finds their first buckets.
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
            let table = crate::wide::Table {
                directory: &self.directory,
                even: self.even,
                places: self.places,
            };
            // SAFETY: `wide` exists only where the processor has the instructions; the keys are of the
            // size that it was made for, and the directory is this table's.
            return unsafe { wide.begin(hasher, table, keys, count, lanes) };
        }
        let keys = keys.chunks_exact(self.shape.key_bytes).take(count);
        for (lane, key) in keys.enumerate() {
            let hash = new(key).hash(&self.hasher);
            lanes.set(lane, hash, self.first(hash));
        }
    }

    /// Asks for what a look-up needs whose first bucket has come: the key whose tag agrees, or else the
    /// second bucket. Gives the bucket to go on with.
    #[inline(always)]
    fn follow<'a, const N: usize>(&'a self, lanes: &Lanes<'a, N>, lane: usize) -> Look<'a> {
        let first = lanes.buckets[lane];
        // SAFETY: it is a bucket of this table, and has the slot that its header names.
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

    /// Looks for a key in the bucket that its look-up has come to, and where else it can be.
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
