// SPDX-License-Identifier: Apache-2.0
//! Buckets. A bucket is one or more cache lines that hold tags, values and keys.
//!
//! A bucket begins with a header word. The header holds a tag for each slot. The tag of an empty slot is 0. The
//! header's last byte counts the *displaced* keys: keys that are stored in their second bucket, because this bucket,
//! their first, was full. After the header come the values of all slots, and then the keys of all slots.
//!
//! All tags are compared at once, in a register. A different key has a matching tag in about one of 250 cases, which
//! costs one comparison of keys. The value is in the first line. So a processor that predicts a match continues with
//! the value while it still fetches the key from another line.

use std::marker::PhantomData;

use crate::key::Key;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; LINE]);

impl Line {
    pub(crate) const EMPTY: Self = Self([0; LINE]);
}

pub(crate) const LINE: usize = 64;

/// Maximum number of slots of a bucket. Their tags and the count must fit into one word.
pub(crate) const MAX_SLOTS: usize = 7;

/// Size of the header word in bytes.
const HEADER: usize = size_of::<u64>();

/// Offset of the count of displaced keys in the header.
const COUNT: usize = HEADER - 1;

/// A word with the value 1 in each byte.
const ONES: u64 = u64::from_le_bytes([1; 8]);

const VALUE: usize = size_of::<u32>();

/// Maximum count of displaced keys. A count that reaches this value stays there for ever.
const STUCK: u8 = u8::MAX;

/// Layout of buckets for keys of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) key_bytes: usize,
    /// Number of cache lines in a bucket, a power of two.
    pub(crate) lines: usize,
    /// Number of slots in a bucket.
    pub(crate) slots: usize,
    /// Offset of the keys in a bucket.
    keys: usize,
    /// Mask of the highest bit of each slot's tag.
    mask: u64,
}

impl Shape {
    /// Returns the layout with the fewest lines that has at least four slots and wastes at most a fifth of the bucket.
    pub(crate) fn new(key_bytes: usize) -> Self {
        let slot = key_bytes + VALUE;
        let of = |lines: usize| {
            let slots = ((lines * LINE - HEADER) / slot).min(MAX_SLOTS);
            Self {
                key_bytes,
                lines,
                slots,
                keys: HEADER + slots * VALUE,
                mask: (ONES << 7) & ((1 << (8 * slots)) - 1),
            }
        };
        let enough = |shape: &Self| {
            let used = HEADER + shape.slots * slot;
            shape.slots == MAX_SLOTS || shape.slots > 3 && used * 5 >= shape.lines * LINE * 4
        };
        let most = (HEADER + MAX_SLOTS * slot).div_ceil(LINE);
        let lines = std::iter::successors(Some(1), |lines| Some(lines * 2));
        let shapes = lines.take_while(|lines| *lines < most).map(of);
        let last = || of(most.next_power_of_two());
        shapes.into_iter().find(enough).unwrap_or_else(last)
    }

    /// Returns the size of a bucket in bytes, a power of two.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.lines * LINE
    }

    /// Returns the offset of a slot's key in a bucket.
    #[inline(always)]
    fn key(&self, slot: usize) -> usize {
        self.keys + slot * self.key_bytes
    }
}

/// Returns the offset of a slot's value in a bucket.
#[inline(always)]
fn value_at(slot: usize) -> usize {
    HEADER + slot * VALUE
}

/// The tag of a hash, copied to every byte of a word. A tag has eight bits. The tags 0 and 1 are replaced by 2. So
/// every tag differs from an empty slot's 0 in more than the lowest bit (see [`Header::agreeing`]).
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Tag(u64);

impl Tag {
    /// Tag of an empty slot.
    pub(crate) const NONE: Self = Self(0);

    /// Bit position in a hash at which the tag begins.
    pub(crate) const FROM: u32 = 40;

    /// Smallest tag of a key.
    pub(crate) const LEAST: u8 = 2;

    #[inline(always)]
    pub(crate) fn of(hash: u64) -> Self {
        let tag = ((hash >> Self::FROM) as u8).max(Self::LEAST);
        Self(u64::from(tag) * ONES)
    }
}

