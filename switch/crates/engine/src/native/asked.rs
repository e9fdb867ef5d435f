// SPDX-License-Identifier: Apache-2.0
//! Lines of memory that packets in lanes have asked for, gathered so that they are fetched together.
//!
//! A prefetch whose page the processor has to look for first is not done until it is found, and what follows can run
//! ahead of it only as far as the processor keeps instructions: a look for a page costs more than the rest of the
//! look-up. Several prefetches in a row have their pages looked for at once. So a lane notes what it wants and pauses,
//! and when some lanes have, all that they want is fetched.

use std::cell::Cell;

/// Lines that are kept at most.
const ROOM: usize = 64;

/// See the module.
pub(super) struct Asked {
    lines: [Cell<*const u8>; ROOM],
    count: Cell<usize>,
}

impl Asked {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            lines: [const { Cell::new(std::ptr::null()) }; ROOM],
            count: Cell::new(0),
        }
    }

    /// Notes the line of an address.
    #[inline(always)]
    pub(super) fn note(&self, line: *const u8) {
        let count = self.count.get();
        if let Some(place) = self.lines.get(count) {
            place.set(line);
            self.count.set(count + 1);
        } else {
            fetch(line);
        }
    }

    /// Fetches all lines that were noted.
    #[inline]
    pub(super) fn fetch(&self) {
        let noted = &self.lines[..self.count.replace(0)];
        noted.iter().for_each(|line| fetch(line.get()));
    }
}

/// Asks for a line.
#[inline(always)]
pub(super) fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64, and a prefetch has no effect that a program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Asks for a line that is needed some time later, and once: it need not come nearer than the second cache.
#[inline(always)]
pub(super) fn fetch_later(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as for `fetch`.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
