// SPDX-License-Identifier: Apache-2.0
//! Look-ups: one body, compiled for what the processor may have (a bit count is one instruction or
//! a dozen), chosen when it runs; so all give the same answers.

use super::Rank;
use super::chunks::{chunk, item_address};
use crate::item::Item;

/// Look-ups that are under way together, so that their loads overlap.
const LANES: usize = 32;

/// What a look-up needs.
struct View<'a> {
    direct: &'a [u32],
    second: &'a [u32],
    base: *const u8,
}

impl<'a> View<'a> {
    #[inline(always)]
    fn of<I: Item>(rank: &'a Rank<I>) -> Self {
        Self {
            direct: &rank.direct,
            second: &rank.second.places,
            base: rank.chunks.base(),
        }
    }

    #[inline(always)]
    fn first_chunk(&self, address: u32) -> *const u8 {
        // SAFETY: there is a place for each of the 2^16 blocks, and the chunk there was given out;
        // it stays while the structure is borrowed.
        unsafe {
            let at = *self.direct.get_unchecked((address >> 16) as usize);
            chunk(self.base, at)
        }
    }

    #[inline(always)]
    fn resolve<I: Item>(&self, item: I, address: u32) -> u32 {
        match item.part() {
            None => item.value(),
            Some(index) => self.second_level::<I>(index, address),
        }
    }

    #[cold]
    fn second_level<I: Item>(&self, index: u32, address: u32) -> u32 {
        // SAFETY: a reference that is in a chunk has a chunk of the second level, which holds
        // answers only.
        let item: I = unsafe {
            let chunk = chunk(self.base, *self.second.get_unchecked(index as usize));
            *item_address(chunk, address & 0xff)
        };
        item.value()
    }

    #[inline(always)]
    fn lookup<I: Item>(&self, address: u32) -> u32 {
        let chunk = self.first_chunk(address);
        // The item is often in one of the next lines.
        prefetch(chunk.wrapping_add(64));
        prefetch(chunk.wrapping_add(128));
        // SAFETY: `first_chunk` gave a chunk.
        let item: I = unsafe { *item_address(chunk, address >> 8 & 0xff) };
        self.resolve(item, address)
    }

    #[inline(always)]
    fn lookup_batch<I: Item>(&self, addresses: &[u32], values: &mut [u32]) {
        let (batches, rest) = addresses.as_chunks::<LANES>();
        let (found, found_rest) = values.as_chunks_mut::<LANES>();
        for (addresses, values) in batches.iter().zip(found) {
            self.lookup_lanes::<I>(addresses, values);
        }
        for (address, value) in rest.iter().zip(found_rest) {
            *value = self.lookup::<I>(*address);
        }
    }

    #[inline(always)]
    fn lookup_lanes<I: Item>(&self, addresses: &[u32; LANES], values: &mut [u32; LANES]) {
        let mut chunks = [self.base; LANES];
        for lane in 0..LANES {
            chunks[lane] = self.first_chunk(addresses[lane]);
            prefetch(chunks[lane]);
        }
        let mut items = [std::ptr::null::<I>(); LANES];
        for lane in 0..LANES {
            // SAFETY: `first_chunk` gave a chunk.
            items[lane] = unsafe { item_address(chunks[lane], addresses[lane] >> 8 & 0xff) };
            prefetch(items[lane].cast());
        }
        let mut references = false;
        for lane in 0..LANES {
            // SAFETY: `item_address` gave the address of an item.
            let item = unsafe { *items[lane] };
            references |= item.part().is_some();
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

#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{Item, View};

    pub(super) fn detected() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn lookup<I: Item>(view: &View<'_>, address: u32) -> u32 {
        view.lookup::<I>(address)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    pub(super) fn lookup_batch<I: Item>(view: &View<'_>, addresses: &[u32], values: &mut [u32]) {
        view.lookup_batch::<I>(addresses, values);
    }
}

/// Asks for the place of an address's chunk.
#[inline]
pub(super) fn prefetch_place<I: Item>(rank: &Rank<I>, address: u32) {
    prefetch(
        rank.direct
            .as_ptr()
            .wrapping_add((address >> 16) as usize)
            .cast(),
    );
}

/// Asks for the chunk of an address: for the lines that its item is most likely in.
#[inline]
pub(super) fn prefetch_lookup<I: Item>(rank: &Rank<I>, address: u32) {
    let chunk = View::of(rank).first_chunk(address);
    prefetch(chunk);
    prefetch(chunk.wrapping_add(64));
    prefetch(chunk.wrapping_add(128));
}

#[inline]
pub(super) fn lookup<I: Item>(rank: &Rank<I>, address: u32) -> u32 {
    let view = View::of(rank);
    #[cfg(target_arch = "x86_64")]
    if wide::detected() {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { wide::lookup::<I>(&view, address) };
    }
    view.lookup::<I>(address)
}

pub(super) fn lookup_batch<I: Item>(rank: &Rank<I>, addresses: &[u32], values: &mut [u32]) {
    let view = View::of(rank);
    #[cfg(target_arch = "x86_64")]
    if wide::detected() {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { wide::lookup_batch::<I>(&view, addresses, values) };
    }
    view.lookup_batch::<I>(addresses, values);
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
        let rank = Rank::<u16>::build(&rib).expect("small values");
        let addresses: Vec<_> = (0..4099u32)
            .map(|i| i.wrapping_mul(0x9e37_79b9) ^ i >> 3)
            .collect();
        let mut values = vec![0; addresses.len()];
        let mut portable = values.clone();
        lookup_batch(&rank, &addresses, &mut values);
        View::of(&rank).lookup_batch::<u16>(&addresses, &mut portable);
        assert_eq!(values, portable);
        for (address, value) in addresses.iter().zip(values) {
            assert_eq!(lookup(&rank, *address), value);
            assert_eq!(View::of(&rank).lookup::<u16>(*address), value);
        }
    }
}
