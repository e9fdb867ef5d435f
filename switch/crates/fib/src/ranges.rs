// SPDX-License-Identifier: Apache-2.0
//! Ranges of addresses with one answer each, in order: for tables so small that they fit into a few
//! registers or cache lines. Up to 32 ranges, a look-up counts those that begin at or before the
//! address; more are searched by halves.

use crate::algorithm::{Algorithm, BuildError, NONE, NeedsRebuild};
use crate::{Address, Prefix, Rib};

/// How many ranges are counted instead of searched.
const COUNTED: usize = 32;

/// How many routes are taken from the RIB again at each change.
const REMADE: usize = 64;

/// Look-ups that are under way together.
const LANES: usize = 32;

/// See the module.
#[derive(Clone, Debug)]
pub struct Ranges<A> {
    /// Where each range begins; the first does at the lowest address.
    starts: Vec<A>,
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
    }

    #[inline(always)]
    fn lookup_counting(&self, addresses: &[A], values: &mut [u32]) {
        let (batches, rest) = addresses.as_chunks::<LANES>();
        let (found, found_rest) = values.as_chunks_mut::<LANES>();
        for (addresses, values) in batches.iter().zip(found) {
            // How many ranges after the first begin at or before each address.
            let mut counts = [0u32; LANES];
            for start in &self.starts[1..] {
                for lane in 0..LANES {
                    counts[lane] += u32::from(addresses[lane] >= *start);
                }
            }
            for lane in 0..LANES {
                values[lane] = self.values[counts[lane] as usize];
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
}

impl<A: Address> Algorithm<A> for Ranges<A> {
    fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        let mut made = Self {
            starts: Vec::new(),
            values: Vec::new(),
        };
        made.make(rib);
        made.starts.shrink_to_fit();
        made.values.shrink_to_fit();
        Ok(made)
    }

    #[inline]
    fn lookup(&self, address: A) -> u32 {
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
        size_of::<Self>() + self.starts.capacity() * size_of::<A>() + self.values.capacity() * 4
    }
}
