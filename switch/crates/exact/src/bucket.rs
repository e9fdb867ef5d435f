// SPDX-License-Identifier: Apache-2.0
//! Buckets: whole cache lines that hold tags, keys and values together.
//!
//! A bucket begins with one byte that counts keys which belong here and live in their other bucket,
//! then a tag for each slot (0 for an empty one), then the slots: the key's bytes and its value. All
//! tags are compared at once; a tag that agrees by chance costs a comparison of keys in 1 of 255.

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

/// Tags are compared 16 at a time, once.
const MAX_SLOTS: usize = 14;

const VALUE: usize = size_of::<u32>();

/// How often the counter of displaced keys can be raised; from then on it stays.
const STUCK: u8 = u8::MAX;

/// How buckets are laid out for keys of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) key_bytes: usize,
    /// Cache lines of a bucket.
    pub(crate) lines: usize,
    /// Keys of a bucket.
    pub(crate) slots: usize,
    /// A bit for each slot.
    mask: u32,
}

impl Shape {
    /// The fewest lines with at least three slots and at most a fifth of waste.
    pub(crate) fn new(key_bytes: usize) -> Self {
        let slot = key_bytes + VALUE + 1;
        let of = |lines: usize| {
            let slots = ((lines * LINE - 1) / slot).min(MAX_SLOTS);
            Self {
                key_bytes,
                lines,
                slots,
                mask: (1 << slots) - 1,
            }
        };
        let enough = |shape: &Self| {
            let used = shape.slots * slot;
            shape.slots == MAX_SLOTS || shape.slots >= 3 && used * 5 >= shape.lines * LINE * 4
        };
        // Ten lines more than three slots need waste less than a fifth in any case.
        let most = 3 * slot / LINE + 10;
        (1..most).map(of).find(enough).unwrap_or_else(|| of(most))
    }

    /// Bytes of a bucket.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.lines * LINE
    }

    /// Where a slot's key begins in a bucket.
    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> usize {
        1 + self.slots + slot * (self.key_bytes + VALUE)
    }
}

/// Lines as bytes.
#[inline]
pub(crate) fn bytes(lines: &[Line]) -> &[u8] {
    // SAFETY: a `Line` is 64 bytes without padding (`repr(C)` around an array of bytes, and its size
    // is its alignment), so as many lines are 64 times as many initialised bytes; the borrow is kept.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// Lines as bytes, to be changed.
#[inline]
pub(crate) fn bytes_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: as for `bytes`; any bytes make a valid `Line`, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}

/// Moves what is in a slot to another one, both given as bucket and slot.
pub(crate) fn move_slot(
    shape: &Shape,
    lines: &mut [Line],
    (from, slot): (usize, usize),
    (to, vacant): (usize, usize),
) {
    let bytes = bytes_mut(lines);
    let (from, to) = (from * shape.bytes(), to * shape.bytes());
    let start = from + shape.slot(slot);
    let entry = start..start + shape.key_bytes + VALUE;
    bytes.copy_within(entry, to + shape.slot(vacant));
    bytes[to + 1 + vacant] = std::mem::take(&mut bytes[from + 1 + slot]);
}

/// A bucket as look-ups see it: without bounds to check.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Look<'a> {
    start: *const u8,
    bucket: PhantomData<&'a [Line]>,
}

impl<'a> Look<'a> {
    /// A bucket that is not there.
    pub(crate) const NOWHERE: Self = Self {
        start: std::ptr::null(),
        bucket: PhantomData,
    };

