// SPDX-License-Identifier: Apache-2.0
//! Exact match for short keys: an array with an element for every possible key. Most tables of a program have short
//! keys, for example the tables of interfaces, next hops and groups.

use sluice_program::Table;

use crate::packing::Packing;
use crate::slab::Record;
use crate::staggered::StaggeredArray;

/// Maximum number of bits of a key.
pub(crate) const MAX_KEY_BITS: u32 = 22;

#[derive(Debug)]
pub(crate) struct Direct {
    packing: Packing,
    /// For each key, the slot of its entry plus 1, or 0 for no entry.
    slots: StaggeredArray,
    /// For each key, the head of its entry's row, or 0 for no entry. Only in a table with a profile.
    heads: Option<StaggeredArray>,
    keys: usize,
}

impl Direct {
    /// Returns the number of bits of a table's key, or `None` if the key is too long for this structure. All fields of
    /// the key must be exact.
    pub(crate) fn bits(table: &Table) -> Option<u32> {
        let bits = Packing::bits(table.key.iter());
        (1..=MAX_KEY_BITS).contains(&bits).then_some(bits)
    }

    pub(super) fn new(table: &Table, bits: u32) -> Self {
        let keys = 1 << bits;
        Self {
            packing: Packing::new(table.key.iter()),
            slots: StaggeredArray::sparse(keys * size_of::<u32>()),
            heads: table
                .profile
                .map(|_| StaggeredArray::sparse(keys * size_of::<u64>())),
            keys,
        }
    }

    /// Returns the start of the array of slots, for machine code.
    pub(crate) fn start(&self) -> *const u32 {
        self.slots.start().cast_const().cast()
    }

    fn slots(&self) -> &[u32] {
        // SAFETY: this number of bytes is usable, any bytes are valid numbers, and the array is aligned to a cache
        // line. Code that writes the array borrows `self` exclusively.
        unsafe { std::slice::from_raw_parts(self.slots.start().cast(), self.keys) }
    }

    /// Returns the start of the array of heads, for machine code, or null if the table has no heads.
    pub(crate) fn heads(&self) -> *const u64 {
        let heads = self.heads.as_ref();
        heads.map_or(std::ptr::null(), |heads| heads.start().cast_const().cast())
    }

    fn set(&mut self, key: &[u8], slot_plus_1: u32, head: u64) {
        let number = self.packing.number(key) as usize;
        // SAFETY: as for `slots`, and `self` is borrowed exclusively.
        let slots = unsafe { std::slice::from_raw_parts_mut(self.slots.start().cast(), self.keys) };
        slots[number] = slot_plus_1;
        if let Some(heads) = &self.heads {
            // SAFETY: as for `slots`. There is one head for each key, and the array is aligned to a cache line.
            let heads =
                unsafe { std::slice::from_raw_parts_mut(heads.start().cast::<u64>(), self.keys) };
            heads[number] = head;
        }
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        self.set(entry.value(), entry.slot() + 1, entry.head());
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        self.set(entry.value(), 0, 0);
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        let number = self.packing.number(key) as usize;
        self.slots().get(number)?.checked_sub(1)
    }
}
