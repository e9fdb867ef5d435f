// SPDX-License-Identifier: Apache-2.0
//! Growth of a table: adds new keys, and makes room if a segment is full.
//!
//! Some bits of a hash are segment bits. All hashes of a segment agree in the first `depth` segment bits. These bits,
//! the first one lowest, form a number: the segment's position. When a segment is split, one part keeps the position.
//! The other part gets this position plus 2^depth. So positions of existing segments do not change, and no two segments
//! have the same position.

use crate::Exact;
use crate::bucket;
use crate::hash::HashKey;
use crate::key::hash_of;
use crate::memory::SEGMENT_BYTES;
use crate::segment::Segment;

/// Maximum size in bytes of a segment that is alone in its table. When it is full at this size, it is split into eight
/// segments, once.
const ONLY_BYTES: usize = 256 << 10;

/// Number of segment bits after the split of a single segment.
const FIRST_DEPTH: u32 = 3;

/// Maximum number of directory positions per segment. Well-distributed hashes need two or four.
const SPARSE: usize = 64;

impl<H: HashKey> Exact<H> {
    /// Adds a key that is not in the table. Grows the table if there is no room.
    pub(crate) fn add(&mut self, hash: u64, key: &[u8], value: u32) {
        loop {
            let index = self.owner(hash);
            let segment = &self.segments[index];
            let (buckets, keys) = (segment.buckets(&self.shape), segment.len());
            let capacity = buckets * self.shape.slots;
            if keys < self.fill(capacity) {
                let segment = &mut self.segments[index];
                if segment.add(&self.shape, &self.hasher, hash, key, value) {
                    return;
                }
            }
            // The segment has no room for the key although fewer than half of its slots are used. So its hashes are
            // equal in too many bits, and a split would not separate them.
            let alike = keys * 2 < capacity && buckets > 4;
            let only = self.segments.len() == 1;
            if alike || !only && !self.may_split(index) {
                self.stashed += 1;
                return self.segments[index].add_to_stash(&self.shape, hash, key, value);
            }
            match only {
                true if 2 * buckets <= self.most(ONLY_BYTES) => self.rebuild(0, 2 * buckets),
                true => self.rebuild(FIRST_DEPTH, self.most(SEGMENT_BYTES)),
                false => self.split(index, hash),
            }
        }
    }

    /// Returns whether a segment may be split. A few segments with equal hashes must not cause a large directory.
    fn may_split(&self, index: usize) -> bool {
        let sparse = self.directory.len() > SPARSE * self.segments.len();
        self.segments[index].depth < self.depth || !sparse
    }

    /// Returns how many of `capacity` slots may be in use. If more were in use, the search for an empty slot would take
    /// many steps.
    fn fill(&self, capacity: usize) -> usize {
        match self.shape.slots {
            bucket::MAX_SLOTS => capacity * 95 / 100,
            _ => capacity * 92 / 100,
        }
        .max(1)
    }

    /// Returns the number of buckets that fit in `bytes` bytes, a power of two.
    fn most(&self, bytes: usize) -> usize {
        (bytes / self.shape.bytes()).max(1)
    }

    /// Moves the keys of the only segment into 2^depth segments of `buckets` buckets each.
    fn rebuild(&mut self, depth: u32, buckets: usize) {
        let count = 1 << depth;
        let lines = buckets * self.shape.lines;
        let segment = |position| {
            Segment::new(
                &self.shape,
                depth,
                self.memory.lines(lines, position, count),
            )
        };
        let new: Vec<Segment> = (0..count).map(segment).collect();
        let old = std::mem::replace(&mut self.segments, new);
        (self.depth, self.last) = (depth, count - 1);
        self.offsets = self.segments[0].offsets();
        self.directory = self.segments.iter().map(Segment::view).collect();
        self.only = self.directory[0];
        self.owners = (0..count as u32).collect();
        self.stashed = 0;
        let shape = self.shape;
        for segment in old {
            segment.for_each(&shape, |key, value| {
                self.put(hash_of(&self.hasher, key), key, value)
            });
        }
    }

    /// Adds a key to its segment. If no bucket has room, adds the key to the segment's stash.
    fn put(&mut self, hash: u64, key: &[u8], value: u32) {
        let index = self.owner(hash);
        let segment = &mut self.segments[index];
        if !segment.add(&self.shape, &self.hasher, hash, key, value) {
            segment.add_to_stash(&self.shape, hash, key, value);
            self.stashed += 1;
        }
    }

    /// Writes a segment to all directory positions whose lowest `depth` bits equal those of position `first`.
    fn direct(&mut self, index: usize, depth: u32, first: usize) {
        let view = self.segments[index].view();
        for position in (first..self.directory.len()).step_by(1 << depth) {
            self.directory[position] = view;
            self.owners[position] = index as u32;
        }
    }

    /// Splits a segment by the next segment bit. `hash` is a hash that belongs to the segment.
    fn split(&mut self, index: usize, hash: u64) {
        let depth = self.segments[index].depth + 1;
        if depth > self.depth {
            self.directory.extend_from_within(..);
            self.owners.extend_from_within(..);
            self.depth += 1;
            self.last = self.directory.len() - 1;
        }
        let distance = 1 << (depth - 1);
        let first = self.position(hash) & (distance - 1);
        let other = first + distance;
        let lines = self.segments[index].buckets(&self.shape) * self.shape.lines;
        let count = self.segments.len();
        let mut new = |position| self.memory.lines(lines, position, count);
        self.segments
            .push(Segment::new(&self.shape, depth, new(other)));
        // A segment with its own allocation moves to its position in the table's address range.
        let moves = self.segments[index].has_own_memory() && !self.segments[count].has_own_memory();
        let old = self.segments[index].emptied(depth, moves.then(|| new(first)));
        self.stashed -= old.stash_len();
        self.direct(count, depth, other);
        self.direct(index, depth, first);
        let shape = self.shape;
        old.for_each(&shape, |key, value| {
            self.put(hash_of(&self.hasher, key), key, value)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyHasher;

    /// Checks that every key is found after each doubling of the directory, with segments inside and outside the
    /// address range.
    #[test]
    fn keys_are_found_at_every_depth() {
        let mut table = Exact::with_hasher(13, KeyHasher::seeded(13, 2));
        let key = |number: u32| {
            let mut key = [0; 13];
            key[..4].copy_from_slice(&number.to_le_bytes());
            key
        };
        let mut depth = 0;
        for number in 0..if cfg!(miri) { 20_000 } else { 500_000 } {
            table.insert(&key(number), number);
            if table.depth != depth {
                depth = table.depth;
                for number in (0..=number).step_by(701) {
                    assert_eq!(table.get(&key(number)), Some(number));
                }
            }
        }
        assert!(depth >= if cfg!(miri) { 3 } else { 8 }, "{depth}");
    }
}
