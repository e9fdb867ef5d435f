// SPDX-License-Identifier: Apache-2.0
//! Lookups. A bit count takes one instruction with a processor extension, and a dozen without it. So one function body
//! is compiled for several sets of extensions, and the best version is selected at run time. All versions give the same
//! answers, because they have the same source.

use super::BitmapRank;
use super::chunks::{chunk, item_address};
use crate::lines::{Lines, fetch};
use crate::lookup_item::LookupItem;

/// Number of lookups that proceed together, so that their loads overlap.
const LANES: usize = 32;

/// Number of lines of a chunk that are prefetched before the item's line is known. The item is nearly always in one of
/// these lines.
const LINES: usize = 3;

/// The data that a lookup reads.
struct View<'a, I: LookupItem> {
    rank: &'a BitmapRank<I>,
    direct: &'a [u32],
    base: *const u8,
}

impl<'a, I: LookupItem> View<'a, I> {
    #[inline(always)]
    fn of(rank: &'a BitmapRank<I>) -> Self {
        Self {
            rank,
            direct: &rank.direct,
            base: rank.chunks.base(),
        }
    }

    #[inline(always)]
    fn first_chunk(&self, address: u32) -> *const u8 {
        // SAFETY: each of the 2^16 blocks has an offset, and the chunk at this offset is allocated. The chunk stays
        // while the structure is borrowed.
        unsafe {
            let at = *self.direct.get_unchecked((address >> 16) as usize);
            chunk(self.base, at)
        }
    }

    #[inline(always)]
    fn resolve(&self, item: I, address: u32) -> u32 {
        match item.reference_index() {
            None => item.value(),
            Some(index) => second_level(self.rank, index, address),
        }
    }

    #[inline(always)]
    fn lookup(&self, address: u32) -> u32 {
        let chunk = self.first_chunk(address);
        // The item is often in one of the next two lines.
        fetch(chunk.wrapping_add(64));
        fetch(chunk.wrapping_add(128));
        // SAFETY: `first_chunk` returned a chunk.
        let item: I = unsafe { *item_address(chunk, address >> 8 & 0xff) };
        self.resolve(item, address)
    }

    #[inline(always)]
    fn lookup_batch(&self, addresses: &[u32], values: &mut [u32]) {
        let (batches, rest) = addresses.as_chunks::<LANES>();
        let (found, found_rest) = values.as_chunks_mut::<LANES>();
        for (addresses, values) in batches.iter().zip(found) {
            self.lookup_lanes(addresses, values);
        }
        for (address, value) in rest.iter().zip(found_rest) {
            *value = self.lookup(*address);
        }
    }

    #[inline(always)]
    fn lookup_lanes(&self, addresses: &[u32; LANES], values: &mut [u32; LANES]) {
        let mut chunks = [self.base; LANES];
        for lane in 0..LANES {
            chunks[lane] = self.first_chunk(addresses[lane]);
            fetch(chunks[lane]);
        }
        let mut items = [std::ptr::null::<I>(); LANES];
        for lane in 0..LANES {
            // SAFETY: `first_chunk` returned a chunk.
            items[lane] = unsafe { item_address(chunks[lane], addresses[lane] >> 8 & 0xff) };
            fetch(items[lane]);
        }
        let mut references = false;
        for lane in 0..LANES {
            // SAFETY: `item_address` returned the address of an item.
            let item = unsafe { *items[lane] };
            references |= item.reference_index().is_some();
            values[lane] = item.value();
        }
        if references {
            for lane in 0..LANES {
                // SAFETY: as above.
                values[lane] = self.resolve(unsafe { *items[lane] }, addresses[lane]);
            }
        }
    }
}

/// Looks up an address in a second-level chunk, which holds only answers. This is a separate function, so that a lookup
/// in the first level reserves no registers for it.
#[cold]
#[inline(never)]
fn second_level<I: LookupItem>(rank: &BitmapRank<I>, index: u32, address: u32) -> u32 {
    // SAFETY: for each reference in a chunk there is a second-level chunk, which holds only answers.
    let item: I = unsafe {
        let offset = *rank.second.offsets.get_unchecked(index as usize);
        *item_address(chunk(rank.chunks.base(), offset), address & 0xff)
    };
    item.value()
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{BitmapRank, LookupItem, View};

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn lookup<I: LookupItem>(rank: &BitmapRank<I>, address: u32) -> u32 {
        View::of(rank).lookup(address)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn lookup_batch<I: LookupItem>(
        rank: &BitmapRank<I>,
        addresses: &[u32],
        values: &mut [u32],
    ) {
        View::of(rank).lookup_batch(addresses, values);
    }
}

/// Returns the line that holds the offset of an address's chunk.
#[inline]
pub(super) fn index_lines<I: LookupItem>(rank: &BitmapRank<I>, address: u32) -> Lines {
    let offsets = rank.direct.as_ptr();
    Lines::of(offsets.wrapping_add((address >> 16) as usize))
}

/// Returns the lines of an address's chunk that most likely contain its item.
#[inline]
pub(super) fn lines<I: LookupItem>(rank: &BitmapRank<I>, address: u32) -> Lines {
    Lines::from(View::of(rank).first_chunk(address), LINES)
}

#[inline]
pub(super) fn lookup<I: LookupItem>(rank: &BitmapRank<I>, address: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if rank.wide {
        // SAFETY: `detect` found the extensions that the function needs.
        return unsafe { wide::lookup(rank, address) };
    }
    lookup_portably(rank, address)
}

#[inline(never)]
fn lookup_portably<I: LookupItem>(rank: &BitmapRank<I>, address: u32) -> u32 {
    View::of(rank).lookup(address)
}

pub(super) fn lookup_batch<I: LookupItem>(
    rank: &BitmapRank<I>,
    addresses: &[u32],
    values: &mut [u32],
) {
    #[cfg(target_arch = "x86_64")]
    if rank.wide {
        // SAFETY: `detect` found the extensions that the function needs.
        return unsafe { wide::lookup_batch(rank, addresses, values) };
    }
    View::of(rank).lookup_batch(addresses, values);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Prefix, Rib};

    #[test]
    fn the_portable_body_gives_the_same_answers() {
        let mut rib = Rib::new();
        for index in 0..2000u32 {
            let address = index.wrapping_mul(0x9e37_79b9);
            rib.insert(Prefix::new(address, 8 + index % 25), index % 300);
        }
        let rank = BitmapRank::<u16>::build(&rib).expect("small values");
        let addresses: Vec<_> = (0..4099u32)
            .map(|i| i.wrapping_mul(0x9e37_79b9) ^ i >> 3)
            .collect();
        let mut values = vec![0; addresses.len()];
        let mut portable = values.clone();
        lookup_batch(&rank, &addresses, &mut values);
        View::of(&rank).lookup_batch(&addresses, &mut portable);
        assert_eq!(values, portable);
        for (address, value) in addresses.iter().zip(values) {
            assert_eq!(lookup(&rank, *address), value);
            assert_eq!(lookup_portably(&rank, *address), value);
        }
    }
}
