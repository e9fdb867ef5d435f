// SPDX-License-Identifier: Apache-2.0
//! Collects the cache lines that packets in lanes need, in order to prefetch several lines together.
//!
//! A prefetch that misses the TLB cannot retire until its page walk has ended. Meanwhile the CPU can execute only as
//! many later instructions as the reorder buffer holds. So one page walk costs more than the rest of the lookup. But
//! the page walks of several prefetches in a row overlap. Therefore each lane records the lines that it needs, and
//! yields. When a group of lanes has yielded, all recorded lines are prefetched.

use std::cell::Cell;

/// Maximum number of recorded lines. Further lines are prefetched immediately.
const ROOM: usize = 64;

/// List of recorded cache lines; see the module.
pub(crate) struct Prefetches {
    lines: [Cell<*const u8>; ROOM],
    count: Cell<usize>,
}

impl Prefetches {
    /// Creates an empty list of lines.
    pub(crate) fn new() -> Self {
        Self {
            lines: [const { Cell::new(std::ptr::null()) }; ROOM],
            count: Cell::new(0),
        }
    }

    /// Records the cache line of an address, so that the next `fetch` prefetches the line.
    #[inline(always)]
    pub(crate) fn note(&self, line: *const u8) {
        let count = self.count.get();
        if let Some(saved) = self.lines.get(count) {
            saved.set(line);
            self.count.set(count + 1);
        } else {
            fetch(line);
        }
    }

    /// Prefetches all recorded lines, and clears the list.
    #[inline]
    pub(crate) fn fetch(&self) {
        let noted = &self.lines[..self.count.replace(0)];
        noted.iter().for_each(|line| fetch(line.get()));
    }
}

/// Prefetches a cache line to all cache levels.
#[inline(always)]
pub(crate) fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64, and a prefetch of any address has no architectural effect.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Prefetches a cache line to the second-level cache, but not to the first. Useful for lines that are needed later and
/// only once.
#[inline(always)]
pub(crate) fn fetch_later(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as for `fetch`.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
