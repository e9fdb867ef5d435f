// SPDX-License-Identifier: Apache-2.0
//! Many look-ups at once: buckets are fetched ahead, so that their way from memory overlaps.
//!
//! No look-up branches on where its key is. First all look at their first bucket, at the slot whose
//! tag agrees; those that found neither their key there nor that there is none are listed, and go
//! through both buckets once their second has been asked for.

use std::hint::select_unpredictable;

use crate::bucket::Look;
use crate::hash::HashKey;
use crate::key::{Key, with_words};
use crate::segment::tag;
use crate::{Exact, NONE};

/// Look-ups under way together: more than a core fetches lines at a time (measured: 32 are a fifth
/// slower), since those of one group are looked at while the next group's are fetched.
pub(crate) const GROUP: usize = 64;

/// Hashes of a group's keys, their tags, and their buckets.
pub(crate) struct Group<'a> {
    pub(crate) hashes: [u64; GROUP],
    pub(crate) tags: [u8; GROUP],
    pub(crate) firsts: [Look<'a>; GROUP],
    pub(crate) seconds: [Look<'a>; GROUP],
}

impl Group<'_> {
    const EMPTY: Self = Self {
        hashes: [0; GROUP],
        tags: [0; GROUP],
        firsts: [Look::NOWHERE; GROUP],
        seconds: [Look::NOWHERE; GROUP],
    };
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
        let fetch = !self.is_near();
        with_words!(key_bytes, new => {
            let [mut ahead, mut now] = [Group::EMPTY; 2];
            let mut rest = keys;
            self.begin(rest, &mut ahead, fetch, new);
            for values in values.chunks_mut(GROUP) {
                std::mem::swap(&mut ahead, &mut now);
                let keys;
                (keys, rest) = (rest, &rest[values.len() * key_bytes..]);
                self.begin(rest, &mut ahead, fetch, new);
                self.look(keys, values, &now, fetch, new);
            }
        });
    }

    /// Finds the first buckets of the next group of keys.
    #[inline(always)]
    fn begin<'a, 'k, K: Key>(
        &'a self,
        keys: &'k [u8],
        group: &mut Group<'a>,
        fetch: bool,
        new: impl Fn(&'k [u8]) -> K,
    ) {
        if !self.begin_wide(keys, group) {
            let keys = keys.chunks_exact(self.shape.key_bytes).take(GROUP);
            for (index, key) in keys.enumerate() {
                let hash = new(key).hash(&self.hasher);
                (group.hashes[index], group.tags[index]) = (hash, tag(hash));
                (group.firsts[index], group.seconds[index]) = self.buckets(hash);
            }
        }
        if fetch {
            let count = keys.len() / self.shape.key_bytes;
            let buckets = &group.firsts[..count.min(GROUP)];
            buckets
                .iter()
                .for_each(|bucket| bucket.prefetch(&self.shape));
        }
    }

    /// The same with wide instructions; false where there are none for these keys.
    #[inline(always)]
    fn begin_wide<'a>(&'a self, keys: &[u8], group: &mut Group<'a>) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let (Some(wide), Some(hasher)) = (&self.wide, self.hasher.known()) {
            let places = crate::wide::Places {
                directory: &self.directory,
                depth: self.depth,
                buckets: self.buckets,
            };
            // SAFETY: `wide` exists only where the processor has the instructions; keys and places are
            // those of this table, and a group has at most `GROUP` keys.
            unsafe { wide.begin(hasher, places, keys, group) };
            return true;
        }
        let _ = (keys, group);
        false
    }

    /// Looks a group up, with whose keys `keys` begins.
    #[inline(always)]
    fn look<'k, K: Key>(
        &self,
        keys: &'k [u8],
        values: &mut [u32],
        group: &Group<'_>,
        fetch: bool,
        new: impl Fn(&'k [u8]) -> K,
    ) {
        let key_bytes = self.shape.key_bytes;
        // Those that go on.
        let mut open = [0u8; GROUP];
        let count = self.look_first(keys, values, group, &mut open, &new);
        let open = &open[..count];
        if fetch {
            let seconds = open.iter().map(|index| group.seconds[usize::from(*index)]);
            seconds.for_each(|second| second.prefetch(&self.shape));
        }
        for index in open {
            let index = usize::from(*index);
            let key = &keys[index * key_bytes..][..key_bytes];
            let (first, second) = (group.firsts[index], group.seconds[index]);
            // SAFETY: `begin` has given both buckets of this table to every key.
            let found = unsafe { self.find_in_turn(first, second, group.tags[index], new(key)) };
            values[index] = match found {
                Some(value) => value,
                None if self.stashed == 0 => NONE,
                None => self.stashed(group.hashes[index], key).unwrap_or(NONE),
            };
        }
    }

    /// Looks a group up in its first buckets: writes what is found, which keys go on, and gives how
    /// many these are.
    #[inline(always)]
    fn look_first<'k, K: Key>(
        &self,
        keys: &'k [u8],
        values: &mut [u32],
        group: &Group<'_>,
        open: &mut [u8; GROUP],
        new: &impl Fn(&'k [u8]) -> K,
    ) -> usize {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide {
            // SAFETY: `wide` exists only where the processor has the instructions, and has filled the
            // group for these keys.
            return unsafe { wide.look(keys, values, group, open) };
        }
        let shape = &self.shape;
        let mut count = 0;
        let begun = group.tags.iter().zip(&group.firsts);
        let lanes = values.iter_mut().zip(keys.chunks_exact(shape.key_bytes));
        for (index, ((value, key), (tag, bucket))) in lanes.zip(begun).enumerate() {
            // SAFETY: `begin` has given a bucket of this table to every key; 0 is one of its slots, as
            // are all candidates.
            let (hit, found, more) = unsafe {
                let candidates = bucket.candidates(shape, *tag);
                let slot = candidates.trailing_zeros();
                let slot = select_unpredictable(candidates == 0, 0, slot);
                let (is, found) = bucket.entry(shape, slot, new(key));
                // An empty slot may hold what a key left behind.
                let some = candidates != 0;
                (is & some, found, some | bucket.overflowed())
            };
            *value = select_unpredictable(hit, found, NONE);
            open[count % GROUP] = index as u8;
            count += usize::from(more & !hit);
        }
        count
    }
}
