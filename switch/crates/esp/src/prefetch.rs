// SPDX-License-Identifier: Apache-2.0
//! Prefetches cache lines of an SA before its packet is served.

const LINE: usize = 64;

/// Prefetches all cache lines of a value.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let from: *const i8 = std::ptr::from_ref(value).cast();
        for at in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: a prefetch reads nothing, and the address lies within the value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, LINE);
}
