// SPDX-License-Identifier: Apache-2.0
//! Sorted ranges of addresses with one answer each, for tables that fit into a few registers or cache lines. Up to 32
//! ranges, a lookup counts the ranges that begin at or before the address. More ranges are searched by bisection. For
//! long addresses, the upper halves are compared; lower halves are compared only with the few ranges that begin within
//! an upper half. A batch compares sixteen addresses with one bound at a time, a single lookup compares one address
//! with eight bounds.

use std::ops::AddAssign;

use crate::algorithm::{Algorithm, BuildError, NONE, NeedsRebuild};
use crate::{Address, Prefix, Rib};

/// Most ranges that are counted instead of searched.
const COUNTED: usize = 32;

/// Most routes for which each change rebuilds the ranges from the RIB.
const REMADE: usize = 64;

/// Lookups that are processed together. So few that their counts stay in registers.
const LANES: usize = 16;

/// Bounds that one instruction compares.
const TOGETHER: usize = 8;

/// Up to this many bounds, single comparisons are faster than filling a vector.
const ONE_BY_ONE: usize = 4;

/// The structure; see the module.
#[derive(Clone, Debug)]
pub struct Ranges<A> {
    /// First address of each range. That of the first range is the lowest address.
    starts: Vec<A>,
    /// Used if ranges are counted: for each start after the first, the greatest upper half that has an address before
    /// it. Padded to a multiple of [`TOGETHER`] with bounds that no address exceeds.
    bounds: Vec<u64>,
    /// Used if ranges are counted: upper and lower half of the starts whose lower half is not 0.
    within: Vec<[u64; 2]>,
    /// Value of each range. If ranges are counted, padded to [`COUNTED`].
    values: Vec<u32>,
    /// Number of ranges if their bounds are compared one by one, else 0.
    few: usize,
    /// Bounds that are compared one by one.
    first: [u64; ONE_BY_ONE],
    /// Whether the processor has the AVX-512 extensions that `detect` requires.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    wide: bool,
}

/// Returns whether the processor has the extensions that the AVX-512 functions are compiled for.
fn detect() -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("popcnt")
    {
        return true;
    }
    false
}

impl<A: Address> Ranges<A> {
    fn make(&mut self, rib: &Rib<A>) {
        self.starts.clear();
        self.values.clear();
        self.bounds.clear();
        self.within.clear();
        self.few = 0;
        rib.for_each_range(Prefix::new(A::default(), 0), &mut |first, value| {
            self.starts.push(first);
            self.values.push(value.unwrap_or(NONE));
        });
        if self.starts.len() > COUNTED {
            return;
        }
        self.values.resize(COUNTED, NONE);
        let starts = &self.starts[1..];
        for start in starts {
            let (upper, lower) = (start.upper(), start.lower());
            self.bounds.push(upper - u64::from(lower == 0));
            if lower != 0 {
                self.within.push([upper, lower]);
            }
        }
        if starts.len() <= ONE_BY_ONE && self.within.is_empty() {
            self.few = self.starts.len();
            self.first[..starts.len()].copy_from_slice(&self.bounds);
        }
        let whole = starts.len().max(1).next_multiple_of(TOGETHER);
        self.bounds.resize(whole, u64::MAX);
    }

    /// Returns the value of an address, for any number of ranges.
    #[inline(never)]
    fn lookup_among_many(&self, address: A) -> u32 {
        if self.starts.len() > COUNTED {
            let index = self.starts.partition_point(|start| *start <= address);
            return self.values[index - 1];
        }
        if !self.within.is_empty() {
            let begun = self.starts[1..].iter().filter(|start| **start <= address);
            return self.values[begun.count()];
        }
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `detect` found the extensions that the function is compiled for.
            return unsafe { x86::one_avx512(self, address.upper()) };
        }
        let begun = self.bounds.iter().filter(|bound| **bound < address.upper());
        self.values[begun.count()]
    }

    /// Looks up a batch by counting the starts at or before each address. Counters are as wide as the compared numbers,
    /// so that all vectors have the same shape.
    #[inline(always)]
    fn lookup_counting(&self, addresses: &[A], values: &mut [u32]) {
        let Some(known) = self.values.first_chunk::<COUNTED>() else {
            return;
        };
        let starts = &self.starts[1..];
        let (batches, rest) = addresses.as_chunks::<LANES>();
        let (found, found_rest) = values.as_chunks_mut::<LANES>();
        for (addresses, values) in batches.iter().zip(found) {
            let counts = if A::BITS <= u64::BITS || !self.within.is_empty() {
                let begun = |address, start| address >= start;
                count::<A, A, u32>(starts, *addresses, begun).map(|count| count as usize)
            } else {
                let (bounds, uppers) = (&self.bounds[..starts.len()], addresses.map(A::upper));
                let begun = |upper, bound| upper > bound;
                count::<u64, u64, u64>(bounds, uppers, begun).map(|count| count as usize)
            };
            *values = counts.map(|count| known[count % COUNTED]);
        }
        for (address, value) in rest.iter().zip(found_rest) {
            *value = self.lookup(*address);
        }
    }
}

