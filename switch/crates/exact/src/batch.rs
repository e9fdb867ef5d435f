// SPDX-License-Identifier: Apache-2.0
//! Many look-ups at once: buckets are fetched ahead, so that their way from memory overlaps.

use crate::bucket::Look;
use crate::hash::HashKey;
use crate::key::{Key, with_words};
use crate::segment::tag;
use crate::{Exact, NONE};

/// Look-ups under way together: about as many as a core has line fill buffers for.
const GROUP: usize = 16;

/// So many segments are in a core's caches when they are used much: fetching ahead would only cost.
const RESIDENT: usize = 4;

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
        let resident = self.segments.len() <= RESIDENT;
        with_words!(key_bytes, new => {
            if resident {
                for (key, value) in keys.chunks_exact(key_bytes).zip(values) {
                    *value = self.get_key(key, new(key)).unwrap_or(NONE);
                }
                return;
            }
            let groups = keys.chunks(key_bytes * GROUP);
            for (keys, values) in groups.zip(values.chunks_mut(GROUP)) {
                self.lookup_group(keys, values, new);
            }
        });
    }

    #[inline(always)]
    fn lookup_group<'k, K: Key>(
        &self,
        keys: &'k [u8],
        values: &mut [u32],
        new: impl Fn(&'k [u8]) -> K,
    ) {
        let shape = self.shape;
        let keys = || keys.chunks_exact(shape.key_bytes);
        let (mut hashes, mut buckets) = ([0; GROUP], [Look::NOWHERE; GROUP]);
        for ((hash, bucket), key) in hashes.iter_mut().zip(&mut buckets).zip(keys()) {
            *hash = new(key).hash(&self.hasher);
            let view = self.place(*hash).view;
            // SAFETY: as in `Exact::get`: a bucket of a segment of this table, which is borrowed.
            *bucket = unsafe { view.look(&shape, view.first(*hash)) };
            bucket.prefetch(&shape);
        }
        // A bit for each look-up that goes on in the second bucket.
        let mut open = 0u32;
        let lanes = || hashes.iter().zip(keys());
        let first = lanes().zip(&mut *values).zip(&mut buckets);
        for (index, (((hash, key), value), bucket)) in first.enumerate() {
            // SAFETY: the loop before has given a bucket of this shape to every key.
            let (found, overflowed) = unsafe {
                let found = bucket.find(&shape, tag(*hash), new(key));
                (found, bucket.overflowed())
            };
            *value = found.unwrap_or(NONE);
            if found.is_none() && overflowed {
                let view = self.place(*hash).view;
                // SAFETY: as above.
                *bucket = unsafe { view.look(&shape, view.second(*hash, view.first(*hash))) };
                bucket.prefetch(&shape);
                open |= 1 << index;
            }
        }
        if open == 0 {
            return;
        }
        for (index, (((hash, key), value), bucket)) in lanes().zip(values).zip(&buckets).enumerate()
        {
            if open >> index & 1 != 0 {
                // SAFETY: as above.
                let found = unsafe { bucket.find(&shape, tag(*hash), new(key)) };
                let found = found.or_else(|| self.stashed(*hash, key));
                *value = found.unwrap_or(NONE);
            }
        }
    }
}
