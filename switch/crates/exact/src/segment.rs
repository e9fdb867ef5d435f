// SPDX-License-Identifier: Apache-2.0
//! A segment is a cuckoo hash table of bounded size (Pagh and Rodler, 2004; buckets of several slots: Dietzfelbinger
//! and Weidling, 2007). Each key has two buckets, and is in the first one if there was room when the key was added. If
//! both buckets are full, other keys move from them to their own second buckets to make room.
//!
//! A sorted map, the stash, holds keys for which no room can be made. The stash is empty unless hashes are badly
//! distributed, for example if thousands of keys have the same hash.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::bucket::{self, Bucket, BucketMut, BucketRef, Line, Shape, Tag};
use crate::hash::HashKey;
use crate::key::{Long, hash_of};
use crate::memory::Lines;

/// Number of buckets that are searched for an empty slot before a segment counts as full.
const SEARCH: usize = 64;

/// The keys that fit into no bucket, with their values.
type Stash = BTreeMap<Box<[u8]>, u32>;

/// A part of the table. It has the keys whose hashes agree in the first `depth` segment bits.
pub(crate) struct Segment {
    lines: Lines,
    offsets: BucketOffsets,
    len: u32,
    pub(crate) depth: u32,
    stash: Option<Box<Stash>>,
}

/// Location of a hash within a segment: the indices of its two buckets, and its tag.
#[derive(Clone, Copy)]
struct Location {
    first: usize,
    second: usize,
    tag: Tag,
}

/// A step of the search for an empty slot. It visits `bucket`. `from` is the earlier step, and the slot there whose key
/// may move to this bucket.
struct Step {
    bucket: usize,
    from: Option<(usize, usize)>,
}

impl Segment {
    /// Creates an empty segment. `lines` must be a whole number of buckets.
    pub(crate) fn new(shape: &Shape, depth: u32, lines: Lines) -> Self {
        Self {
            offsets: BucketOffsets::new(shape, lines.len() / shape.lines),
            lines,
            len: 0,
            depth,
            stash: None,
        }
    }

    pub(crate) fn buckets(&self, shape: &Shape) -> usize {
        self.lines.len() / shape.lines
    }

