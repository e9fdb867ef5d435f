// SPDX-License-Identifier: Apache-2.0
//! Ranges of addresses with one answer each, in order: for tables so small that they fit into a few
//! registers or cache lines. Up to 32 ranges, a look-up counts those that begin at or before the
//! address; more are searched by halves. Of long addresses the upper halves are compared if all
//! ranges begin where a lower half does. A batch compares sixteen addresses with one bound at a time, a
//! single address with eight bounds.

use std::ops::AddAssign;

use crate::algorithm::{Algorithm, BuildError, NONE, NeedsRebuild};
use crate::{Address, Prefix, Rib};

/// How many ranges are counted instead of searched.
const COUNTED: usize = 32;

/// How many routes are taken from the RIB again at each change.
const REMADE: usize = 64;

/// Look-ups that are under way together: so few that their counts stay in registers.
const LANES: usize = 16;

/// Bounds that are compared by one instruction.
const TOGETHER: usize = 8;

/// So few bounds are sooner compared than a vector is filled.
const ONE_BY_ONE: usize = 4;

/// See the module.
#[derive(Clone, Debug)]
pub struct Ranges<A> {
    /// Where each range begins; the first does at the lowest address.
    starts: Vec<A>,
    /// Where ranges are counted and begin where a lower half does: the upper half before each start after
    /// the first, up to a multiple of [`TOGETHER`] filled with what nothing lies beyond; else nothing.
    bounds: Vec<u64>,
    /// Each range's; where ranges are counted, so many as can be.
    values: Vec<u32>,
    /// How many ranges there are if they are so few that their bounds are compared one by one; else 0.
    few: usize,
    /// These bounds.
    first: [u64; ONE_BY_ONE],
    /// Whether the processor has AVX-512.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    wide: bool,
}

/// Whether the processor has what the widest forms are compiled for.
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

/// Values by the counts of starts.
trait Choose: Fn(&[u32; COUNTED], [u32; LANES]) -> [u32; LANES] {}

impl<T: Fn(&[u32; COUNTED], [u32; LANES]) -> [u32; LANES]> Choose for T {}

fn choose(known: &[u32; COUNTED], counts: [u32; LANES]) -> [u32; LANES] {
    counts.map(|count| known[count as usize % COUNTED])
}

impl<A: Address> Ranges<A> {
    fn make(&mut self, rib: &Rib<A>) {
        self.starts.clear();
        self.values.clear();
        self.bounds.clear();
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
        if starts
            .iter()
            .all(|start| *start == start.truncate(u64::BITS))
        {
            self.bounds
                .extend(starts.iter().map(|start| start.upper() - 1));
            let whole = starts.len().max(1).next_multiple_of(TOGETHER);
            if starts.len() <= ONE_BY_ONE {
                self.few = self.starts.len();
                self.first[..starts.len()].copy_from_slice(&self.bounds);
            }
            self.bounds.resize(whole, u64::MAX);
        }
    }

    /// The value for an address, however many ranges there are.
    #[inline(never)]
    fn lookup_among_many(&self, address: A) -> u32 {
        if !self.bounds.is_empty() {
            #[cfg(target_arch = "x86_64")]
            if self.wide {
                // SAFETY: `detect` has found what the function is compiled for.
                return unsafe { x86::one_avx512(self, address.upper()) };
            }
            let begun = self.bounds.iter().filter(|bound| **bound < address.upper());
            return self.values[begun.count()];
        }
        if self.starts.len() <= COUNTED {
            let begun = self.starts[1..].iter().filter(|start| **start <= address);
            return self.values[begun.count()];
        }
        let index = self.starts.partition_point(|start| *start <= address);
        self.values[index - 1]
    }

    #[inline(always)]
    fn lookup_counting(&self, addresses: &[A], values: &mut [u32], choose: impl Choose) {
        let others = &self.starts[1..];
        if A::BITS <= u64::BITS || self.bounds.is_empty() {
            let at_or_after = |address: A, start: A| address >= start;
            self.count::<A, A, u32>(
                others,
                |address| address,
                at_or_after,
                addresses,
                values,
                choose,
            );
        } else {
            let bounds = &self.bounds[..others.len()];
            let beyond = |upper: u64, bound: u64| upper > bound;
            self.count::<u64, u64, u64>(bounds, A::upper, beyond, addresses, values, choose);
        }
    }

