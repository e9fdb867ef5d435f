// SPDX-License-Identifier: Apache-2.0
//! Many look-ups at once, so that their cache misses overlap.
//!
//! A chunk of addresses goes through the trie level by level: first every address' line is computed
//! and prefetched, then all lines are searched, and those addresses that need more lines queue for
//! the next round. There is no branch on what a search finds, so none to mispredict.

use super::build::key;
use super::line::{Array, Line, Slot, bias};

/// Addresses in flight: enough to cover the latency of a cache miss.
const CHUNK: usize = 32;

/// Which instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// What every processor of the architecture has.
    Portable,
    /// AVX2 and BMI2: one compare for a line.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Kernel {
    /// The best one for this processor.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            return Self::Avx2;
        }
        Self::Portable
    }

    /// Looks up each address; `values` is as long as `addresses`.
    ///
    /// `roots` and `lines` are those of one trie.
    pub(super) fn run(
        self,
        roots: &[Array],
        lines: &[Line],
        addresses: &[u128],
        values: &mut [u32],
    ) {
        let chunks = addresses.chunks(CHUNK).zip(values.chunks_mut(CHUNK));
        for (addresses, values) in chunks {
            match self {
                Self::Portable => chunk(roots, lines, addresses, values, Line::select),
                // SAFETY: `detect` has found the features.
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => unsafe { chunk_avx2(roots, lines, addresses, values) },
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn chunk_avx2(roots: &[Array], lines: &[Line], addresses: &[u128], values: &mut [u32]) {
    use std::arch::x86_64::*;
    chunk(roots, lines, addresses, values, |line, key| {
        // SAFETY: the caller of `chunk_avx2` vouches for AVX2; the load is of the 32 bytes of
        // `starts`, aligned since the line is.
        let beyond = unsafe {
            let starts = _mm256_load_si256(line.starts.as_ptr().cast());
            let beyond = _mm256_cmpgt_epi32(starts, _mm256_set1_epi32(key));
            _mm256_movemask_ps(_mm256_castsi256_ps(beyond))
        };
        beyond.count_ones() as usize
    });
}

/// An address on its way through the trie.
#[derive(Clone, Copy)]
struct Waiting {
    lane: u32,
    slot: Slot,
    offset: u32,
}

#[inline(always)]
fn prefetch(lines: &[Line], index: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_add(index).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (lines, index);
}

#[inline(always)]
fn chunk(
    roots: &[Array],
    lines: &[Line],
    addresses: &[u128],
    values: &mut [u32],
    select: impl Fn(&Line, i32) -> usize,
) {
    let count = addresses.len().min(values.len()).min(CHUNK);
    let mut keys = [0u32; CHUNK];
    let mut at = [0u32; CHUNK];
    for lane in 0..count {
        let high = (addresses[lane] >> 64) as u64;
        let key = (high >> 16) as u32;
        // SAFETY: there are 2^16 roots.
        let array = unsafe { *roots.get_unchecked((high >> 48) as usize) };
        let index = array.line(key);
        prefetch(lines, index);
        keys[lane] = key;
        at[lane] = index as u32;
    }
    let mut waiting = [Waiting {
        lane: 0,
        slot: Slot::NONE,
        offset: 0,
    }; CHUNK];
    let mut queue = 0;
    for lane in 0..count {
        // SAFETY: every array in `roots` and in the lines in use refers to lines of the trie for
        // each offset in its region (`Array` and `build`).
        let line = unsafe { lines.get_unchecked(at[lane] as usize) };
        let key = keys[lane];
        let index = select(line, bias(key));
        let slot = line.slots[index];
        values[lane] = slot.result();
        waiting[queue] = Waiting {
            lane: lane as u32,
            slot,
            offset: line.offset(index, key),
        };
        queue += usize::from(!slot.is_final());
    }
    let mut segments = [0u8; CHUNK];
    while queue > 0 {
        for entry in 0..queue {
            let Waiting {
                lane,
                slot,
                mut offset,
            } = waiting[entry];
            let lane = lane as usize;
            if slot.is_next() {
                segments[lane] += 1;
                keys[lane] = key(addresses[lane], u32::from(segments[lane]));
                offset = keys[lane];
            }
            let index = slot.array().line(offset);
            prefetch(lines, index);
            at[entry] = index as u32;
        }
        let entries = std::mem::take(&mut queue);
        for entry in 0..entries {
            let lane = waiting[entry].lane as usize;
            // SAFETY: as above.
            let line = unsafe { lines.get_unchecked(at[entry] as usize) };
            let key = keys[lane];
            let index = select(line, bias(key));
            let slot = line.slots[index];
            values[lane] = slot.result();
            waiting[queue] = Waiting {
                lane: lane as u32,
                slot,
                offset: line.offset(index, key),
            };
            queue += usize::from(!slot.is_final());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, LineTrie, Prefix, Rib};

    #[test]
    fn every_kernel_gives_what_single_look_ups_give() {
        let mut rib = Rib::new();
        let word = |index: u128| index.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        for index in 1..4000 {
            let address = 0x2001 << 112 | word(index) >> 16 & word(index * 3) >> 16;
            let length = [20, 32, 40, 48, 56, 64, 128][index as usize % 7];
            rib.insert(Prefix::new(address, length), index as u32);
        }
        let trie = LineTrie::build(&rib).expect("the routes fit");
        let mut addresses: Vec<u128> = (0..4000).map(|i| 0x2001 << 112 | word(i) >> 16).collect();
        rib.for_each(&mut |route, _| addresses.extend([route.address(), route.last()]));
        let expected: Vec<u32> = addresses.iter().map(|&one| trie.lookup(one)).collect();
        assert!(
            expected
                .iter()
                .filter(|&&value| value != crate::NONE)
                .count()
                > 4000
        );
        for kernel in [Kernel::Portable, Kernel::detect()] {
            let mut values = vec![0; addresses.len()];
            kernel.run(
                trie.roots.arrays(),
                trie.pool.lines(),
                &addresses,
                &mut values,
            );
            assert!(values == expected, "{kernel:?}");
        }
    }
}
