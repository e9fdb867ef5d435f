// SPDX-License-Identifier: Apache-2.0
//! Exact match: a map from byte strings of one size to `u32`.
//!
//! The map is designed for tables of millions of entries that are looked up far more often than they change. The two
//! costs that matter most are the number of cache lines per lookup and the longest time of an insertion:
//!
//! * **One memory access.** Tags, values and keys of a bucket are contiguous in whole cache lines, with tags and values
//!   in the first line. So one memory access yields the value. If a tag matches, the key nearly always matches too. So
//!   a processor that predicts the match continues with the value while the key is compared.
//!   [`lookup_batch`](Exact::lookup_batch) overlaps the accesses of many lookups. Callers that have other work
//!   meanwhile can [`prefetch`](Exact::prefetch) a key's bucket. A key is in one of two buckets, nearly always in the
//!   first. Each bucket counts its displaced keys: keys whose first bucket it is, but which are stored in their second
//!   bucket. If a bucket has none, a lookup of an absent key also costs one access.
//! * **No pause.** The table consists of segments of at most [`SEGMENT_BYTES`]. A directory, indexed by some bits of
//!   the hash, finds the segment (extendible hashing: Fagin, Nievergelt, Pippenger and Strong, 1979). A small table is
//!   a single segment, which needs no directory. It doubles until it has four times [`SEGMENT_BYTES`], and is then
//!   split into eight segments, once. From then on a full segment is split in two. So no insertion moves more than the
//!   keys of one segment.
//! * **Huge pages.** The segments of a large table are in one range of address space, in huge pages.
//! * **Load factor.** A segment is split only when more than 90 % of its slots are used. So a table is between 45 % and
//!   95 % full.
//! * **Collision attacks.** Each table's hash function has its own secrets ([`KeyHasher`]). If keys collide
//!   nevertheless, results stay correct, and only lookups of these keys become slower.
//!
//! Invariants: lookups of keys of the right size neither allocate nor panic. No entry is lost, even if all hashes are
//! equal. A table never shrinks.
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
mod grow;
mod hash;
mod key;
mod lanes;
mod memory;
mod segment;
#[cfg(target_arch = "x86_64")]
mod wide;

use std::fmt;

pub use hash::{HashKey, KeyHasher};
pub use memory::SEGMENT_BYTES;

use bucket::{BucketRef, Shape, Tag};
use key::{Key, Words, hash_of, with_words};
use memory::SegmentMemory;
use segment::{BucketOffsets, FIRST_SEGMENT_BIT, Segment, SegmentView};

/// Result of a batch lookup for a key that is not in the table. This value cannot be inserted.
pub const NONE: u32 = u32::MAX;

/// Maximum number of segments of a table that is assumed to stay in the caches.
const CACHED_SEGMENTS: usize = 128;

/// A table of keys of one size.
pub struct Exact<H = KeyHasher> {
    shape: Shape,
    hasher: H,
    /// References to the segments, for lookups. The position of a hash's segment is the number that is formed by the
    /// first `depth` segment bits of the hash. Invariant: the directory is up to date whenever the table is not
    /// borrowed exclusively.
    directory: Vec<SegmentView>,
    /// Index in `segments` of the segment at each position of the directory.
    owners: Vec<u32>,
    depth: u32,
    /// Last position of the directory. This number is also a mask of the low `depth` bits.
    last: usize,
    /// First element of the directory. At depth 0 it is the only element.
    only: SegmentView,
    /// Computes the bucket offsets of a hash in a segment. All segments have the same size.
    offsets: BucketOffsets,
    segments: Vec<Segment>,
    /// Memory of the segments.
    memory: SegmentMemory,
    len: usize,
    /// Number of keys that fit into no bucket and are in stashes.
    stashed: usize,
    /// SIMD kernel that hashes many keys, if the processor supports it.
    #[cfg(target_arch = "x86_64")]
    wide: Option<wide::WideHasher>,
}

impl Exact {
    /// Creates an empty table for keys of `key_bytes` bytes, with its own hash secrets.
    pub fn new(key_bytes: usize) -> Self {
        Self::with_hasher(key_bytes, KeyHasher::random(key_bytes))
    }
}