    /// Returns the object that computes bucket offsets in this segment.
    pub(crate) fn offsets(&self) -> BucketOffsets {
        self.offsets
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the number of bytes that the segment has outside the table's
    /// [`SegmentMemory`](crate::memory::SegmentMemory).
    pub(crate) fn memory_bytes(&self) -> usize {
        let stash = self.stash.as_ref().map_or(0, |stash| {
            stash.keys().map(|key| key.len() + 32).sum::<usize>()
        });
        self.lines.own_bytes() + stash
    }

    /// Returns the number of keys in the stash.
    pub(crate) fn stash_len(&self) -> usize {
        self.stash.as_ref().map_or(0, |stash| stash.len())
    }

    /// Returns whether the segment's memory is outside the table's [`SegmentMemory`](crate::memory::SegmentMemory).
    pub(crate) fn has_own_memory(&self) -> bool {
        self.lines.has_own_memory()
    }

    /// Empties the segment and sets its depth. Returns the former contents. If `new` is given, the segment uses these
    /// lines from now on. The new lines must be empty, and as many as the old ones.
    pub(crate) fn emptied(&mut self, depth: u32, new: Option<Lines>) -> Self {
        let lines = match new {
            Some(new) => std::mem::replace(&mut self.lines, new),
            None => {
                let copy = Lines::from(self.lines.to_vec());
                self.lines.fill(Line::EMPTY);
                copy
            }
        };
        let old = Self {
            lines,
            stash: self.stash.take(),
            ..*self
        };
        (self.len, self.depth) = (0, depth);
        old
    }

    /// Returns a reference to the segment for lookups.
    pub(crate) fn view(&self) -> SegmentView {
        SegmentView(self.lines.start())
    }

    fn locate(&self, shape: &Shape, hash: u64) -> Location {
        let first = self.offsets.first(hash);
        let index = |offset: usize| offset / shape.bytes();
        Location {
            first: index(first),
            second: index(self.offsets.second(hash, first)),
            tag: Tag::of(hash),
        }
    }

    /// Returns a bucket.
    #[inline]
    fn bucket<'a>(&'a self, shape: &'a Shape, index: usize) -> Bucket<'a> {
        let start = index * shape.lines;
        Bucket::new(
            shape,
            bucket::bytes(&self.lines[start..start + shape.lines]),
        )
    }

    fn bucket_mut<'a>(&'a mut self, shape: &'a Shape, index: usize) -> BucketMut<'a> {
        let start = index * shape.lines;
        let lines = &mut self.lines[start..start + shape.lines];
        BucketMut::new(shape, bucket::bytes_mut(lines))
    }

    /// Returns the value of a key that is in neither of its buckets.
    #[cold]
    pub(crate) fn stashed(&self, key: &[u8]) -> Option<u32> {
        self.stash.as_ref()?.get(key).copied()
    }

    /// Replaces the value of a key in the segment. Returns the old value, or `None` if the segment does not have the
    /// key.
    pub(crate) fn replace(
        &mut self,
        shape: &Shape,
        hash: u64,
        key: &[u8],
        value: u32,
    ) -> Option<u32> {
        let location = self.locate(shape, hash);
        let bytes = Long(key);
        for index in [location.first, location.second] {
            if let Some((slot, old)) = self.bucket(shape, index).find(location.tag, bytes) {
                self.bucket_mut(shape, index).set(slot, value);
                return Some(old);
            }
            if !self.bucket(shape, location.first).overflowed() {
                return None;
            }
        }
        let known = self.stash.as_mut()?.get_mut(key)?;
        Some(std::mem::replace(known, value))
    }

    /// Adds a key that is not in the segment. Returns false if the key's buckets are full and moving other keys cannot
    /// make room.
    pub(crate) fn add(
        &mut self,
        shape: &Shape,
        hasher: &impl HashKey,
        hash: u64,
        key: &[u8],
        value: u32,
    ) -> bool {
        let location = self.locate(shape, hash);
        let vacant = match self.bucket(shape, location.first).vacant() {
            Some(slot) => Some((location.first, slot)),
            None => match self.bucket(shape, location.second).vacant() {
                Some(slot) => Some((location.second, slot)),
                None => self.make_room(shape, hasher, location),
            },
        };
        let Some((index, slot)) = vacant else {
            return false;
        };
        self.bucket_mut(shape, index)
            .put(slot, location.tag, key, value);
        if index != location.first {
            self.bucket_mut(shape, location.first).add_displaced();
        }
        self.len += 1;
        true
    }

    /// Adds a key to the stash.
    pub(crate) fn add_to_stash(&mut self, shape: &Shape, hash: u64, key: &[u8], value: u32) {
        let first = self.locate(shape, hash).first;
        self.bucket_mut(shape, first).add_displaced();
        self.stash.get_or_insert_default().insert(key.into(), value);
        self.len += 1;
    }

    /// Returns an empty slot in one of the two buckets of a location. Moves keys if necessary. Searches breadth first,
    /// so that as few keys as possible move.
    fn make_room(
        &mut self,
        shape: &Shape,
        hasher: &impl HashKey,
        location: Location,
    ) -> Option<(usize, usize)> {
        let start = |bucket| Step { bucket, from: None };
        let mut steps = Vec::with_capacity(SEARCH + shape.slots);
        steps.push(start(location.first));
        if location.second != location.first {
            steps.push(start(location.second));
        }
        let mut at = 0;
        while at < steps.len() {
            let index = steps[at].bucket;
            if let Some(slot) = self.bucket(shape, index).vacant() {
                return Some(self.move_along(shape, hasher, &steps, at, slot));
            }
            if steps.len() < SEARCH {
                for (slot, key, _) in self.bucket(shape, index).entries() {
                    let bucket = self.locate(shape, hash_of(hasher, key)).other(index);
                    if !passes(&steps, at, bucket) {
                        let from = Some((at, slot));
                        steps.push(Step { bucket, from });
                    }
                }
            }
            at += 1;
        }
        None
    }

    /// Moves keys along the path to an empty slot, so that a slot becomes empty in one of the two buckets where the
    /// search began. Returns this slot.
    fn move_along(
        &mut self,
        shape: &Shape,
        hasher: &impl HashKey,
        steps: &[Step],
        mut at: usize,
        mut vacant: usize,
    ) -> (usize, usize) {
        while let Some((before, slot)) = steps[at].from {
            let (from, to) = (steps[before].bucket, steps[at].bucket);
            let (key, _) = self.bucket(shape, from).entry(slot);
            let location = self.locate(shape, hash_of(hasher, key));
            bucket::move_slot(shape, &mut self.lines, (from, slot), (to, vacant));
            if location.first == from {
                self.bucket_mut(shape, from).add_displaced();
            } else {
                self.bucket_mut(shape, to).remove_displaced();
            }
            (at, vacant) = (before, slot);
        }
        (steps[at].bucket, vacant)
    }

    /// Removes a key, and returns its value.
    pub(crate) fn remove(&mut self, shape: &Shape, hash: u64, key: &[u8]) -> Option<u32> {
        let (location, bytes) = (self.locate(shape, hash), Long(key));
        if let Some((slot, value)) = self.bucket(shape, location.first).find(location.tag, bytes) {
            self.bucket_mut(shape, location.first).clear(slot);
            self.len -= 1;
            return Some(value);
        }
        if !self.bucket(shape, location.first).overflowed() {
            return None;
        }
        let value = match self
            .bucket(shape, location.second)
            .find(location.tag, bytes)
        {
            Some((slot, value)) => {
                self.bucket_mut(shape, location.second).clear(slot);
                value
            }
            None => self.stash.as_mut()?.remove(key)?,
        };
        self.bucket_mut(shape, location.first).remove_displaced();
        self.len -= 1;
        Some(value)
    }

    /// Calls `visit` for every key and its value.
    pub(crate) fn for_each(&self, shape: &Shape, mut visit: impl FnMut(&[u8], u32)) {
        for index in 0..self.buckets(shape) {
            for (_, key, value) in self.bucket(shape, index).entries() {
                visit(key, value);
            }
        }
        let stashed = self.stash.iter().flat_map(|stash| stash.iter());
        stashed.for_each(|(key, value)| visit(key, *value));
    }
}

/// Returns whether a bucket lies on the path to a step. A path must not contain a bucket twice.
fn passes(steps: &[Step], mut at: usize, bucket: usize) -> bool {
    loop {
        if steps[at].bucket == bucket {
            return true;
        }
        match steps[at].from {
            Some((before, _)) => at = before,
            None => return false,
        }
    }
}

/// Pointer to a segment, for lookups. It is valid until the segment's memory is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct SegmentView(NonNull<Line>);

// SAFETY: a view alone gives no access. Code that dereferences a view must justify this.
unsafe impl Send for SegmentView {}
// SAFETY: as for `Send`.
unsafe impl Sync for SegmentView {}

impl SegmentView {
    /// Returns the segment's address.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn address(self) -> usize {
        self.0.addr().get()
    }