/// Returns the first slot in a result of [`Header::agreeing`].
#[inline(always)]
fn first_slot(agreeing: u64) -> usize {
    (agreeing.trailing_zeros() / 8) as usize
}

/// Returns cache lines as bytes.
#[inline]
pub(crate) fn bytes(lines: &[Line]) -> &[u8] {
    // SAFETY: a `Line` is 64 bytes without padding: it is `repr(C)` around an array of bytes, and its size equals its
    // alignment. So `n` lines are `64 * n` initialised bytes. The borrow is kept.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// Returns cache lines as writable bytes.
#[inline]
pub(crate) fn bytes_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: as for `bytes`. Any bytes make a valid `Line`, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}

/// Moves an entry to another slot. A slot is given as the index of its bucket, and its index in the bucket.
pub(crate) fn move_slot(
    shape: &Shape,
    lines: &mut [Line],
    (from, slot): (usize, usize),
    (to, vacant): (usize, usize),
) {
    let bytes = bytes_mut(lines);
    let (from, to) = (from * shape.bytes(), to * shape.bytes());
    let key = from + shape.key(slot);
    bytes.copy_within(key..key + shape.key_bytes, to + shape.key(vacant));
    let known = from + value_at(slot);
    bytes.copy_within(known..known + VALUE, to + value_at(vacant));
    bytes[to + vacant] = std::mem::take(&mut bytes[from + slot]);
}

/// A reference to a bucket for lookups, without bounds checks.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct BucketRef<'a> {
    start: *const u8,
    bucket: PhantomData<&'a [Line]>,
}

impl<'a> BucketRef<'a> {
    /// Null reference, which refers to no bucket.
    pub(crate) const NULL: Self = Self {
        start: std::ptr::null(),
        bucket: PhantomData,
    };

    /// Creates a reference to the bucket that begins with this line.
    ///
    /// # Safety
    /// From `first` on there must be as many lines as a bucket has, in every shape that is used with `self`. No code
    /// may write these lines during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(first: *const Line) -> Self {
        Self {
            start: first.cast(),
            bucket: PhantomData,
        }
    }

    /// Returns the header.
    ///
    /// # Safety
    /// `self` must not be [`NULL`](Self::NULL).
    #[inline(always)]
    pub(crate) unsafe fn header(self) -> Header {
        // SAFETY: a bucket begins with eight bytes, at the start of a line.
        Header(unsafe { self.start.cast::<u64>().read() }.to_le())
    }

    /// Returns the value of a slot.
    ///
    /// # Safety
    /// `self` must not be [`NULL`](Self::NULL), and the bucket must have the slot.
    #[inline(always)]
    pub(crate) unsafe fn value(self, slot: usize) -> u32 {
        // SAFETY: a slot's four bytes lie within the bucket, at a multiple of four.
        u32::from_le(unsafe { self.start.add(value_at(slot)).cast::<u32>().read() })
    }

    /// Returns whether a slot holds a key.
    ///
    /// # Safety
    /// The bucket must exist, have this shape and have the slot.
    #[inline(always)]
    pub(crate) unsafe fn holds(self, shape: &Shape, slot: usize, key: impl Key) -> bool {
        // SAFETY: a slot's key lies within a bucket of the shape.
        let known = unsafe {
            let start = self.start.add(shape.key(slot));
            std::slice::from_raw_parts(start, shape.key_bytes)
        };
        key.is(known)
    }

    /// Returns the value of a key.
    ///
    /// # Safety
    /// The bucket must exist and have this shape.
    #[inline(always)]
    pub(crate) unsafe fn find(self, shape: &Shape, tag: Tag, key: impl Key) -> Option<u32> {
        // SAFETY: the caller guarantees that the bucket exists and has this shape. `agreeing` returns only slots of the
        // bucket.
        unsafe {
            let mut agreeing = self.header().agreeing(shape, tag);
            while agreeing != 0 {
                let slot = first_slot(agreeing);
                if self.holds(shape, slot, key) {
                    return Some(self.value(slot));
                }
                agreeing &= agreeing - 1;
            }
        }
        None
    }

    /// Prefetches the lines of a slot's key.
    ///
    /// # Safety
    /// The bucket must exist, have this shape and have the slot.
    #[inline(always)]
    pub(crate) unsafe fn prefetch_key(self, shape: &Shape, slot: usize) {
        let start = self.start.wrapping_add(shape.key(slot));
        fetch(start);
        fetch(start.wrapping_add(shape.key_bytes - 1));
    }

    /// Prefetches the bucket's first line.
    #[inline(always)]
    pub(crate) fn prefetch_first(self) {
        fetch(self.start);
    }

    /// Prefetches the bucket's last line.
    #[inline(always)]
    pub(crate) fn prefetch_last(self, shape: &Shape) {
        fetch(self.start.wrapping_add((shape.lines - 1) * LINE));
    }

    /// Calls `visit` with the address of each of the bucket's lines. A bucket has one or two lines, unless keys are long.
    #[inline(always)]
    pub(crate) fn for_each_line(self, shape: &Shape, visit: impl Fn(*const u8)) {
        visit(self.start);
        if shape.lines > 1 {
            visit(self.start.wrapping_add(LINE));
            (2..shape.lines).for_each(|line| visit(self.start.wrapping_add(line * LINE)));
        }
    }

    /// Prefetches all lines of the bucket.
    #[inline(always)]
    pub(crate) fn prefetch(self, shape: &Shape) {
        self.for_each_line(shape, fetch);
    }
}