impl<H: HashKey> Exact<H> {
    /// Creates an empty table with the caller's hash function.
    pub fn with_hasher(key_bytes: usize, hasher: H) -> Self {
        let shape = Shape::new(key_bytes);
        let mut memory = SegmentMemory::default();
        let segment = Segment::new(&shape, 0, memory.lines(shape.lines, 0, 1));
        Self {
            #[cfg(target_arch = "x86_64")]
            wide: hasher
                .known()
                .and_then(|_| wide::WideHasher::new(key_bytes)),
            shape,
            hasher,
            directory: vec![segment.view()],
            owners: vec![0],
            depth: 0,
            last: 0,
            only: segment.view(),
            offsets: segment.offsets(),
            segments: vec![segment],
            memory,
            len: 0,
            stashed: 0,
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of a key in bytes.
    pub fn key_bytes(&self) -> usize {
        self.shape.key_bytes
    }

    /// Returns the memory of the table in bytes.
    pub fn memory_bytes(&self) -> usize {
        let segments = self.segments.iter().map(Segment::memory_bytes);
        segments.sum::<usize>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.directory.capacity() * size_of::<SegmentView>()
            + self.owners.capacity() * size_of::<u32>()
            + self.memory.bytes()
    }

    /// Returns the directory index of the segment that holds `hash`.
    #[inline(always)]
    fn position(&self, hash: u64) -> usize {
        hash.rotate_right(FIRST_SEGMENT_BIT) as usize & self.last
    }

    /// Returns the segment of a hash. In a table with one segment, a processor that predicts the branch knows the
    /// segment before it has computed the hash.
    #[inline(always)]
    fn view(&self, hash: u64) -> SegmentView {
        if self.depth == 0 {
            return self.only;
        }
        let position = self.position(hash);
        debug_assert!(position < self.directory.len());
        // SAFETY: the directory has 2^depth elements.
        unsafe { *self.directory.get_unchecked(position) }
    }

    /// Returns the first bucket of a hash.
    #[inline(always)]
    fn first(&self, hash: u64) -> BucketRef<'_> {
        // SAFETY: the directory's views refer to existing segments, which have buckets of the table's shape at the
        // offsets that `self.offsets` computes. The table is borrowed.
        unsafe { self.view(hash).bucket(self.offsets.first(hash)) }
    }

    /// Returns the second bucket of a hash.
    #[inline(always)]
    fn second(&self, hash: u64) -> BucketRef<'_> {
        let first = self.offsets.first(hash);
        // SAFETY: as for `first`.
        unsafe { self.view(hash).bucket(self.offsets.second(hash, first)) }
    }

    /// Returns the value of a key. Returns `None` if the table does not have the key, or if the key has a wrong size.
    #[inline(always)]
    pub fn get(&self, key: &[u8]) -> Option<u32> {
        if key.len() != self.shape.key_bytes {
            return None;
        }
        with_words!(key.len(), new => {
            let words = new(key);
            self.find(words.hash(&self.hasher), key, words)
        })
    }

    /// Like [`get`](Self::get), but with fewer instructions because it prefetches nothing. For a table that is in the
    /// caches.
    #[inline(always)]
    pub fn get_cached(&self, key: &[u8]) -> Option<u32> {
        if key.len() != self.shape.key_bytes {
            return None;
        }
        with_words!(key.len(), new => {
            let words = new(key);
            self.find_fetched(words.hash(&self.hasher), key, words)
        })
    }

    /// Like [`get_cached`](Self::get_cached), for a key that was just stored as `W` whole words, the last one padded
    /// with zeros. The last eight bytes of a key usually lie in two of these words. The processor cannot forward two
    /// stores to one load, so this lookup loads the words as they were stored. Returns `None` if keys take another
    /// number of words.
    #[inline(always)]
    pub fn get_stored<const W: usize>(&self, words: &[[u8; 8]; W]) -> Option<u32> {
        let (bytes, key) = self.stored(words)?;
        self.find_fetched(key.hash(&self.hasher), bytes, key)
    }