    /// Returns the bucket at a byte offset.
    ///
    /// # Safety
    /// The segment must still exist and have buckets of the caller's shape. One of these buckets must begin at
    /// `offset`. No code may write to this bucket during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn bucket<'a>(self, offset: usize) -> BucketRef<'a> {
        // SAFETY: the caller guarantees that the bucket's lines are lines of the segment.
        unsafe { BucketRef::new(self.0.as_ptr().byte_add(offset)) }
    }
}

/// Maps a hash to the byte offsets of its first and second bucket in a segment. The segment's number of buckets is a
/// power of two. The offsets differ if there is more than one bucket.
///
/// An offset combines bits from both halves of the hash, for the reason that [`hash`](crate::hash) gives. The second
/// bucket uses bits that are [`APART`] positions higher than those of the first bucket. The segment bits are other
/// bits: first those from [`FIRST_SEGMENT_BIT`] on, then the lowest bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketOffsets {
    /// Mask of the bits that may be set in offsets of buckets.
    mask: usize,
    /// The lowest bit of `mask`.
    lowest: usize,
}

/// Distance between the two halves of a hash, in bits.
pub(crate) const HALF: u32 = 32;

/// Position of the first segment bit in a hash.
pub(crate) const FIRST_SEGMENT_BIT: u32 = 48;

/// Distance, in bits, between the hash bits that select the first bucket and those that select the second bucket.
const APART: u32 = 14;

impl BucketOffsets {
    fn new(shape: &Shape, buckets: usize) -> Self {
        debug_assert!(buckets.is_power_of_two());
        let mask = (buckets - 1) * shape.bytes();
        Self {
            mask,
            lowest: mask & mask.wrapping_neg(),
        }
    }

    /// Returns the mask of the bits that may be set in offsets of buckets.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn mask(self) -> usize {
        self.mask
    }

    /// Returns the offset of the first bucket of a hash.
    #[inline(always)]
    pub(crate) fn first(self, hash: u64) -> usize {
        mixed(hash) as usize & self.mask
    }

    /// Returns the offset of the second bucket of a hash. `first` is the offset of its first bucket.
    #[inline(always)]
    pub(crate) fn second(self, hash: u64, first: usize) -> usize {
        first ^ ((mixed(hash) >> APART) as usize & self.mask | self.lowest)
    }
}

#[inline(always)]
fn mixed(hash: u64) -> u64 {
    hash ^ hash >> HALF
}

impl Location {
    fn other(&self, bucket: usize) -> usize {
        if bucket == self.first {
            self.second
        } else {
            self.first
        }
    }
}
