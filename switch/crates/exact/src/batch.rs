// SPDX-License-Identifier: Apache-2.0
//! Many look-ups at once: buckets are fetched ahead, so that their way from memory overlaps.

use crate::bucket::{LINE, Line};
use crate::hash::HashKey;
use crate::key::{Key, with_words};
use crate::segment::Home;
use crate::{Exact, NONE};

/// Look-ups under way together: about as many as a core has line fill buffers for.
const GROUP: usize = 16;

/// A look-up under way.
#[derive(Clone, Copy)]
struct Lane {
    segment: u32,
    home: Home,
}

impl<H: HashKey> Exact<H> {
    /// Looks many keys up: `keys` holds them one after the other, `values` gets one value for each,
    /// [`NONE`] where there is none. With empty keys nothing is found.
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
        let none = Lane {
            segment: 0,
            home: Home {
                first: 0,
                second: 0,
                tag: 0,
            },
        };
        let mut lanes = [none; GROUP];
        let keys = || keys.chunks_exact(self.shape.key_bytes);
        for (lane, key) in lanes.iter_mut().zip(keys()) {
            let hash = new(key).hash(&self.hasher);
            lane.segment = self.segment_index(hash);
            let segment = &self.segments[lane.segment as usize];
            lane.home = segment.home(hash);
            prefetch(segment.lines(&self.shape, lane.home.first));
        }
        // A bit for each look-up that goes on in the second bucket.
        let mut open = 0u32;
        for (index, ((lane, key), value)) in lanes.iter().zip(keys()).zip(&mut *values).enumerate()
        {
            let segment = &self.segments[lane.segment as usize];
            let bucket = segment.bucket(&self.shape, lane.home.first);
            *value = match bucket.find(lane.home.tag, new(key)) {
                Some((_, value)) => value,
                None => NONE,
            };
            if *value == NONE && bucket.overflowed() {
                prefetch(segment.lines(&self.shape, lane.home.second));
                open |= 1 << index;
            }
        }
        if open == 0 {
            return;
        }
        for (index, ((lane, key), value)) in lanes.iter().zip(keys()).zip(values).enumerate() {
            if open >> index & 1 != 0 {
                let segment = &self.segments[lane.segment as usize];
                let second = segment.bucket(&self.shape, lane.home.second);
                *value = match second.find(lane.home.tag, new(key)) {
                    Some((_, value)) => value,
                    None => segment.stashed(key).unwrap_or(NONE),
                };
            }
        }
    }
}

/// Asks for lines ahead of their use.
#[inline]
fn prefetch(lines: &[Line]) {
    #[cfg(target_arch = "x86_64")]
    for line in lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64, and a prefetch has no effect that a program could observe.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = lines;
    const { assert!(size_of::<Line>() == LINE) };
}
