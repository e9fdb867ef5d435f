// SPDX-License-Identifier: Apache-2.0
//! Prefetches cache lines of an SA before its packet is served.

const LINE: usize = 64;

/// Prefetches all cache lines of a value.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_bytes(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// Prefetches the cache lines of a memory range. The range need not be valid memory.
#[inline]
pub(crate) fn prefetch_bytes(from: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for at in (0..length).step_by(LINE) {
            // SAFETY: a prefetch does not access memory architecturally, so every address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, length, LINE);
}