    /// The bucket that begins with this line.
    ///
    /// # Safety
    /// There are as many lines from `first` on as buckets of the shape have that `self` is used
    /// with, and nobody writes them for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(first: *const Line) -> Self {
        Self {
            start: first.cast(),
            bucket: PhantomData,
        }
    }

    /// Its first byte.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn start(self) -> *const u8 {
        self.start
    }

    /// The value that begins at a byte.
    ///
    /// # Safety
    /// Four bytes from there on are the bucket's.
    #[inline(always)]
    pub(crate) unsafe fn value(self, at: usize) -> u32 {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.start.add(at).cast::<[u8; VALUE]>().read_unaligned() };
        u32::from_le_bytes(bytes)
    }

    /// A bit for each slot with this tag.
    ///
    /// # Safety
    /// The bucket is of this shape, and is somewhere.
    #[inline(always)]
    pub(crate) unsafe fn candidates(self, shape: &Shape, tag: u8) -> u32 {
        // SAFETY: a bucket has at least one line, so 16 bytes behind the first.
        let tags = unsafe { &*self.start.add(1).cast::<[u8; 16]>() };
        equal_bytes(tags, tag) & shape.mask
    }

    /// Whether a slot holds a key, and the slot's value.
    ///
    /// # Safety
    /// The bucket is of this shape, and is somewhere; it has the slot.
    #[inline(always)]
    pub(crate) unsafe fn entry(self, shape: &Shape, slot: u32, key: impl Key) -> (bool, u32) {
        // SAFETY: a slot of the shape lies within the bucket with its key and value.
        unsafe {
            let start = shape.slot(slot as usize);
            let known = std::slice::from_raw_parts(self.start.add(start), shape.key_bytes);
            (key.is(known), self.value(start + shape.key_bytes))
        }
    }

    /// The value of a key.
    ///
    /// # Safety
    /// The bucket is of this shape, and is somewhere.
    #[inline(always)]
    pub(crate) unsafe fn find(self, shape: &Shape, tag: u8, key: impl Key) -> Option<u32> {
        // SAFETY: the caller's promise; `candidates` gives slots that the bucket has.
        unsafe {
            let mut candidates = self.candidates(shape, tag);
            while candidates != 0 {
                let (is, value) = self.entry(shape, candidates.trailing_zeros(), key);
                if is {
                    return Some(value);
                }
                candidates &= candidates - 1;
            }
        }
        None
    }

    /// Whether keys that belong here may be in their other bucket.
    ///
    /// # Safety
    /// The bucket is somewhere.
    #[inline(always)]
    pub(crate) unsafe fn overflowed(self) -> bool {
        // SAFETY: a bucket has a first byte.
        unsafe { *self.start != 0 }
    }

    /// Asks for the bucket's lines ahead of their use.
    #[inline(always)]
    pub(crate) fn prefetch(self, shape: &Shape) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let fetch = |line: usize| {
                let line = self.start.wrapping_add(line * LINE).cast();
                // SAFETY: SSE is part of x86_64, and a prefetch has no effect that a program could
                // see, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            };
            fetch(0);
            if shape.lines > 1 {
                fetch(1);
                for line in 2..shape.lines {
                    fetch(line);
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = shape;
    }
}

/// A bucket that is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Bucket<'a> {
    shape: &'a Shape,
    bytes: &'a [u8],
}

impl<'a> Bucket<'a> {
    /// `bytes` are the bucket's: [`Shape::bytes`] of them.
    #[inline]
    pub(crate) fn new(shape: &'a Shape, bytes: &'a [u8]) -> Self {
        Self { shape, bytes }
    }

    /// Whether keys that belong here may be in their other bucket.
    #[inline]
    pub(crate) fn overflowed(&self) -> bool {
        self.bytes[0] != 0
    }