    /// Returns a key in both forms: bytes, and words to hash and compare. Returns `None` if keys take another number of
    /// words.
    #[inline(always)]
    fn stored<'k, const W: usize>(&self, words: &'k [[u8; 8]; W]) -> Option<(&'k [u8], Words<W>)> {
        let size = self.shape.key_bytes;
        if size.div_ceil(8).max(1) != W {
            return None;
        }
        let bytes = words.as_flattened().get(..size)?;
        Some((bytes, Words::from_padded(words, size)))
    }

    /// Returns the hash of a key, for [`prefetch`](Self::prefetch) and [`get_hashed`](Self::get_hashed).
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash_of(&self.hasher, key)
    }

    /// Prefetches the cache lines that the lookup of a key with this hash reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.first(hash).prefetch(&self.shape);
    }

    /// Like [`get`](Self::get), with a hash that the caller has computed. If the hash is wrong, the key may not be
    /// found.
    #[inline]
    pub fn get_hashed(&self, hash: u64, key: &[u8]) -> Option<u32> {
        if key.len() != self.shape.key_bytes {
            return None;
        }
        with_words!(key.len(), new => self.find_fetched(hash, key, new(key)))
    }

    /// Returns the value of a key, and yields while cache lines are fetched. Calls `prefetch` with the address of each
    /// line, and then `pause`, which should return when the lines have arrived.
    #[inline(always)]
    pub fn get_waiting(
        &self,
        key: &[u8],
        prefetch: impl Fn(*const u8),
        pause: impl Fn(),
    ) -> Option<u32> {
        if key.len() != self.shape.key_bytes {
            return None;
        }
        with_words!(key.len(), new => {
            let words = new(key);
            self.find_waiting(words.hash(&self.hasher), key, words, prefetch, pause)
        })
    }

    /// Like [`get_waiting`](Self::get_waiting), for a key that was stored as described for
    /// [`get_stored`](Self::get_stored).
    #[inline(always)]
    pub fn get_stored_waiting<const W: usize>(
        &self,
        words: &[[u8; 8]; W],
        prefetch: impl Fn(*const u8),
        pause: impl Fn(),
    ) -> Option<u32> {
        let (bytes, key) = self.stored(words)?;
        self.find_waiting(key.hash(&self.hasher), bytes, key, prefetch, pause)
    }

    /// See [`get_waiting`](Self::get_waiting).
    #[inline(always)]
    fn find_waiting(
        &self,
        hash: u64,
        bytes: &[u8],
        key: impl Key,
        prefetch: impl Fn(*const u8),
        pause: impl Fn(),
    ) -> Option<u32> {
        let first = self.first(hash);
        first.for_each_line(&self.shape, &prefetch);
        pause();
        // SAFETY: the table's buckets are of its shape.
        let found = unsafe { first.find(&self.shape, Tag::of(hash), key) };
        // SAFETY: the bucket is one of the table.
        if found.is_some() || !unsafe { first.header() }.overflowed() {
            return found;
        }
        self.second(hash).for_each_line(&self.shape, &prefetch);
        pause();
        self.find_second(hash, bytes)
    }

    /// Returns the value of a key. `bytes` are the bytes of `key`.
    #[inline(always)]
    fn find(&self, hash: u64, bytes: &[u8], key: impl Key) -> Option<u32> {
        if !self.is_cached() {
            // Prefetches the other lines that may hold the key: the last line of the first bucket, and the first line
            // of the second bucket.
            if self.shape.lines == 2 {
                self.first(hash).prefetch_last(&self.shape);
            }
            self.second(hash).prefetch_first();
        }
        self.find_fetched(hash, bytes, key)
    }

    /// Returns the value of a key whose first bucket has been prefetched.
    #[inline(always)]
    fn find_fetched(&self, hash: u64, bytes: &[u8], key: impl Key) -> Option<u32> {
        // SAFETY: the table's buckets are of its shape.
        match unsafe { self.first(hash).find(&self.shape, Tag::of(hash), key) } {
            Some(value) => Some(value),
            None => self.find_elsewhere(hash, bytes),
        }
    }

    /// Returns the value of a key that is not in its first bucket.
    #[inline(always)]
    fn find_elsewhere(&self, hash: u64, bytes: &[u8]) -> Option<u32> {
        // SAFETY: the bucket is one of the table.
        if unsafe { self.first(hash).header() }.overflowed() {
            self.find_second(hash, bytes)
        } else {
            None
        }
    }

    /// Returns the value of a key that is not in its first bucket, after this bucket has overflowed. Computes the key's
    /// words again. So the common path need not keep them in registers.
    #[inline(never)]
    fn find_second(&self, hash: u64, bytes: &[u8]) -> Option<u32> {
        match with_words!(bytes.len(), new => self.in_second(hash, new(bytes))) {
            None if self.stashed != 0 => self.stashed(hash, bytes),
            found => found,
        }
    }

    /// Returns the value of a key in its second bucket.
    #[inline(always)]
    fn in_second(&self, hash: u64, key: impl Key) -> Option<u32> {
        // SAFETY: the table's buckets are of its shape.
        unsafe { self.second(hash).find(&self.shape, Tag::of(hash), key) }
    }

    /// Returns whether the table stays in the caches under load.
    #[inline(always)]
    fn is_cached(&self) -> bool {
        self.segments.len() <= CACHED_SEGMENTS
    }

    /// Returns the index of a hash's segment.
    fn owner(&self, hash: u64) -> usize {
        self.owners[self.position(hash)] as usize
    }

    /// Returns the value of a key that is in neither of its buckets, from the stash.
    #[cold]
    fn stashed(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.segments[self.owner(hash)].stashed(key)
    }

    /// Adds a key, or replaces the key's value. Returns the old value.
    ///
    /// # Panics
    /// Panics if the key's size is not the table's, or if the value is [`NONE`].
    pub fn insert(&mut self, key: &[u8], value: u32) -> Option<u32> {
        assert_eq!(key.len(), self.shape.key_bytes, "a key of the table's size");
        assert_ne!(value, NONE, "a value that can be told from none");
        let hash = hash_of(&self.hasher, key);
        let index = self.owner(hash);
        let segment = &mut self.segments[index];
        let old = segment.replace(&self.shape, hash, key, value);
        if old.is_none() {
            self.add(hash, key, value);
            self.len += 1;
        }
        old
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<u32> {
        let hash = hash_of(&self.hasher, key);
        let index = self.owner(hash);
        let segment = &mut self.segments[index];
        let stashed = segment.stash_len();
        let removed = segment.remove(&self.shape, hash, key)?;
        self.stashed -= stashed - segment.stash_len();
        self.len -= 1;
        Some(removed)
    }

    /// Calls `visit` for every key and its value, in unspecified order.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], u32)) {
        let shape = &self.shape;
        self.segments
            .iter()
            .for_each(|segment| segment.for_each(shape, &mut visit));
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