/// Counts the bounds that each key exceeds.
#[inline(always)]
fn count<T: Copy, B: Copy, C: Copy + Default + AddAssign + From<bool>>(
    bounds: &[B],
    keys: [T; LANES],
    beyond: impl Fn(T, B) -> bool,
) -> [C; LANES] {
    let mut counts = [C::default(); LANES];
    for bound in bounds {
        for lane in 0..LANES {
            counts[lane] += C::from(beyond(keys[lane], *bound));
        }
    }
    counts
}

/// Versions for wider registers.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Address, Algorithm, LANES, Ranges, TOGETHER};

    #[target_feature(enable = "avx2")]
    pub(super) fn many_avx2<A: Address>(ranges: &Ranges<A>, addresses: &[A], values: &mut [u32]) {
        ranges.lookup_counting(addresses, values);
    }

    /// Holds the table of 32 values in two registers, from which all lanes select at once.
    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) fn many_avx512<A: Address>(ranges: &Ranges<A>, addresses: &[A], values: &mut [u32]) {
        let (Some(near), Some(far)) = (
            ranges.values.first_chunk::<LANES>(),
            ranges.values.last_chunk::<LANES>(),
        ) else {
            return;
        };
        let (near, far) = (u32s(near), u32s(far));
        let (batches, rest) = addresses.as_chunks::<LANES>();
        let (found, found_rest) = values.as_chunks_mut::<LANES>();
        for (addresses, values) in batches.iter().zip(found) {
            let counts = if A::BITS > u32::BITS {
                count_halves(ranges, addresses)
            } else {
                count_whole(ranges, addresses)
            };
            let all = _mm512_permutex2var_epi32(near, counts, far);
            // SAFETY: a store of sixteen numbers to an array of sixteen.
            unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), all) };
        }
        for (address, value) in rest.iter().zip(found_rest) {
            *value = ranges.lookup(*address);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn u32s(numbers: &[u32; LANES]) -> __m512i {
        // SAFETY: a load of sixteen numbers from an array of sixteen.
        unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn u64s(numbers: &[u64]) -> __m512i {
        assert!(numbers.len() == TOGETHER);
        // SAFETY: a load of eight numbers from a slice of eight.
        unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
    }

    /// Counts the starts at or before each address, for addresses of at most 32 bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn count_whole<A: Address>(ranges: &Ranges<A>, addresses: &[A; LANES]) -> __m512i {
        let whole = |address: A| address.bits(0, u32::BITS);
        let keys = u32s(&addresses.map(whole));
        let (mut counts, one) = (_mm512_setzero_si512(), _mm512_set1_epi32(1));
        for start in &ranges.starts[1..] {
            let start = _mm512_set1_epi32(whole(*start) as i32);
            let begun = _mm512_cmple_epu32_mask(start, keys);
            counts = _mm512_mask_add_epi32(counts, begun, counts, one);
        }
        counts
    }

    /// Counts the starts at or before each address, for longer addresses.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn count_halves<A: Address>(ranges: &Ranges<A>, addresses: &[A; LANES]) -> __m512i {
        let halves = |halves: [u64; LANES]| {
            let (near, far) = halves.split_at(TOGETHER);
            [u64s(near), u64s(far)]
        };
        let one = _mm512_set1_epi64(1);
        let mut counts = [_mm512_setzero_si512(); 2];
        let uppers = halves(addresses.map(A::upper));
        for bound in &ranges.bounds[..ranges.starts.len() - 1] {
            let bound = _mm512_set1_epi64(*bound as i64);
            for (count, upper) in counts.iter_mut().zip(uppers) {
                let begun = _mm512_cmplt_epu64_mask(bound, upper);
                *count = _mm512_mask_add_epi64(*count, begun, *count, one);
            }
        }
        if !ranges.within.is_empty() {
            let lowers = halves(addresses.map(A::lower));
            for start in &ranges.within {
                let [upper_start, lower_start] = start.map(|half| _mm512_set1_epi64(half as i64));
                for (count, (upper, lower)) in counts.iter_mut().zip(uppers.into_iter().zip(lowers))
                {
                    let same = _mm512_cmpeq_epu64_mask(upper_start, upper);
                    let begun = _mm512_mask_cmple_epu64_mask(same, lower_start, lower);
                    *count = _mm512_mask_add_epi64(*count, begun, *count, one);
                }
            }
        }
        let [near, far] = counts.map(|count| _mm512_cvtepi64_epi32(count));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(near), far)
    }

    /// Returns the value of an address whose upper half is `key`. Counts bounds in whole registers.
    #[target_feature(enable = "avx512f,popcnt")]
    pub(super) fn one_avx512<A: Address>(ranges: &Ranges<A>, key: u64) -> u32 {
        let key = _mm512_set1_epi64(key as i64);
        let below = ranges.bounds.chunks_exact(TOGETHER).map(|bounds| {
            let below = _mm512_cmplt_epu64_mask(u64s(bounds), key);
            below.count_ones()
        });
        ranges.values[below.sum::<u32>() as usize]
    }
}

