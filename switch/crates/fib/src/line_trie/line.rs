// SPDX-License-Identifier: Apache-2.0
//! One cache line of eight or sixteen intervals, what its slots mean, and the search in it.

/// How a line of an array is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Eight intervals: starts of 32 bits, slots of 32 bits.
    Wide,
    /// Sixteen intervals, for regions of at most 16 bits: the last 16 bits of the starts, slots of
    /// 16 bits ([`ShortSlot`]).
    Narrow,
}

/// Intervals in a wide line.
const WIDE_WAYS: usize = 8;
/// Intervals in a narrow line.
const NARROW_WAYS: usize = 16;

impl Form {
    /// Intervals in a line.
    pub(super) fn ways(self) -> usize {
        match self {
            Self::Wide => WIDE_WAYS,
            Self::Narrow => NARROW_WAYS,
        }
    }
}

/// A run of lines of one form that splits a region of keys evenly, found from the key alone: it is
/// `lines[(start + (key >> shift)) mod 2^23]`, where `start` is such that the region's first key
/// leads to the first line.
///
/// Packed into 30 bits: 23 of start, 1 of form, 6 of shift (0 to 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Array(u32);

/// Bit of the form.
pub(super) const NARROW: u32 = 1 << 6;

impl Array {
    /// Lines a trie can address.
    pub(super) const MAX_LINES: usize = 1 << 23;
    /// The lowest bit of the start.
    pub(super) const START: u32 = 7;

    /// The lines from `base` on, for a region that begins with the key `first`.
    pub(super) fn new(base: u32, shift: u32, first: u32, form: Form) -> Self {
        debug_assert!((base as usize) < Self::MAX_LINES && shift <= 32);
        let start = base.wrapping_sub((u64::from(first) >> shift) as u32);
        let form = match form {
            Form::Wide => 0,
            Form::Narrow => NARROW,
        };
        Self((start % Self::MAX_LINES as u32) << Self::START | form | shift)
    }

    pub(super) fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(super) fn is_narrow(self) -> bool {
        self.0 & NARROW != 0
    }

    pub(super) fn form(self) -> Form {
        if self.is_narrow() {
            Form::Narrow
        } else {
            Form::Wide
        }
    }

    /// The logarithm of the number of keys of a line.
    #[inline(always)]
    pub(super) fn shift(self) -> u32 {
        self.0 & 63
    }

    /// The line of a key in the region.
    #[inline(always)]
    pub(super) fn line(self, key: u32) -> usize {
        let line = (self.0 >> Self::START).wrapping_add((u64::from(key) >> self.shift()) as u32);
        (line % Self::MAX_LINES as u32) as usize
    }
}

/// What an interval leads to: the end of the search, or more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(super) struct Slot(u32);

const MORE: u32 = 1 << 31;
/// Bit of a slot that leads to the next segment.
pub(super) const NEXT: u32 = 1 << 30;

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

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The lines of a slot that is not final.
    #[inline(always)]
    pub(super) fn array(self) -> Array {
        Array(self.0 & (NEXT - 1))
    }
}

/// A slot of a narrow line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct ShortSlot(u16);

const ESCAPE: u16 = 1 << 15;

impl ShortSlot {
    /// Escapes a trie can have.
    pub(super) const MAX_ESCAPES: usize = ESCAPE as usize;

    /// A slot that ends the search, if its value is small enough.
    pub(super) fn of(slot: Slot) -> Option<Self> {
        (slot.0 < u32::from(ESCAPE)).then_some(Self(slot.0 as u16))
    }

    /// The slot that is kept in the pool as the `index`th escape.
    pub(super) fn escape(index: usize) -> Self {
        debug_assert!(index < Self::MAX_ESCAPES);
        Self(ESCAPE | index as u16)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn bits(self) -> u16 {
        self.0
    }

    #[inline(always)]
    fn is_final(self) -> bool {
        self.0 & ESCAPE == 0
    }

    /// Which escape this is, if it is one.
    #[inline(always)]
    pub(super) fn escaped(self) -> Option<usize> {
        (!self.is_final()).then_some(usize::from(self.0 & !ESCAPE))
    }

    /// A final slot as in a wide line.
    #[inline(always)]
    pub(super) fn widened(self) -> Slot {
        Slot(u32::from(self.0))
    }
}

/// Makes unsigned order into signed order, which is what vector compares know.
#[inline(always)]
pub(super) fn bias(key: u32) -> i32 {
    (key ^ 1 << 31) as i32
}

/// The same for the keys of a narrow line.
#[inline(always)]
pub(super) fn short_bias(key: u32) -> i16 {
    (key as u16 ^ 1 << 15) as i16
}

/// A cache line, of whatever form.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line([u64; 8]);

/// Eight intervals that cover the line's region: the starts in descending order, biased, and what
/// each leads to. With fewer, the last one is repeated in front; so the number of starts beyond a
/// key is the index of its interval, whatever the number of intervals.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Wide {
    pub(super) starts: [i32; WIDE_WAYS],
    pub(super) slots: [Slot; WIDE_WAYS],
}

