// SPDX-License-Identifier: Apache-2.0
//! The batch look-up with AVX-512: sixteen addresses to a register where all do the same (finding
//! their first lines, and what comes after a search), one line to a compare where they differ.

use std::arch::x86_64::*;

use super::batch::{Bits, Trie, prefetch};
use super::build::key;
use super::dense::{MULTIPLIER, PLACE_BITS};
use super::line::{Array, Line, NARROW, NEXT, bias, short_bias};

/// Addresses of a register, and of those in flight: enough to cover the latency of a cache miss.
const GROUP: usize = 16;
const GROUPS: usize = 4;
const CHUNK: usize = GROUP * GROUPS;

/// Whether the processor has what [`look_up`] needs.
pub(super) fn detected() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// The addresses of a chunk on their way through the trie. A bit of a mask is for a lane.
#[repr(align(64))]
struct Chunk {
    keys: [u32; CHUNK],
    /// The next line of each.
    lines: [u32; CHUNK],
    /// What the last line said.
    slots: [u32; CHUNK],
    segments: [u8; CHUNK],
    /// Who comes to a narrow line next.
    narrow: u64,
}

/// Looks up as many of the addresses as make up whole registers; how many those are. `values` is as
/// long as `addresses`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn look_up(trie: &Trie<'_>, addresses: &[u128], values: &mut [u32]) -> usize {
    let whole = addresses.len().min(values.len()) / GROUP * GROUP;
    let mut chunk = Chunk {
        keys: [0; CHUNK],
        lines: [0; CHUNK],
        slots: [0; CHUNK],
        segments: [0; CHUNK],
        narrow: 0,
    };
    let chunks = addresses[..whole].chunks(CHUNK);
    for (addresses, values) in chunks.zip(values[..whole].chunks_mut(CHUNK)) {
        chunk.look_up(trie, addresses, values);
    }
    whole
}

