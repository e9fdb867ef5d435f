// SPDX-License-Identifier: Apache-2.0
//! Cache lines to prefetch. This module never dereferences their addresses, so the addresses may be
//! invalid.

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Largest number of lines in one [`Lines`].
const MOST: usize = 3;

/// A few consecutive cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    first: *const u8,
    count: usize,
}

impl Lines {
    /// Value with no lines.
    pub const NONE: Self = Self {
        first: std::ptr::null(),
        count: 0,
    };

    /// Returns the line that contains `first`.
    #[inline(always)]
    pub(crate) fn of<T>(first: *const T) -> Self {
        Self::from(first, 1)
    }

    /// Returns `count` lines, at most [`MOST`], beginning with the line that contains `first`.
    #[inline(always)]
    pub(crate) fn from<T>(first: *const T, count: usize) -> Self {
        debug_assert!(count <= MOST);
        Self {
            first: first.cast(),
            count,
        }
    }

    /// Returns one address in each line.
    #[inline(always)]
    pub fn addresses(self) -> impl Iterator<Item = *const u8> {
        let all: [_; MOST] = std::array::from_fn(|line| self.first.wrapping_add(line * LINE));
        all.into_iter().take(self.count)
    }

    /// Prefetches the lines.
    #[inline(always)]
    pub fn fetch(self) {
        self.addresses().for_each(fetch);
    }
}

/// Prefetches the line that contains `from`.
#[inline(always)]
pub(crate) fn fetch<T>(from: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no architectural effect.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}