/// Sixteen intervals, likewise.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Narrow {
    pub(super) starts: [i16; NARROW_WAYS],
    pub(super) slots: [ShortSlot; NARROW_WAYS],
}

const _: () = assert!(size_of::<Line>() == size_of::<Wide>());
const _: () = assert!(size_of::<Line>() == size_of::<Narrow>());

impl Line {
    pub(super) const EMPTY: Self = Self([0; 8]);

    /// The line as a wide one.
    #[inline(always)]
    pub(super) fn wide(&self) -> &Wide {
        // SAFETY: size and alignment are the same, and any bits are a wide line.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// The line as a narrow one.
    #[inline(always)]
    pub(super) fn narrow(&self) -> &Narrow {
        // SAFETY: size and alignment are the same, and any bits are a narrow line.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

impl From<Wide> for Line {
    fn from(wide: Wide) -> Self {
        // SAFETY: a wide line has no padding, and any bits are a line.
        Self(unsafe { std::mem::transmute::<Wide, [u64; 8]>(wide) })
    }
}

impl From<Narrow> for Line {
    fn from(narrow: Narrow) -> Self {
        // SAFETY: a narrow line has no padding, and any bits are a line.
        Self(unsafe { std::mem::transmute::<Narrow, [u64; 8]>(narrow) })
    }
}

/// What the `i`th place of a line of `ways` holds, given its one to `ways` intervals in ascending
/// order.
fn place<T: Copy>(intervals: &[T], ways: usize, i: usize) -> T {
    debug_assert!((1..=ways).contains(&intervals.len()));
    intervals[(ways - 1 - i).min(intervals.len() - 1)]
}

impl Wide {
    /// A line of one to eight intervals in ascending order.
    pub(super) fn new(intervals: &[(u32, Slot)]) -> Self {
        let place = |i| place(intervals, WIDE_WAYS, i);
        Self {
            starts: std::array::from_fn(|i| bias(place(i).0)),
            slots: std::array::from_fn(|i| place(i).1),
        }
    }

    /// The intervals in ascending order, without repetitions.
    pub(super) fn intervals(&self) -> impl Iterator<Item = (u32, Slot)> + '_ {
        (0..WIDE_WAYS).rev().filter_map(|i| {
            let repeated = i + 1 < WIDE_WAYS && self.starts[i] == self.starts[i + 1];
            (!repeated).then(|| (self.starts[i] as u32 ^ 1 << 31, self.slots[i]))
        })
    }

    /// The index of the interval that holds a key not below the last start.
    #[inline(always)]
    pub(super) fn select(&self, key: u32) -> usize {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            // SAFETY: SSE2 is part of x86-64; the loads are of 16 bytes each, aligned since the
            // line is aligned to 64 and they lie at 0 and 16, within `starts`.
            unsafe {
                let starts = self.starts.as_ptr().cast::<__m128i>();
                let key = _mm_set1_epi32(bias(key));
                let near = _mm_cmpgt_epi32(_mm_load_si128(starts), key);
                let far = _mm_cmpgt_epi32(_mm_load_si128(starts.add(1)), key);
                let beyond = _mm_packs_epi16(_mm_packs_epi32(near, far), _mm_setzero_si128());
                (_mm_movemask_epi8(beyond) as u32).trailing_ones() as usize
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.starts
            .iter()
            .map(|&start| usize::from(start > bias(key)))
            .sum()
    }
}

impl Narrow {
    /// A line of one to sixteen intervals in ascending order.
    pub(super) fn new(intervals: &[(u32, ShortSlot)]) -> Self {
        let place = |i| place(intervals, NARROW_WAYS, i);
        Self {
            starts: std::array::from_fn(|i| short_bias(place(i).0)),
            slots: std::array::from_fn(|i| place(i).1),
        }
    }

    /// The intervals in ascending order, without repetitions; the last 16 bits of their starts.
    pub(super) fn intervals(&self) -> impl Iterator<Item = (u16, ShortSlot)> + '_ {
        (0..NARROW_WAYS).rev().filter_map(|i| {
            let repeated = i + 1 < NARROW_WAYS && self.starts[i] == self.starts[i + 1];
            (!repeated).then(|| (self.starts[i] as u16 ^ 1 << 15, self.slots[i]))
        })
    }

    /// The index of the interval that holds a key not below the last start.
    #[inline(always)]
    pub(super) fn select(&self, key: u32) -> usize {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            // SAFETY: as in a wide line.
            unsafe {
                let starts = self.starts.as_ptr().cast::<__m128i>();
                let key = _mm_set1_epi16(short_bias(key));
                let near = _mm_cmpgt_epi16(_mm_load_si128(starts), key);
                let far = _mm_cmpgt_epi16(_mm_load_si128(starts.add(1)), key);
                let beyond = _mm_movemask_epi8(_mm_packs_epi16(near, far));
                (beyond as u32).trailing_ones() as usize
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.starts
            .iter()
            .map(|&start| usize::from(start > short_bias(key)))
            .sum()
    }
}
