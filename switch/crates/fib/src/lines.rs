// SPDX-License-Identifier: Apache-2.0
//! Memory that will be read, told in advance. Nothing is read here, so it need not even be there.

/// Bytes of a cache line.
const LINE: usize = 64;

/// How many may be told together.
const MOST: usize = 3;

/// Some neighbouring cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    first: *const u8,
    count: usize,
}

impl Lines {
    /// None.
    pub const NONE: Self = Self {
        first: std::ptr::null(),
        count: 0,
    };

    /// The one that this is in.
    #[inline(always)]
    pub(crate) fn of<T>(first: *const T) -> Self {
        Self::from(first, 1)
    }

    /// So many from the one that this is in, at most [`MOST`].
    #[inline(always)]
    pub(crate) fn from<T>(first: *const T, count: usize) -> Self {
        debug_assert!(count <= MOST);
        Self {
            first: first.cast(),
            count,
        }
    }

    /// An address in each of them.
    #[inline(always)]
    pub fn addresses(self) -> impl Iterator<Item = *const u8> {
        let all: [_; MOST] = std::array::from_fn(|line| self.first.wrapping_add(line * LINE));
        all.into_iter().take(self.count)
    }

    /// Asks for them.
    #[inline(always)]
    pub fn fetch(self) {
        self.addresses().for_each(fetch);
    }
}

/// Asks for the line that something is in.
#[inline(always)]
pub(crate) fn fetch<T>(from: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}
