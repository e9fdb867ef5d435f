// SPDX-License-Identifier: Apache-2.0
//! Exact match over keys of one size: from byte strings to `u32`.
//!
//! Made for tables of millions of entries that are looked up far more often than they change, where
//! what counts is how many cache lines a look-up touches and how long an insertion can take:
//!
//! * **One place.** Tags, keys and values of a bucket lie together in whole cache lines, so a hit
//!   costs about one trip to memory ([`lookup_batch`](Exact::lookup_batch) overlaps those of many
//!   look-ups). A key is in one of two buckets, nearly always in the first; a bucket knows whether
//!   any of its keys is in another, so a miss also costs one trip.
//! * **No pause.** The table is cut into segments of at most [`SEGMENT_BYTES`], found through a
//!   directory by the first bits of the hash (extendible hashing: Fagin, Nievergelt, Pippenger and
//!   Strong, 1979). A segment that is full grows or splits alone, so no insertion moves more than
//!   one segment's keys.
//! * **Full.** Buckets fill to about nine tenths before a segment grows, and it grows by a quarter.
//! * **Safe.** The hash has secrets of its own for each table ([`KeyHasher`]). Should keys collide
//!   nevertheless, answers stay right and only those keys become slower.
//!
//! Depends on nothing. Promises: look-ups neither allocate nor panic for a key of the right size;
//! nothing is lost whatever the hashes are. A table does not shrink.
//!
//! ```
//! let mut flows = sluice_exact::Exact::new(4);
//! assert_eq!(flows.insert(&[10, 0, 0, 1], 7), None);
//! assert_eq!(flows.get(&[10, 0, 0, 1]), Some(7));
//!
//! let mut values = [0; 2];
//! flows.lookup_batch(&[10, 0, 0, 1, 10, 0, 0, 2], &mut values);
//! assert_eq!(values, [7, sluice_exact::NONE]);
//! ```

mod batch;
mod bucket;
mod hash;
mod key;
mod segment;

use std::fmt;

pub use hash::{HashKey, KeyHasher};

use bucket::Shape;
use key::{Key, hash_of, with_words};
use segment::{Segment, View, tag};

/// What a batch of look-ups gives where there is no such key. No value that can be inserted.
pub const NONE: u32 = u32::MAX;

/// The largest segment: what an insertion moves at worst, plus one bucket.
pub const SEGMENT_BYTES: usize = 64 << 10;

/// Places of the directory for each segment, at most; two or four where hashes are as they
/// should be.
const SPARSE: usize = 64;

/// A segment, as the directory names it.
#[derive(Clone, Copy)]
struct Place {
    view: View,
    segment: u32,
}

/// A table of keys of one size.
pub struct Exact<H = KeyHasher> {
    shape: Shape,
    hasher: H,
    /// For each beginning of a hash, `depth` bits long, its segment. Views are up to date whenever
    /// nobody holds the table exclusively.
    directory: Vec<Place>,
    depth: u32,
    segments: Vec<Segment>,
    len: usize,
}

impl Exact {
    /// An empty table for keys of so many bytes, with secrets of its own.
    pub fn new(key_bytes: usize) -> Self {
        Self::with_hasher(key_bytes, KeyHasher::random(key_bytes))
    }
}

impl<H: HashKey> Exact<H> {
    /// An empty table with a hash function of the caller's.
    pub fn with_hasher(key_bytes: usize, hasher: H) -> Self {
        let shape = Shape::new(key_bytes);
        let segment = Segment::new(&shape, 0, 1);
        let view = segment.view();
        Self {
            shape,
            hasher,
            directory: vec![Place { view, segment: 0 }],
            depth: 0,
            segments: vec![segment],
            len: 0,
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of each key.
    pub fn key_bytes(&self) -> usize {
        self.shape.key_bytes
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let segments = self.segments.iter().map(Segment::memory_bytes);
        segments.sum::<usize>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.directory.capacity() * size_of::<Place>()
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> Place {
        // In two steps, because at depth 0 all 64 bits go.
        let index = (hash >> 1 >> (63 - self.depth)) as usize;
        debug_assert!(index < self.directory.len());
        // SAFETY: `depth` bits are left, and the directory has 2^depth places.
        unsafe { *self.directory.get_unchecked(index) }
    }

    /// The value of a key. A key of another size than the table's is not there.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<u32> {
        if key.len() != self.shape.key_bytes {
            return None;
        }
        with_words!(key.len(), new => self.get_key(key, new(key)))
    }

    #[inline(always)]
    fn get_key(&self, bytes: &[u8], key: impl Key) -> Option<u32> {
        let hash = key.hash(&self.hasher);
        let view = self.place(hash).view;
        let first = view.first(hash);
        // SAFETY: views in the directory are of segments that are there, whose buckets are of the
        // table's shape, and the table is borrowed; `first` and `second` are less than the number
        // of buckets.
        unsafe {
            let bucket = view.look(&self.shape, first);
            match bucket.find(&self.shape, tag(hash), key) {
                Some(value) => Some(value),
                None if bucket.overflowed() => {
                    let second = view.look(&self.shape, view.second(hash, first));
                    let found = second.find(&self.shape, tag(hash), key);
                    found.or_else(|| self.stashed(hash, bytes))
                }
                None => None,
            }
        }
    }

    /// The value of a key that is in neither of its buckets.
    #[cold]
    fn stashed(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.segments[self.place(hash).segment as usize].stashed(key)
    }

    /// Adds a key, or changes its value; gives the value that it had.
    ///
    /// # Panics
    /// If the key has another size than the table's, or the value is [`NONE`].
    pub fn insert(&mut self, key: &[u8], value: u32) -> Option<u32> {
        assert_eq!(key.len(), self.shape.key_bytes, "a key of the table's size");
        assert_ne!(value, NONE, "a value that can be told from none");
        let hash = hash_of(&self.hasher, key);
        let index = self.directory_of(hash);
        let segment = &mut self.segments[index];
        let old = segment.replace(&self.shape, hash, key, value);
        if old.is_none() {
            self.add(hash, key, value);
            self.len += 1;
        }
        old
    }

    /// Removes a key and gives its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<u32> {
        let hash = hash_of(&self.hasher, key);
        let index = self.directory_of(hash);
        let removed = self.segments[index].remove(&self.shape, hash, key)?;
        self.len -= 1;
        Some(removed)
    }

    /// Calls `visit` for every key with its value, in no order that means anything.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], u32)) {
        let shape = &self.shape;
        self.segments
            .iter()
            .for_each(|segment| segment.for_each(shape, &mut visit));
    }