    /// The slot that holds a key, and its value.
    #[inline]
    pub(crate) fn find(&self, tag: u8, key: impl Key) -> Option<(usize, u32)> {
        let mut candidates = self.equal_tags(tag);
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            let (known, value) = self.entry(slot);
            if key.is(known) {
                return Some((slot, value));
            }
        }
        None
    }

    /// An empty slot.
    #[inline]
    pub(crate) fn vacant(&self) -> Option<usize> {
        let empty = self.equal_tags(0);
        (empty != 0).then(|| empty.trailing_zeros() as usize)
    }

    /// The key and the value of a slot in use.
    #[inline]
    pub(crate) fn entry(self, slot: usize) -> (&'a [u8], u32) {
        let start = self.shape.slot(slot);
        let entry = &self.bytes[start..start + self.shape.key_bytes + VALUE];
        let (key, value) = entry.split_at(entry.len() - VALUE);
        let value = value.first_chunk().expect("a value has four bytes");
        (key, u32::from_le_bytes(*value))
    }

    /// Every slot in use, with its key and value.
    pub(crate) fn entries(self) -> impl Iterator<Item = (usize, &'a [u8], u32)> {
        let used = (0..self.shape.slots).filter(move |slot| self.bytes[1 + slot] != 0);
        used.map(move |slot| {
            let (key, value) = self.entry(slot);
            (slot, key, value)
        })
    }

    /// A bit for each slot with this tag.
    #[inline]
    fn equal_tags(&self, tag: u8) -> u32 {
        let tags: &[u8; 16] = self.bytes[1..].first_chunk().expect("a bucket has a line");
        equal_bytes(tags, tag) & self.shape.mask
    }
}

/// A bit for each byte that is equal to `wanted`.
#[cfg(target_arch = "x86_64")]
#[inline]
fn equal_bytes(bytes: &[u8; 16], wanted: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // SAFETY: SSE2 is part of x86_64; the load needs no alignment and stays within the 16 bytes.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        let equal = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted as i8));
        _mm_movemask_epi8(equal) as u32
    }
}

/// A bit for each byte that is equal to `wanted`.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal_bytes(bytes: &[u8; 16], wanted: u8) -> u32 {
    let bits = bytes.iter().enumerate();
    bits.fold(0, |bits, (index, byte)| {
        bits | u32::from(*byte == wanted) << index
    })
}

/// A bucket that is changed.
pub(crate) struct BucketMut<'a> {
    shape: &'a Shape,
    bytes: &'a mut [u8],
}

impl<'a> BucketMut<'a> {
    /// `bytes` are the bucket's: [`Shape::bytes`] of them.
    pub(crate) fn new(shape: &'a Shape, bytes: &'a mut [u8]) -> Self {
        Self { shape, bytes }
    }

    /// Fills a slot.
    pub(crate) fn put(&mut self, slot: usize, tag: u8, key: &[u8], value: u32) {
        self.bytes[1 + slot] = tag;
        let start = self.shape.slot(slot);
        let end = start + self.shape.key_bytes;
        self.bytes[start..end].copy_from_slice(key);
        self.bytes[end..end + VALUE].copy_from_slice(&value.to_le_bytes());
    }

    /// Changes the value of a slot.
    pub(crate) fn set(&mut self, slot: usize, value: u32) {
        let start = self.shape.slot(slot) + self.shape.key_bytes;
        self.bytes[start..start + VALUE].copy_from_slice(&value.to_le_bytes());
    }

    /// Empties a slot.
    pub(crate) fn clear(&mut self, slot: usize) {
        self.bytes[1 + slot] = 0;
    }

    /// Notes that one more key that belongs here lives in its other bucket.
    pub(crate) fn lend(&mut self) {
        self.bytes[0] = self.bytes[0].saturating_add(1);
    }

    /// Notes that one key fewer does.
    pub(crate) fn take_back(&mut self) {
        if self.bytes[0] != STUCK {
            self.bytes[0] -= 1;
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
            assert!(shape.slots >= 3 && shape.slots <= MAX_SLOTS);
            assert!(shape.slot(shape.slots) <= shape.bytes(), "{shape:?}");
            let used = shape.slots * (key_bytes + VALUE + 1);
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
        assert_eq!([13, 19, 37, 43].map(of), [(1, 3), (2, 5), (2, 3), (4, 5)]);
    }
}