    /// Counts the bounds that lie before each address, of which `part` is
    /// compared; counters as wide as that keep it in vectors of one shape.
    #[inline(always)]
    fn count<T: Copy + Default, B: Copy, C: Copy + Default + AddAssign + From<bool> + Into<u64>>(
        &self,
        bounds: &[B],
        part: impl Fn(A) -> T,
        beyond: impl Fn(T, B) -> bool,
        addresses: &[A],
        values: &mut [u32],
        choose: impl Choose,
    ) {
        let Some(known) = self.values.first_chunk::<COUNTED>() else {
            return;
        };
        let (batches, rest) = addresses.as_chunks::<LANES>();
        let (found, found_rest) = values.as_chunks_mut::<LANES>();
        for (addresses, values) in batches.iter().zip(found) {
            let mut parts = [T::default(); LANES];
            for lane in 0..LANES {
                parts[lane] = part(addresses[lane]);
            }
            let mut counts = [C::default(); LANES];
            for bound in bounds {
                for lane in 0..LANES {
                    counts[lane] += C::from(beyond(parts[lane], *bound));
                }
            }
            *values = choose(known, counts.map(|count| count.into() as u32));
        }
        for (address, value) in rest.iter().zip(found_rest) {
            *value = self.lookup(*address);
        }
    }
}

/// The same with wider registers.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Address, COUNTED, LANES, Ranges, TOGETHER, choose};

    #[target_feature(enable = "avx2")]
    pub(super) fn many_avx2<A: Address>(ranges: &Ranges<A>, addresses: &[A], values: &mut [u32]) {
        ranges.lookup_counting(addresses, values, choose);
    }

    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) fn many_avx512<A: Address>(ranges: &Ranges<A>, addresses: &[A], values: &mut [u32]) {
        ranges.lookup_counting(addresses, values, |known, counts| {
            choose_avx512(known, counts)
        });
    }

    /// A table of 32 values is two registers, in which all lanes look at once.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn choose_avx512(known: &[u32; COUNTED], counts: [u32; LANES]) -> [u32; LANES] {
        let (near, far) = known.split_at(COUNTED / 2);
        let mut values = [0; LANES];
        // SAFETY: loads and a store of sixteen numbers each, as long as the arrays and their halves are.
        unsafe {
            let [near, far, counts] =
                [near, far, &counts[..]].map(|from| _mm512_loadu_si512(from.as_ptr().cast()));
            let found = _mm512_permutex2var_epi32(near, counts, far);
            _mm512_storeu_si512(values.as_mut_ptr().cast(), found);
        }
        values
    }

    /// The value by how many bounds, as many as make up whole registers, are below a key.
    #[target_feature(enable = "avx512f,popcnt")]
    pub(super) fn one_avx512<A: Address>(ranges: &Ranges<A>, key: u64) -> u32 {
        let key = _mm512_set1_epi64(key as i64);
        let (groups, _) = ranges.bounds.as_chunks::<TOGETHER>();
        let below = groups.iter().map(|group| {
            // SAFETY: a load of the group's eight numbers.
            let group = unsafe { _mm512_loadu_si512(group.as_ptr().cast()) };
            _mm512_cmplt_epu64_mask(group, key).count_ones()
        });
        ranges.values[below.sum::<u32>() as usize]
    }
}

impl<A: Address> Algorithm<A> for Ranges<A> {
    fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        let mut made = Self {
            starts: Vec::new(),
            bounds: Vec::new(),
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
        // Nothing here that could panic: a look-up would save registers, which takes as long as the rest.
        let bounds = self.first.iter().take(self.few - 1);
        let begun = bounds.filter(|bound| **bound < address.upper());
        self.values.get(begun.count()).copied().unwrap_or(NONE)
    }

    fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        if self.starts.len() > COUNTED {
            for (address, value) in addresses.iter().zip(values) {
                *value = self.lookup(*address);
            }
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `detect` has found what the function is compiled for.
            return unsafe { x86::many_avx512(self, addresses, values) };
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { x86::many_avx2(self, addresses, values) };
        }
        self.lookup_counting(addresses, values, choose);
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
            + self.values.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What look-ups say, one by one and in a batch.
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