impl Chunk {
    /// `addresses` and `values` are equally long: one to [`GROUPS`] times [`GROUP`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn look_up(&mut self, trie: &Trie<'_>, addresses: &[u128], values: &mut [u32]) {
        self.narrow = 0;
        for (group, addresses) in addresses.as_chunks().0.iter().take(GROUPS).enumerate() {
            self.begin(trie, group, addresses);
        }
        let mut under_way = u64::MAX >> (CHUNK - addresses.len());
        while under_way != 0 {
            for lane in Bits(under_way & self.narrow) {
                self.search_narrow(trie, lane);
            }
            for lane in Bits(under_way & !self.narrow) {
                self.search_wide(trie, lane);
            }
            let mut more = 0;
            for (group, values) in values.as_chunks_mut().0.iter_mut().enumerate() {
                let mask = (under_way >> (GROUP * group)) as u16;
                if mask != 0 {
                    let left = self.conclude(trie, group, mask, addresses, values);
                    more |= u64::from(left) << (GROUP * group);
                }
            }
            under_way = more;
        }
    }

    /// Finds and prefetches the first lines of a group's addresses.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn begin(&mut self, trie: &Trie<'_>, group: usize, addresses: &[u128; GROUP]) {
        let (arrays, places) = trie.roots.raw();
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
        let upper_halves = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let from: *const u128 = addresses.as_ptr();
        // SAFETY: four loads of 64 bytes each from sixteen addresses.
        let quarters =
            unsafe { [0, 4, 8, 12].map(|first| _mm512_loadu_si512(from.add(first).cast())) };
        let first = _mm512_permutex2var_epi64(quarters[0], upper_halves, quarters[1]);
        let second = _mm512_permutex2var_epi64(quarters[2], upper_halves, quarters[3]);
        let top = _mm512_permutex2var_epi32(first, odd, second);
        let rest = _mm512_permutex2var_epi32(first, even, second);
        let keys = _mm512_or_si512(_mm512_slli_epi32::<16>(top), _mm512_srli_epi32::<16>(rest));

        let product = _mm512_mullo_epi32(top, _mm512_set1_epi32(MULTIPLIER as i32));
        let place = _mm512_srli_epi32::<{ 32 - PLACE_BITS }>(product);
        // SAFETY: there are 2^16 arrays, and as many places as `PLACE_BITS` bits name.
        let (otherwise, held) = unsafe {
            let low = _mm512_castsi512_si256(place);
            let high = _mm512_extracti64x4_epi64::<1>(place);
            (
                _mm512_i32gather_epi32::<4>(_mm512_srli_epi32::<16>(top), arrays.cast()),
                [
                    _mm512_i32gather_epi64::<8>(low, places.cast()),
                    _mm512_i32gather_epi64::<8>(high, places.cast()),
                ],
            )
        };
        let whose = _mm512_permutex2var_epi32(held[0], odd, held[1]);
        let shortcut = _mm512_permutex2var_epi32(held[0], even, held[1]);
        let found = _mm512_cmpeq_epi32_mask(whose, top);
        let array = _mm512_mask_blend_epi32(found, otherwise, shortcut);
        self.segments[GROUP * group..][..GROUP].fill(0);
        self.go_to(trie, group, u16::MAX, array, keys);
    }

    /// Sends the lanes of a mask to the lines of their keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn go_to(&mut self, trie: &Trie<'_>, group: usize, mask: u16, array: __m512i, keys: __m512i) {
        let shift = _mm512_and_si512(array, _mm512_set1_epi32(63));
        let start = _mm512_srli_epi32::<{ Array::START }>(array);
        let line = _mm512_add_epi32(start, _mm512_srlv_epi32(keys, shift));
        let line = _mm512_and_si512(line, _mm512_set1_epi32(Array::MAX_LINES as i32 - 1));
        let narrow = _mm512_test_epi32_mask(array, _mm512_set1_epi32(NARROW as i32));
        let at = GROUP * group;
        self.narrow &= !(u64::from(mask) << at);
        self.narrow |= u64::from(narrow & mask) << at;
        let (lines, kept) = (
            &mut self.lines[at..][..GROUP],
            &mut self.keys[at..][..GROUP],
        );
        // SAFETY: both slices are of sixteen.
        unsafe {
            _mm512_mask_storeu_epi32(lines.as_mut_ptr().cast(), mask, line);
            _mm512_mask_storeu_epi32(kept.as_mut_ptr().cast(), mask, keys);
        }
        if mask == u16::MAX {
            for line in lines {
                prefetch(trie.lines, *line as usize);
            }
        } else {
            for lane in Bits(mask.into()) {
                prefetch(trie.lines, lines[lane % GROUP] as usize);
            }
        }
    }

    /// The line that a lane has come to.
    #[inline(always)]
    fn line<'a>(&self, trie: &Trie<'a>, lane: usize) -> &'a Line {
        // SAFETY: every array in the roots and in the lines in use leads to lines of the trie for
        // each key in its region (`Array` and `build`).
        unsafe { trie.lines.get_unchecked(self.lines[lane] as usize) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn search_narrow(&mut self, trie: &Trie<'_>, lane: usize) {
        let lane = lane % CHUNK;
        let line = self.line(trie, lane).narrow();
        let key = _mm256_set1_epi16(short_bias(self.keys[lane]));
        // SAFETY: the load is of the 32 bytes of `starts`.
        let starts = unsafe { _mm256_load_si256(line.starts.as_ptr().cast()) };
        let beyond = _mm256_cmpgt_epi16_mask(starts, key).count_ones() as usize;
        // SAFETY: of sixteen starts, at most fifteen are beyond a key of the line's region: the
        // first interval begins where the region does.
        self.slots[lane] = unsafe { line.slots.get_unchecked(beyond) }.bits().into();
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn search_wide(&mut self, trie: &Trie<'_>, lane: usize) {
        let lane = lane % CHUNK;
        let line = self.line(trie, lane).wide();
        let key = _mm256_set1_epi32(bias(self.keys[lane]));
        // SAFETY: the load is of the 32 bytes of `starts`.
        let starts = unsafe { _mm256_load_si256(line.starts.as_ptr().cast()) };
        let beyond = _mm256_cmpgt_epi32_mask(starts, key).count_ones() as usize;
        // SAFETY: as in a narrow line, of eight.
        self.slots[lane] = unsafe { line.slots.get_unchecked(beyond) }.bits();
    }

    /// Puts down what the lanes of a mask have found, and sends those on that have not come to an
    /// end: which those are.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn conclude(
        &mut self,
        trie: &Trie<'_>,
        group: usize,
        mask: u16,
        addresses: &[u128],
        values: &mut [u32; GROUP],
    ) -> u16 {
        let at = GROUP * group;
        let narrow = (self.narrow >> at) as u16;
        // SAFETY: loads of sixteen from slices of sixteen, and a store of the sixteen values.
        let (slots, keys) = unsafe {
            let slots = _mm512_loadu_si512(self.slots[at..][..GROUP].as_ptr().cast());
            let results = _mm512_sub_epi32(slots, _mm512_set1_epi32(1));
            _mm512_mask_storeu_epi32(values.as_mut_ptr().cast(), mask, results);
            (
                slots,
                _mm512_loadu_si512(self.keys[at..][..GROUP].as_ptr().cast()),
            )
        };
        let escaped = _mm512_mask_test_epi32_mask(mask & narrow, slots, _mm512_set1_epi32(1 << 15));
        let led_on = _mm512_movepi32_mask(slots) & mask;
        let more = escaped | led_on;
        if more == 0 {
            return 0;
        }
        // SAFETY: what is escaped is the number of an escape.
        let slots = unsafe {
            let index = _mm512_and_si512(slots, _mm512_set1_epi32(0x7fff));
            let escapes = trie.escapes.as_ptr().cast();
            _mm512_mask_i32gather_epi32::<4>(slots, escaped, index, escapes)
        };
        let array = _mm512_and_si512(slots, _mm512_set1_epi32(NEXT as i32 - 1));
        let next = _mm512_mask_test_epi32_mask(more, slots, _mm512_set1_epi32(NEXT as i32));
        let keys = if next == 0 {
            keys
        } else {
            self.next_keys(group, next, addresses)
        };
        self.go_to(trie, group, more, array, keys);
        more
    }

    /// A group's keys, where the lanes of a mask go on to the next segment of their addresses.
    #[cold]
    #[target_feature(enable = "avx512f")]
    fn next_keys(&mut self, group: usize, mask: u16, addresses: &[u128]) -> __m512i {
        let at = GROUP * group;
        for lane in Bits(mask.into()) {
            let lane = at + lane;
            self.segments[lane] += 1;
            self.keys[lane] = key(addresses[lane], u32::from(self.segments[lane]));
        }
        // SAFETY: a load of sixteen from a slice of sixteen.
        unsafe { _mm512_loadu_si512(self.keys[at..][..GROUP].as_ptr().cast()) }
    }
}
