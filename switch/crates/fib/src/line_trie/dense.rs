// SPDX-License-Identifier: Apache-2.0
//! Shortcuts into the trie: a hash table from the first 32 bits of an address to the lines of that
//! /32, for those with many routes. It is small enough for the second-level cache, and it is looked
//! at while the first 16 bits are, not after; so a dense /32 is as near as a sparse /16.
//!
//! Each place holds one /32. Of those that meet in a place, one gets the shortcut and the others
//! are looked up through the trie, which is slower and just as right.

use std::ops::RangeInclusive;

use super::line::Array;

/// Places, as a power of two.
pub(super) const PLACE_BITS: u32 = 14;

/// What spreads the places.
pub(super) const MULTIPLIER: u32 = 0x9e37_79b1;

/// The shortcuts: in each place the 32 bits (upper half) and their [`Array`] (lower half).
#[derive(Clone, Debug)]
pub(super) struct Dense {
    places: Vec<u64>,
}

/// The place of some 32 bits.
#[inline(always)]
fn place(top: u32) -> usize {
    (top.wrapping_mul(MULTIPLIER) >> (32 - PLACE_BITS)) as usize
}

/// What an empty place holds: bits that belong elsewhere.
fn empty(at: usize) -> u64 {
    u64::from(at == place(0)) << 32
}

impl Dense {
    pub(super) fn new() -> Self {
        Self {
            places: (0..1 << PLACE_BITS).map(empty).collect(),
        }
    }

    /// The lines of a /32 that has a shortcut, else `otherwise`.
    #[inline(always)]
    pub(super) fn find(&self, top: u32, otherwise: Array) -> Array {
        // SAFETY: a place has `PLACE_BITS` bits, and there are as many places.
        let held = unsafe { *self.places.get_unchecked(place(top)) };
        let found = held >> 32 == u64::from(top);
        std::hint::select_unpredictable(found, Array::of_bits(held as u32), otherwise)
    }

    /// The lines of a /32 that has a shortcut.
    pub(super) fn get(&self, top: u32) -> Option<Array> {
        let held = self.places[place(top)];
        (held >> 32 == u64::from(top)).then(|| Array::of_bits(held as u32))
    }

    /// Whether two /32s have the same place.
    pub(super) fn meet(one: u32, other: u32) -> bool {
        place(one) == place(other)
    }

    /// Whether the place of a /32 is empty or used by one of the same /16, `root`.
    pub(super) fn has_room(&self, top: u32, root: u16) -> bool {
        let at = place(top);
        self.places[at] == empty(at) || self.places[at] >> 48 == u64::from(root)
    }

    /// Sets a shortcut.
    pub(super) fn set(&mut self, top: u32, array: Array) {
        self.places[place(top)] = u64::from(top) << 32 | u64::from(array.bits());
    }

    /// Removes a shortcut.
    pub(super) fn remove(&mut self, top: u32) {
        self.places[place(top)] = empty(place(top));
    }

    /// The shortcuts in a range.
    pub(super) fn within(&self, tops: RangeInclusive<u32>) -> Vec<u32> {
        let (first, last) = (*tops.start(), *tops.end());
        if last - first < 1 << 8 {
            return tops.filter(|&top| self.get(top).is_some()).collect();
        }
        let places = self.places.iter().enumerate();
        let held = places.filter(|&(at, &held)| held != empty(at));
        let held = held.map(|(_, held)| (held >> 32) as u32);
        held.filter(|top| tops.contains(top)).collect()
    }

    /// The places.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn raw(&self) -> *const u64 {
        self.places.as_ptr()
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u64>()
    }
}
