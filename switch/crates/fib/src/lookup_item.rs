// SPDX-License-Identifier: Apache-2.0
//! Items of the lookup structures. An item is an answer, or a reference to the next level.

use crate::answer::NONE;

/// An item, stored as an unsigned number. The highest bit distinguishes a reference from an answer. An answer is stored
/// as its value plus one. So the item 0 means "no route", and subtracting one yields [`NONE`].
pub(crate) trait LookupItem:
    Copy + Eq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static
{
    /// The largest value, and the largest index of a reference.
    const LIMIT: u32;

    /// Size in bytes.
    const SIZE: usize;

    fn new(bits: u32) -> Self;
    fn bits(self) -> u32;

    /// Returns the item for a value of at most [`LIMIT`](Self::LIMIT), or for no route.
    fn answer(value: Option<u32>) -> Self {
        Self::new(value.map_or(0, |value| value + 1))
    }

    fn reference(index: u32) -> Self {
        Self::new(index | (Self::LIMIT + 2))
    }

    /// Returns the index of a reference, or `None` for an answer.
    #[inline(always)]
    fn reference_index(self) -> Option<u32> {
        let flag = Self::LIMIT + 2;
        (self.bits() & flag != 0).then(|| self.bits() & !flag)
    }

    /// Returns the value of an answer.
    #[inline(always)]
    fn value(self) -> u32 {
        self.bits().wrapping_sub(1)
    }
}

const _: () = assert!(NONE == 0u32.wrapping_sub(1));

impl LookupItem for u16 {
    const LIMIT: u32 = 0x7ffe;
    const SIZE: usize = 2;

    #[inline(always)]
    fn new(bits: u32) -> Self {
        bits as Self
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        u32::from(self)
    }
}

impl LookupItem for u32 {
    const LIMIT: u32 = 0x7fff_fffe;
    const SIZE: usize = 4;

    #[inline(always)]
    fn new(bits: u32) -> Self {
        bits
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self
    }
}
