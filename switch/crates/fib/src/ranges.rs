// SPDX-License-Identifier: Apache-2.0
//! Ranges of addresses with one answer each, in order: for tables so small that they fit into a few
//! registers or cache lines. Up to 32 ranges, a look-up counts those that begin at or before the
//! address; more are searched by halves. Of long addresses the upper halves are compared if all
//! ranges begin where a lower half does.

use std::ops::AddAssign;

use crate::algorithm::{Algorithm, BuildError, NONE, NeedsRebuild};
use crate::{Address, Prefix, Rib};

/// How many ranges are counted instead of searched.
const COUNTED: usize = 32;

/// How many routes are taken from the RIB again at each change.
const REMADE: usize = 64;

/// Look-ups that are under way together: so few that their counts stay in registers.
const LANES: usize = 16;

/// See the module.
#[derive(Clone, Debug)]
pub struct Ranges<A> {
    /// Where each range begins; the first does at the lowest address.
    starts: Vec<A>,
    /// The upper halves of the starts, if that says it all and they are to be counted; else nothing.
    uppers: Vec<u64>,
    /// Each range's; where ranges are counted, so many as can be.
    values: Vec<u32>,
}

impl<A: Address> Ranges<A> {
    fn make(&mut self, rib: &Rib<A>) {
        self.starts.clear();
        self.values.clear();
        rib.for_each_range(Prefix::new(A::default(), 0), &mut |first, value| {
            self.starts.push(first);
            self.values.push(value.unwrap_or(NONE));
        });
        if self.starts.len() <= COUNTED {
            self.values.resize(COUNTED, NONE);
        }
        self.uppers.clear();
        let whole = |start: &A| *start == start.truncate(u64::BITS);
        if A::BITS > u64::BITS && self.starts.len() <= COUNTED && self.starts.iter().all(whole) {
            self.uppers
                .extend(self.starts.iter().map(|start| start.upper()));
        }
    }

    #[inline(always)]
    fn lookup_counting(&self, addresses: &[A], values: &mut [u32]) {
        if self.uppers.is_empty() {
            self.count::<A, u32>(&self.starts, |address| address, addresses, values);
        } else {
            self.count::<u64, u64>(&self.uppers, A::upper, addresses, values);
        }
    }

    /// Counts the `starts` after the first that lie at or before each address, of which `part` is
    /// compared; counters as wide as that keep it in vectors of one shape.
    #[inline(always)]
    fn count<T: Copy + Default + Ord, C: Copy + Default + AddAssign + From<bool> + Into<u64>>(
        &self,
        starts: &[T],
        part: impl Fn(A) -> T,
        addresses: &[A],
        values: &mut [u32],
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
            for start in &starts[1..] {
                for lane in 0..LANES {
                    counts[lane] += C::from(parts[lane] >= *start);
                }
            }
            for lane in 0..LANES {
                let count: u64 = counts[lane].into();
                values[lane] = known[count as usize % COUNTED];
            }
        }
        for (address, value) in rest.iter().zip(found_rest) {
            *value = self.lookup(*address);
        }
    }

    /// The same body with wider registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn lookup_counting_avx2(&self, addresses: &[A], values: &mut [u32]) {
        self.lookup_counting(addresses, values);
    }

    /// And with the widest.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
    fn lookup_counting_avx512(&self, addresses: &[A], values: &mut [u32]) {
        self.lookup_counting(addresses, values);
    }
}

impl<A: Address> Algorithm<A> for Ranges<A> {
    fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        let mut made = Self {
            starts: Vec::new(),
            uppers: Vec::new(),
            values: Vec::new(),
        };
        made.make(rib);
        made.starts.shrink_to_fit();
        made.values.shrink_to_fit();
        Ok(made)
    }

    #[inline]
    fn lookup(&self, address: A) -> u32 {
        if let [_, uppers @ ..] = &self.uppers[..] {
            let begun = uppers.iter().filter(|start| **start <= address.upper());
            return self.values[begun.count()];
        }
        if self.starts.len() <= COUNTED {
            let begun = self.starts[1..].iter().filter(|start| **start <= address);
            return self.values[begun.count()];
        }
        let index = self.starts.partition_point(|start| *start <= address);
        self.values[index - 1]
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
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the processor has what the function is compiled for: AVX-512 is not without
            // AVX2.
            return unsafe { self.lookup_counting_avx512(addresses, values) };
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { self.lookup_counting_avx2(addresses, values) };
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
            + self.uppers.capacity() * 8
            + self.values.capacity() * 4
    }
}
