// SPDX-License-Identifier: Apache-2.0
//! The interface through which a lookup yields while cache lines are fetched.

/// Operations of a lookup that lets other lookups run while its cache lines are fetched.
pub trait Wait {
    /// Prefetches a cache line that the lookup reads after the next [`yield_now`](Self::yield_now).
    fn prefetch(&self, line: *const u8);

    /// Yields to other lookups until the prefetched lines have arrived.
    fn yield_now(&self);
}
