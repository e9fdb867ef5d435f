// SPDX-License-Identifier: Apache-2.0
//! DIR-24-8 (Gupta, Lin, McKeown: "Routing lookups in hardware at memory access speeds", INFOCOM 1998). The first 24
//! bits of an IPv4 address index a table of answers. A /24 with longer prefixes has a second-level table of 256
//! answers.
//!
//! Almost every lookup is one load, from 32 or 64 MiB. Serves for comparison, and for users with much memory and little
//! other use for the cache.

#![expect(private_bounds, reason = "Dir24x16 and Dir24x32 are all there are")]

use crate::algorithm::{Algorithm, BuildError, NeedsRebuild};
use crate::item::Item;
use crate::{Lines, Prefix, Rib};

/// [`Dir24`] for values up to 32,766, and for up to 32,767 /24s with longer prefixes.
pub type Dir24x16 = Dir24<u16>;

/// [`Dir24`] for values up to 2³¹ − 2.
pub type Dir24x32 = Dir24<u32>;

/// The DIR-24-8 structure; see the module.
#[derive(Clone, Debug)]
pub struct Dir24<I: Item> {
    first: Vec<I>,
    second: Vec<[I; 256]>,
    free: Vec<u32>,
}

/// Lookups whose loads overlap.
const LANES: usize = 32;

impl<I: Item> Dir24<I> {
    #[inline(always)]
    fn resolve(&self, item: I, address: u32) -> u32 {
        match item.part() {
            None => item.value(),
            Some(index) => self.second[index as usize][(address & 0xff) as usize].value(),
        }
    }

    /// Updates everything under a prefix, of at most 24 bits, from the RIB.
    fn fill(&mut self, prefix: Prefix<u32>, rib: &Rib<u32>) -> Result<(), BuildError> {
        let first = (prefix.address() >> 8) as usize;
        let end = (prefix.last() >> 8) as usize + 1;
        for item in &self.first[first..end] {
            self.free.extend(item.part());
        }
        let mut outcome = Ok(());
        // The open range: the first /24 still to be written, and its answer.
        let mut open = (first, I::answer(None));
        rib.for_each_range(prefix, &mut |address, value| {
            if let Some(value) = value.filter(|value| *value > I::LIMIT) {
                let limit = I::LIMIT;
                outcome = Err(BuildError::ValueTooLarge { value, limit });
            }
            if outcome.is_ok() {
                match self.begin(address, open, I::answer(value)) {
                    Ok(next) => open = next,
                    Err(error) => outcome = Err(error),
                }
            }
        });
        self.first[open.0..end].fill(open.1);
        outcome
    }

    /// Writes the open range up to an address where another range begins. Returns the new open range.
    fn begin(
        &mut self,
        address: u32,
        (from, before): (usize, I),
        item: I,
    ) -> Result<(usize, I), BuildError> {
        let cell = (address >> 8) as usize;
        let inside = (address & 0xff) as usize;
        if inside == 0 {
            if from < cell {
                self.first[from..cell].fill(before);
            }
            return Ok((cell, item));
        }
        if from <= cell {
            self.first[from..=cell].fill(before);
        }
        let index = match self.first[cell].part() {
            Some(index) => index,
            None => self.divide(cell)?,
        };
        self.second[index as usize][inside..].fill(item);
        Ok((cell + 1, item))
    }

    /// Gives a /24 its own second-level table, filled with its present answer.
    fn divide(&mut self, cell: usize) -> Result<u32, BuildError> {
        let part = [self.first[cell]; 256];
        let index = match self.free.pop() {
            Some(index) => {
                self.second[index as usize] = part;
                index
            }
            None => {
                self.second.push(part);
                self.second.len() as u32 - 1
            }
        };
        if index > I::LIMIT {
            return Err(BuildError::TooManyRoutes);
        }
        self.first[cell] = I::reference(index);
        Ok(index)
    }
}

impl<I: Item> Algorithm<u32> for Dir24<I> {
    fn build(rib: &Rib<u32>) -> Result<Self, BuildError> {
        let mut made = Self {
            first: vec![I::answer(None); 1 << 24],
            second: Vec::new(),
            free: Vec::new(),
        };
        made.fill(Prefix::new(0, 0), rib)?;
        Ok(made)
    }

    #[inline]
    fn lookup(&self, address: u32) -> u32 {
        self.resolve(self.first[(address >> 8) as usize], address)
    }

    fn lines(&self, address: u32) -> Lines {
        Lines::of(self.first.as_ptr().wrapping_add((address >> 8) as usize))
    }

    fn lookup_batch(&self, addresses: &[u32], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        let chunks = addresses.chunks(LANES).zip(values.chunks_mut(LANES));
        for (addresses, values) in chunks {
            let mut items = [I::answer(None); LANES];
            for (item, address) in items.iter_mut().zip(addresses) {
                *item = self.first[(address >> 8) as usize];
            }
            for ((value, item), address) in values.iter_mut().zip(items).zip(addresses) {
                *value = self.resolve(item, *address);
            }
        }
    }

    fn refresh(&mut self, prefix: Prefix<u32>, rib: &Rib<u32>) -> Result<(), NeedsRebuild> {
        let prefix = Prefix::new(prefix.address(), prefix.length().min(24));
        self.fill(prefix, rib).map_err(|_| NeedsRebuild)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.first.capacity() * I::SIZE
            + self.second.capacity() * 256 * I::SIZE
            + self.free.capacity() * 4
    }
}
