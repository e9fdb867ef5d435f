// SPDX-License-Identifier: Apache-2.0
//! Many look-ups at once, so that their cache misses overlap.
//!
//! A chunk of addresses goes through the trie level by level: first every address' line is computed
//! and prefetched, then all lines are searched, and those addresses that need more lines take part
//! in another round. There is no branch on what a search finds, so none to mispredict.

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::build::key;
use super::line::{Line, Narrow, Slot, Wide, bias, short_bias};
use super::pool::Pool;
use super::roots::Roots;

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
    /// AVX-512: sixteen addresses at a time between the compares.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// The best one for this processor.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx512::detected() {
            return Self::Avx512;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            return Self::Avx2;
        }
        Self::Portable
    }

    /// Looks up each address; `values` is as long as `addresses`.
    ///
    /// `roots` and `pool` are those of one trie.
    pub(super) fn run(self, roots: &Roots, pool: &Pool, addresses: &[u128], values: &mut [u32]) {
        let trie = Trie {
            roots,
            lines: pool.lines(),
            escapes: pool.escapes(),
        };
        match self {
            Self::Portable => trie.look_up(addresses, values, (Wide::select, Narrow::select)),
            // SAFETY: `detect` has found the features.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { look_up_avx2(&trie, addresses, values) },
            // SAFETY: as above; AVX-512 is not without AVX2.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe {
                let done = avx512::look_up(&trie, addresses, values);
                look_up_avx2(&trie, &addresses[done..], &mut values[done..]);
            },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn look_up_avx2(trie: &Trie<'_>, addresses: &[u128], values: &mut [u32]) {
    use std::arch::x86_64::*;
    let wide = |line: &Wide, key: u32| {
        // SAFETY: the caller vouches for AVX2; the load is of the 32 bytes of `starts`, aligned
        // since the line is.
        let beyond = unsafe {
            let starts = _mm256_load_si256(line.starts.as_ptr().cast());
            let beyond = _mm256_cmpgt_epi32(starts, _mm256_set1_epi32(bias(key)));
            _mm256_movemask_ps(_mm256_castsi256_ps(beyond))
        };
        beyond.count_ones() as usize
    };
    let narrow = |line: &Narrow, key: u32| {
        // SAFETY: as above.
        let beyond = unsafe {
            let starts = _mm256_load_si256(line.starts.as_ptr().cast());
            let beyond = _mm256_cmpgt_epi16(starts, _mm256_set1_epi16(short_bias(key)));
            _mm256_movemask_epi8(beyond)
        };
        // Two bits for each start.
        beyond.count_ones() as usize / 2
    };
    trie.look_up(addresses, values, (wide, narrow));
}

#[inline(always)]
pub(super) fn prefetch(lines: &[Line], index: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(lines.as_ptr().wrapping_add(index).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (lines, index);
}

/// What look-ups need.
pub(super) struct Trie<'a> {
    pub(super) roots: &'a Roots,
    pub(super) lines: &'a [Line],
    pub(super) escapes: &'a [Slot],
}

/// The addresses of a chunk on their way through the trie.
struct Chunk {
    keys: [u32; CHUNK],
    segments: [u8; CHUNK],
    /// The next line of each.
    lines: [u32; CHUNK],
    /// What the last line said, for each.
    slots: [Slot; CHUNK],
    /// Who comes to a narrow line next, a bit for each lane.
    narrow: u64,
}

impl Trie<'_> {
    #[inline(always)]
    fn look_up(
        &self,
        addresses: &[u128],
        values: &mut [u32],
        select: (
            impl Fn(&Wide, u32) -> usize + Copy,
            impl Fn(&Narrow, u32) -> usize + Copy,
        ),
    ) {
        let chunks = addresses.chunks(CHUNK).zip(values.chunks_mut(CHUNK));
        for (addresses, values) in chunks {
            self.chunk(addresses, values, select);
        }
    }

    #[inline(always)]
    fn chunk(
        &self,
        addresses: &[u128],
        values: &mut [u32],
        select: (
            impl Fn(&Wide, u32) -> usize + Copy,
            impl Fn(&Narrow, u32) -> usize + Copy,
        ),
    ) {
        let mut chunk = Chunk {
            keys: [0; CHUNK],
            segments: [0; CHUNK],
            lines: [0; CHUNK],
            slots: [Slot::NONE; CHUNK],
            narrow: 0,
        };
        let lanes = addresses.len().min(values.len()).min(CHUNK);
        for (lane, &address) in addresses[..lanes].iter().enumerate() {
            let high = (address >> 64) as u64;
            let key = (high >> 16) as u32;
            let array = self.roots.find(high);
            let index = array.line(key);
            prefetch(self.lines, index);
            chunk.keys[lane] = key;
            chunk.lines[lane] = index as u32;
            chunk.narrow |= u64::from(array.is_narrow()) << lane;
        }
        // Who has to go on, a bit for each lane. A list of them would be slower: where it is
        // written to depends on every search before.
        let mut under_way = (1u64 << lanes) - 1;
        loop {
            let mut more = 0u64;
            for lane in Bits(under_way & chunk.narrow) {
                let slot = chunk.search_narrow(self, lane, select.1);
                values[lane] = slot.result();
                more |= u64::from(!slot.is_final()) << lane;
            }
            for lane in Bits(under_way & !chunk.narrow) {
                let slot = chunk.search_wide(self, lane, select.0);
                values[lane] = slot.result();
                more |= u64::from(!slot.is_final()) << lane;
            }
            if more == 0 {
                return;
            }
            for lane in Bits(more) {
                chunk.follow(self, lane, addresses[lane]);
            }
            under_way = more;
        }
    }
}

