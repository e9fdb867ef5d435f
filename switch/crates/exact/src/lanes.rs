// SPDX-License-Identifier: Apache-2.0
//! The lanes of a batch lookup: the state of each lookup between its steps.

use crate::bucket::{BucketRef, Tag};

/// State of a group of lookups: hashes, tags, and the buckets that are read next.
pub(crate) struct Lanes<'a, const N: usize> {
    pub(crate) hashes: [u64; N],
    pub(crate) tags: [Tag; N],
    pub(crate) buckets: [BucketRef<'a>; N],
}

impl<'a, const N: usize> Lanes<'a, N> {
    /// Lanes without lookups.
    pub(crate) const EMPTY: Self = Self {
        hashes: [0; N],
        tags: [Tag::NONE; N],
        buckets: [BucketRef::NULL; N],
    };

    /// Begins a lookup of the key with this hash, whose first bucket is `bucket`.
    #[inline(always)]
    pub(crate) fn set(&mut self, lane: usize, hash: u64, bucket: BucketRef<'a>) {
        self.hashes[lane] = hash;
        self.tags[lane] = Tag::of(hash);
        self.buckets[lane] = bucket;
    }
}