/// Prefetches a cache line.
#[inline(always)]
fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64, and a prefetch of any address has no architectural effect.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Header word of a bucket.
#[derive(Clone, Copy)]
pub(crate) struct Header(u64);

impl Header {
    /// Returns the slots whose tags match, as the highest bits of their bytes. Only the first returned slot is certain.
    /// The subtraction may borrow from later slots, so a later slot whose tag differs in the lowest bit is returned
    /// too. An empty slot is never returned for the tag of a key.
    #[inline(always)]
    pub(crate) fn agreeing(self, shape: &Shape, tag: Tag) -> u64 {
        let differ = self.0 ^ tag.0;
        differ.wrapping_sub(ONES) & !differ & shape.mask
    }

    /// Returns the first slot with this tag.
    #[inline(always)]
    pub(crate) fn first(self, shape: &Shape, tag: Tag) -> Option<usize> {
        let agreeing = self.agreeing(shape, tag);
        (agreeing != 0).then(|| first_slot(agreeing))
    }

    /// Returns whether some keys whose first bucket this is may be stored in their second bucket.
    #[inline(always)]
    pub(crate) fn overflowed(self) -> bool {
        self.0 >> (8 * COUNT) != 0
    }
}

/// A bucket for reading, with bounds checks.
#[derive(Clone, Copy)]
pub(crate) struct Bucket<'a> {
    shape: &'a Shape,
    bytes: &'a [u8],
}

impl<'a> Bucket<'a> {
    /// Creates a bucket from its bytes. Their number must be [`Shape::bytes`].
    #[inline]
    pub(crate) fn new(shape: &'a Shape, bytes: &'a [u8]) -> Self {
        Self { shape, bytes }
    }

    #[inline]
    fn header(&self) -> Header {
        let header = self.bytes.first_chunk().expect("a bucket has a line");
        Header(u64::from_le_bytes(*header))
    }

    /// Returns whether some keys whose first bucket this is may be stored in their second bucket.
    #[inline]
    pub(crate) fn overflowed(&self) -> bool {
        self.header().overflowed()
    }

    /// Returns the slot that holds a key, and the key's value.
    #[inline]
    pub(crate) fn find(&self, tag: Tag, key: impl Key) -> Option<(usize, u32)> {
        let mut agreeing = self.header().agreeing(self.shape, tag);
        while agreeing != 0 {
            let slot = first_slot(agreeing);
            agreeing &= agreeing - 1;
            let (known, value) = self.entry(slot);
            if key.is(known) {
                return Some((slot, value));
            }
        }
        None
    }

    /// Returns an empty slot.
    #[inline]
    pub(crate) fn vacant(&self) -> Option<usize> {
        self.header().first(self.shape, Tag::NONE)
    }