/// The positions of bits, ascending.
pub(super) struct Bits(pub(super) u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let first = self.0.trailing_zeros() as usize;
        let some = self.0 != 0;
        self.0 &= self.0.wrapping_sub(1);
        some.then_some(first)
    }
}

impl Chunk {
    /// The line that a lane has come to, and its key.
    #[inline(always)]
    fn line<'a>(&self, trie: &Trie<'a>, lane: usize) -> (&'a Line, u32) {
        // SAFETY: every array in the roots and in the lines in use leads to lines of the trie for
        // each key in its region (`Array` and `build`).
        let line = unsafe { trie.lines.get_unchecked(self.lines[lane] as usize) };
        (line, self.keys[lane])
    }

    /// Searches the wide line that a lane has come to.
    #[inline(always)]
    fn search_wide(
        &mut self,
        trie: &Trie<'_>,
        lane: usize,
        select: impl Fn(&Wide, u32) -> usize,
    ) -> Slot {
        let lane = lane % CHUNK;
        let (line, key) = self.line(trie, lane);
        let line = line.wide();
        // SAFETY: of the eight starts, at most seven are beyond a key of the line's region: the
        // first interval begins where the region does.
        let slot = unsafe { *line.slots.get_unchecked(select(line, key)) };
        self.slots[lane] = slot;
        slot
    }

    /// Searches the narrow line that a lane has come to.
    #[inline(always)]
    fn search_narrow(
        &mut self,
        trie: &Trie<'_>,
        lane: usize,
        select: impl Fn(&Narrow, u32) -> usize,
    ) -> Slot {
        let lane = lane % CHUNK;
        let (line, key) = self.line(trie, lane);
        let line = line.narrow();
        // SAFETY: as in a wide line, with sixteen starts.
        let short = unsafe { *line.slots.get_unchecked(select(line, key)) };
        let Some(index) = short.escaped() else {
            return short.widened();
        };
        let slot = trie.escapes[index];
        self.slots[lane] = slot;
        slot
    }

    /// Finds and prefetches the line to which a slot has sent a lane.
    #[inline(always)]
    fn follow(&mut self, trie: &Trie<'_>, lane: usize, address: u128) {
        let lane = lane % CHUNK;
        let slot = self.slots[lane];
        if slot.is_next() {
            self.segments[lane] += 1;
            self.keys[lane] = key(address, u32::from(self.segments[lane]));
        }
        let array = slot.array();
        let index = array.line(self.keys[lane]);
        prefetch(trie.lines, index);
        self.lines[lane] = index as u32;
        self.narrow = self.narrow & !(1 << lane) | u64::from(array.is_narrow()) << lane;
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
        let mut kernels = vec![Kernel::Portable, Kernel::detect()];
        #[cfg(target_arch = "x86_64")]
        if Kernel::detect() == Kernel::Avx512 {
            kernels.push(Kernel::Avx2);
        }
        for kernel in kernels {
            let mut values = vec![0; addresses.len()];
            kernel.run(&trie.roots, &trie.pool, &addresses, &mut values);
            assert!(values == expected, "{kernel:?}");
        }
    }
}