impl<A: Address> Algorithm<A> for Ranges<A> {
    fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        let mut made = Self {
            starts: Vec::new(),
            bounds: Vec::new(),
            within: Vec::new(),
            values: Vec::new(),
            few: 0,
            first: [u64::MAX; ONE_BY_ONE],
            wide: detect(),
        };
        made.make(rib);
        made.starts.shrink_to_fit();
        made.values.shrink_to_fit();
        Ok(made)
    }

    #[inline]
    fn lookup(&self, address: A) -> u32 {
        if self.few == 0 {
            return self.lookup_among_many(address);
        }
        // Nothing here may panic. Otherwise the function would save registers, which takes as long as the rest of the
        // lookup.
        let bounds = self.first.iter().take(self.few - 1);
        let begun = bounds.filter(|bound| **bound < address.upper());
        self.values.get(begun.count()).copied().unwrap_or(NONE)
    }

    fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        if self.starts.len() == 1 {
            return values.fill(self.values[0]);
        }
        if self.starts.len() > COUNTED {
            for (address, value) in addresses.iter().zip(values) {
                *value = self.lookup(*address);
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `detect` found the extensions that the function is compiled for.
            return unsafe { x86::many_avx512(self, addresses, values) };
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the extension that the function is compiled for.
            return unsafe { x86::many_avx2(self, addresses, values) };
        }
        self.lookup_counting(addresses, values);
    }

    fn refresh(&mut self, _: Prefix<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild> {
        if rib.len() > REMADE {
            return Err(NeedsRebuild);
        }
        self.make(rib);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.starts.capacity() * size_of::<A>()
            + self.bounds.capacity() * 8
            + self.within.capacity() * 16
            + self.values.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the results of single lookups and of a batch.
    fn said(ranges: &Ranges<u128>, addresses: &[u128]) -> [Vec<u32>; 2] {
        let mut values = vec![0; addresses.len()];
        ranges.lookup_batch(addresses, &mut values);
        let one_by_one = addresses.iter().map(|address| ranges.lookup(*address));
        [one_by_one.collect(), values]
    }

    #[test]
    fn processors_with_and_without_extensions_say_what_the_rib_says() {
        for longest in [48, 64, 128] {
            let mut rib = Rib::<u128>::new();
            for count in 0..40u128 {
                let ranges = Ranges::build(&rib).expect("there is no limit");
                let mut plain = ranges.clone();
                plain.wide = false;
                let mut addresses = vec![0, u128::MAX];
                rib.for_each(&mut |route, _| {
                    let beside = [
                        route.address().wrapping_sub(1),
                        route.last().wrapping_add(1),
                    ];
                    addresses.extend([route.address(), route.last()].into_iter().chain(beside));
                });
                let value = |address: &u128| rib.lookup(*address).map_or(NONE, |(_, value)| value);
                let expected: Vec<u32> = addresses.iter().map(value).collect();
                for structure in [&ranges, &plain] {
                    for values in said(structure, &addresses) {
                        assert_eq!(values, expected, "{count} routes");
                    }
                }
                let address = (0x2001 << 112) | count.wrapping_mul(0x9e37_79b9_7f4a_7c15 << 40);
                rib.insert(
                    Prefix::new(address, longest - count as u32 % 20),
                    count as u32,
                );
            }
        }
    }
}