    /// Returns the key and the value of a slot in use.
    #[inline]
    pub(crate) fn entry(self, slot: usize) -> (&'a [u8], u32) {
        let key = &self.bytes[self.shape.key(slot)..][..self.shape.key_bytes];
        let value = self.bytes[value_at(slot)..].first_chunk();
        let value = value.expect("a value has four bytes");
        (key, u32::from_le_bytes(*value))
    }

    /// Iterates over the slots in use, with their keys and values.
    pub(crate) fn entries(self) -> impl Iterator<Item = (usize, &'a [u8], u32)> {
        let used = (0..self.shape.slots).filter(move |slot| self.bytes[*slot] != 0);
        used.map(move |slot| {
            let (key, value) = self.entry(slot);
            (slot, key, value)
        })
    }
}

/// A bucket for writing, with bounds checks.
pub(crate) struct BucketMut<'a> {
    shape: &'a Shape,
    bytes: &'a mut [u8],
}

impl<'a> BucketMut<'a> {
    /// Creates a bucket from its bytes. Their number must be [`Shape::bytes`].
    pub(crate) fn new(shape: &'a Shape, bytes: &'a mut [u8]) -> Self {
        Self { shape, bytes }
    }

    /// Writes an entry to a slot.
    pub(crate) fn put(&mut self, slot: usize, tag: Tag, key: &[u8], value: u32) {
        self.bytes[slot] = tag.0 as u8;
        self.bytes[self.shape.key(slot)..][..key.len()].copy_from_slice(key);
        self.set(slot, value);
    }

    /// Replaces the value of a slot.
    pub(crate) fn set(&mut self, slot: usize, new: u32) {
        self.bytes[value_at(slot)..][..VALUE].copy_from_slice(&new.to_le_bytes());
    }

    /// Empties a slot.
    pub(crate) fn clear(&mut self, slot: usize) {
        self.bytes[slot] = 0;
    }

    /// Increments the count of displaced keys.
    pub(crate) fn add_displaced(&mut self) {
        self.bytes[COUNT] = self.bytes[COUNT].saturating_add(1);
    }

    /// Decrements the count of displaced keys, unless the count has reached its maximum.
    pub(crate) fn remove_displaced(&mut self) {
        if self.bytes[COUNT] != STUCK {
            self.bytes[COUNT] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_room_for_what_its_shape_says() {
        for key_bytes in 0..1000 {
            let shape = Shape::new(key_bytes);
            assert!(shape.slots > 3 && shape.slots <= MAX_SLOTS);
            assert!(shape.lines.is_power_of_two());
            let used = shape.key(shape.slots);
            assert!(used <= shape.bytes(), "{shape:?}");
            let filled = used * 5 >= shape.bytes() * 4 || shape.slots == MAX_SLOTS;
            assert!(filled, "{shape:?}");
        }
    }

    #[test]
    fn keys_of_five_tuples_lie_as_intended() {
        let of = |key_bytes| {
            let shape = Shape::new(key_bytes);
            (shape.lines, shape.slots)
        };
        assert_eq!([13, 19, 37, 43].map(of), [(2, 7), (2, 5), (4, 6), (4, 5)]);
    }

    #[test]
    fn the_first_slot_that_agrees_has_the_tag() {
        let shape = Shape::new(13);
        let header = Header(u64::from_le_bytes([0x89, 0x85, 0x84, 0, 0x85, 0, 0x89, 0]));
        let first = |tag: u64| header.first(&shape, Tag::of(tag << Tag::FROM));
        assert_eq!([0x89, 0x85, 0x84].map(first), [Some(0), Some(1), Some(2)]);
        assert_eq!([0x88, 0, 9, 0xff].map(first), [None; 4]);
        assert_eq!(header.first(&shape, Tag::NONE), Some(3));
        // After a match, a later tag that differs in one bit may be reported too. An empty slot is never reported.
        for tag in 0..=255u8 {
            let of = Tag::of(u64::from(tag) << Tag::FROM);
            let header = Header(u64::from_le_bytes([
                of.0 as u8, 0, 0, of.0 as u8, 0, 0, 0, 0,
            ]));
            assert_eq!(header.agreeing(&shape, of), 0x8000_0080, "{tag}");
        }
        assert!(!header.overflowed() && Header(1 << 56).overflowed());
    }
}
