// SPDX-License-Identifier: Apache-2.0
//! The structure as a lookup algorithm.

use super::{BitmapRank, Scratch, kernel};
use crate::address::Prefix;
use crate::algorithm::{Algorithm, BuildError, NeedsRebuild};
use crate::answer::NONE;
use crate::change::Change;
use crate::lines::Lines;
use crate::lookup_item::LookupItem;
use crate::rib::Rib;

impl<I: LookupItem> Algorithm<u32> for BitmapRank<I> {
    fn build(rib: &Rib<u32>) -> Result<Self, BuildError> {
        let mut rank = Self::without_routes();
        rank.fill(Prefix::new(0, 0), rib)?;
        rank.chunks.shrink();
        rank.second.offsets.shrink_to_fit();
        rank.scratch = Scratch::default();
        Ok(rank)
    }

    fn lookup(&self, address: u32) -> u32 {
        kernel::lookup(self, address)
    }

    fn index_lines(&self, address: u32) -> Lines {
        kernel::index_lines(self, address)
    }

    fn lines(&self, address: u32) -> Lines {
        kernel::lines(self, address)
    }

    fn lookup_batch(&self, addresses: &[u32], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        kernel::lookup_batch(self, addresses, values);
    }

    fn refresh(&mut self, prefix: Prefix<u32>, rib: &Rib<u32>) -> Result<(), NeedsRebuild> {
        let prefix = Prefix::new(prefix.address(), prefix.length().min(24));
        self.fill(prefix, rib).map_err(|_| NeedsRebuild)?;
        self.tidy();
        Ok(())
    }

    fn follow(&mut self, change: Change<u32>, rib: &Rib<u32>) -> Result<(), NeedsRebuild> {
        let prefix = change.prefix();
        match change.answer() {
            Some(value)
                if (16..=24).contains(&prefix.length()) && (value <= I::LIMIT || value == NONE) =>
            {
                // An item is the value plus one. The item 0 stands for no route.
                let item = I::new(value.wrapping_add(1));
                self.assign(prefix, item).map_err(|_| NeedsRebuild)?;
                self.tidy();
                Ok(())
            }
            _ => self.refresh(prefix, rib),
        }
    }

    fn memory_bytes(&self) -> usize {
        let offsets =
            self.direct.capacity() + self.second.offsets.capacity() + self.second.free.capacity();
        size_of::<Self>() + offsets * 4 + self.chunks.memory_bytes() + self.shared.capacity() * 16
    }
}