    fn directory_of(&self, hash: u64) -> usize {
        self.place(hash).segment as usize
    }

    /// Adds a key that is not there, wherever room can be found or made.
    fn add(&mut self, hash: u64, key: &[u8], value: u32) {
        loop {
            let index = self.directory_of(hash);
            let segment = &self.segments[index];
            let (buckets, keys) = (segment.buckets(), segment.len());
            let capacity = buckets * self.shape.slots;
            if keys < self.fill(capacity) {
                let segment = &mut self.segments[index];
                if segment.add(&self.shape, &self.hasher, hash, key, value) {
                    return;
                }
            }
            // Full at less than a half is not for want of room: these hashes are alike, and no
            // growth would part them.
            let alike = keys * 2 < capacity && buckets > 4;
            let whole = (buckets + 1) * self.shape.bytes() > SEGMENT_BYTES;
            if alike || whole && !self.may_split(index) {
                return self.segments[index].add_to_stash(&self.shape, hash, key, value);
            }
            if whole {
                self.split(index, hash);
            } else {
                self.grow(index, hash);
            }
        }
    }

    /// Whether a segment may be parted. Hashes that begin alike must not make a large directory for
    /// a few segments.
    fn may_split(&self, index: usize) -> bool {
        let sparse = self.directory.len() > SPARSE * self.segments.len();
        self.segments[index].depth < self.depth || !sparse
    }

    /// How many of so many slots may be in use, so that room is found in few steps.
    fn fill(&self, capacity: usize) -> usize {
        match self.shape.slots {
            3 => capacity * 88 / 100,
            _ => capacity * 92 / 100,
        }
        .max(1)
    }

    /// Gives a segment more buckets. `hash` is one that belongs to it.
    fn grow(&mut self, index: usize, hash: u64) {
        let old = &self.segments[index];
        let most = (SEGMENT_BYTES / self.shape.bytes()).max(1);
        // Small ones double, so that a table of a thousand keys is not moved ten times.
        let buckets = if old.buckets() * self.shape.bytes() < SEGMENT_BYTES / 8 {
            old.buckets() * 2
        } else {
            old.buckets() + old.buckets().div_ceil(4)
        };
        let buckets = buckets.min(most.max(old.buckets() + 1));
        let mut new = Segment::new(&self.shape, old.depth, buckets);
        old.for_each(&self.shape, |key, value| {
            place(&mut new, &self.shape, &self.hasher, key, value);
        });
        let depth = new.depth;
        self.segments[index] = new;
        self.direct(index, depth, hash);
    }

    /// Names a segment in all places for hashes that begin with the same `depth` bits as `hash`.
    fn direct(&mut self, index: usize, depth: u32, hash: u64) {
        let places = 1usize << (self.depth - depth);
        let start = (hash >> 1 >> (63 - depth)) as usize * places;
        let place = Place {
            view: self.segments[index].view(),
            segment: index as u32,
        };
        self.directory[start..start + places].fill(place);
    }

    /// Parts a segment by the next bit of the hash. `hash` is one that belongs to it.
    fn split(&mut self, index: usize, hash: u64) {
        let old = &self.segments[index];
        let depth = old.depth + 1;
        if old.depth == self.depth {
            self.directory = self
                .directory
                .iter()
                .flat_map(|place| [*place; 2])
                .collect();
            self.depth += 1;
        }
        let upper = |hash: u64| hash >> (64 - depth) & 1 != 0;
        let mut counts = [0, 0];
        old.for_each(&self.shape, |key, _| {
            counts[usize::from(upper(hash_of(&self.hasher, key)))] += 1
        });
        let most = (SEGMENT_BYTES / self.shape.bytes()).max(1);
        // Filled to seven tenths, so that neither has to grow soon.
        let room = |keys: usize| (keys * 10).div_ceil(self.shape.slots * 7).clamp(1, most);
        let mut parts = counts.map(|keys| Segment::new(&self.shape, depth, room(keys)));
        old.for_each(&self.shape, |key, value| {
            let part = &mut parts[usize::from(upper(hash_of(&self.hasher, key)))];
            place(part, &self.shape, &self.hasher, key, value);
        });
        let [lower_part, upper_part] = parts;
        self.segments[index] = lower_part;
        self.segments.push(upper_part);
        let bit = 1 << (64 - depth);
        self.direct(index, depth, hash & !bit);
        self.direct(self.segments.len() - 1, depth, hash | bit);
    }
}

/// Adds a key to a segment that is being filled.
fn place(segment: &mut Segment, shape: &Shape, hasher: &impl HashKey, key: &[u8], value: u32) {
    let hash = hash_of(hasher, key);
    if !segment.add(shape, hasher, hash, key, value) {
        segment.add_to_stash(shape, hash, key, value);
    }
}

impl<H> fmt::Debug for Exact<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exact")
            .field("key_bytes", &self.shape.key_bytes)
            .field("len", &self.len)
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}
