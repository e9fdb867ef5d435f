// SPDX-License-Identifier: Apache-2.0
//! One cache line of eight intervals, what its slots mean, and the search in it.

/// Intervals in a line.
pub(super) const WAYS: usize = 8;

/// A run of lines that splits a region of keys evenly, found from the key alone: it is
/// `lines[(start + (key >> shift)) mod 2^24]`, where `start` is such that the region's first key
/// leads to the first line.
///
/// Packed into 30 bits: 24 of start, 6 of shift (0 to 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Array(u32);

impl Array {
    /// Lines a trie can address.
    pub(super) const MAX_LINES: usize = 1 << 24;

    /// The lines from `base` on, for a region that begins with the key `first`.
    pub(super) fn new(base: u32, shift: u32, first: u32) -> Self {
        debug_assert!((base as usize) < Self::MAX_LINES && shift <= 32);
        let start = base.wrapping_sub((u64::from(first) >> shift) as u32);
        Self((start % Self::MAX_LINES as u32) << 6 | shift)
    }

    pub(super) fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The logarithm of the number of keys of a line.
    #[inline(always)]
    pub(super) fn shift(self) -> u32 {
        self.0 & 63
    }

    /// The line of a key in the region.
    #[inline(always)]
    pub(super) fn line(self, key: u32) -> usize {
        let line = (self.0 >> 6).wrapping_add((u64::from(key) >> self.shift()) as u32);
        (line % Self::MAX_LINES as u32) as usize
    }
}

/// What an interval leads to: the end of the search, or more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(super) struct Slot(u32);

const MORE: u32 = 1 << 31;
const NEXT: u32 = 1 << 30;

impl Slot {
    /// No route.
    pub(super) const NONE: Self = Self(0);
    /// Values must be below this.
    pub(super) const MAX_VALUE: u32 = MORE - 1;

    /// The end of the search. A value that is too large makes no sense here: see `MAX_VALUE`.
    pub(super) fn of_value(value: u32) -> Self {
        Self(value.wrapping_add(1) & !MORE)
    }

    /// Lines that split the interval further.
    pub(super) fn child(array: Array) -> Self {
        Self(MORE | array.0)
    }

    /// Lines over the next 32 bits of the address; the interval is a single key.
    pub(super) fn next(array: Array) -> Self {
        Self(MORE | NEXT | array.0)
    }

    #[inline(always)]
    pub(super) fn is_final(self) -> bool {
        self.0 & MORE == 0
    }

    #[inline(always)]
    pub(super) fn is_next(self) -> bool {
        self.0 & NEXT != 0
    }

    /// The result of a final slot; all ones (`u32::MAX`) for no route.
    #[inline(always)]
    pub(super) fn result(self) -> u32 {
        self.0.wrapping_sub(1)
    }

    /// The lines of a slot that is not final.
    #[inline(always)]
    pub(super) fn array(self) -> Array {
        Array(self.0 & (NEXT - 1))
    }
}

/// Makes unsigned order into signed order, which is what vector compares know.
#[inline(always)]
pub(super) fn bias(key: u32) -> i32 {
    (key ^ 1 << 31) as i32
}

/// Eight intervals that cover the line's region: the starts in descending order, biased, and what
/// each leads to. With fewer, the last one is repeated in front; so the number of starts beyond a
/// key is the index of its interval, whatever the number of intervals.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line {
    pub(super) starts: [i32; WAYS],
    pub(super) slots: [Slot; WAYS],
}

impl Line {
    pub(super) const EMPTY: Self = Self {
        starts: [i32::MIN; WAYS],
        slots: [Slot::NONE; WAYS],
    };

    /// A line of one to eight intervals in ascending order.
    pub(super) fn new(intervals: &[(u32, Slot)]) -> Self {
        debug_assert!((1..=WAYS).contains(&intervals.len()));
        let mut line = Self::EMPTY;
        for (i, (start, slot)) in line.starts.iter_mut().zip(&mut line.slots).enumerate() {
            let (from, leads_to) = intervals[(WAYS - 1 - i).min(intervals.len() - 1)];
            (*start, *slot) = (bias(from), leads_to);
        }
        line
    }

    /// The intervals in ascending order, without repetitions.
    pub(super) fn intervals(&self) -> impl Iterator<Item = (u32, Slot)> + '_ {
        (0..WAYS).rev().filter_map(|i| {
            let repeated = i + 1 < WAYS && self.starts[i] == self.starts[i + 1];
            (!repeated).then(|| (self.starts[i] as u32 ^ 1 << 31, self.slots[i]))
        })
    }

    /// The index of the interval that holds a (biased) key not below the last start.
    #[inline(always)]
    pub(super) fn select(&self, key: i32) -> usize {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            // SAFETY: SSE2 is part of x86-64; the loads are of 16 bytes each, aligned since the
            // line is aligned to 64 and they lie at 0 and 16, within `starts`.
            unsafe {
                let starts = self.starts.as_ptr().cast::<__m128i>();
                let key = _mm_set1_epi32(key);
                let near = _mm_cmpgt_epi32(_mm_load_si128(starts), key);
                let far = _mm_cmpgt_epi32(_mm_load_si128(starts.add(1)), key);
                let beyond = _mm_packs_epi16(_mm_packs_epi32(near, far), _mm_setzero_si128());
                (_mm_movemask_epi8(beyond) as u32).trailing_ones() as usize
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.starts
            .iter()
            .map(|&start| usize::from(start > key))
            .sum()
    }
}
