// SPDX-License-Identifier: Apache-2.0
//! Maps the values of the exact fields of a longest-prefix table to data. A VRF is such a value.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};
use sluice_program::Table;

use crate::key::exact_fields;
use crate::packing::Packing;

/// Positions of the fields in a key.
#[derive(Clone, Debug)]
pub(super) struct KeyLayout {
    /// Byte ranges of the exact fields before and after the prefix field.
    exact: [Range<usize>; 2],
    /// Packing of the exact fields into a number, if these fields have at most 64 bits.
    packing: Option<Packing>,
    prefix: Range<usize>,
    pub(super) width: u32,
}

impl KeyLayout {
    /// Returns the layout of a table. `field` is the index of its prefix field.
    pub(super) fn of(table: &Table, field: usize) -> Self {
        let packed = Packing::bits(exact_fields(table)) <= u64::BITS;
        let field = &table.key[field];
        let prefix = field.offset..field.offset + field.bytes();
        Self {
            exact: [0..prefix.start, prefix.end..table.key_bytes],
            packing: packed.then(|| Packing::new(exact_fields(table))),
            prefix,
            width: u32::from(field.width),
        }
    }

    /// Returns the bytes of the exact fields, concatenated.
    fn exact(&self, key: &[u8]) -> Box<[u8]> {
        let fields = self.exact.iter();
        let bytes = fields.flat_map(|range| &key[range.clone()]);
        bytes.copied().collect()
    }

    /// Returns the prefix field as a left-aligned 32-bit address.
    #[inline]
    pub(super) fn narrow(&self, key: &[u8]) -> u32 {
        let bytes = &key[self.prefix.clone()];
        let number = match bytes.first_chunk() {
            Some(four) => u32::from_be_bytes(*four),
            None => bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
        };
        number << (u32::BITS - self.width)
    }

    /// Returns the prefix field as a left-aligned 128-bit address.
    #[inline]
    pub(super) fn wide(&self, key: &[u8]) -> u128 {
        let bytes = &key[self.prefix.clone()];
        let number = match bytes.first_chunk() {
            Some(sixteen) => u128::from_be_bytes(*sixteen),
            None => bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u128::from(*byte)),
        };
        number << (u128::BITS - self.width)
    }
}

/// Data for one value of the exact fields.
#[derive(Debug)]
pub(super) struct Vrf<T> {
    /// The exact fields as bytes, one after the other.
    pub(super) exact: Box<[u8]>,
    /// The exact fields as one number, if they can be packed; else 0.
    number: u64,
    pub(super) routes: T,
}

/// Maps each value of the exact fields, such as a VRF, to data of type `T`.
#[derive(Debug)]
pub(super) struct Vrfs<T> {
    pub(super) layout: KeyLayout,
    hasher: DefaultHashBuilder,
    pub(super) list: Vec<Vrf<T>>,
    /// Maps exact fields to positions in the list.
    index: HashTable<u32>,
}

impl<T> Vrfs<T> {
    pub(super) fn new(layout: KeyLayout) -> Self {
        Self {
            layout,
            hasher: DefaultHashBuilder::default(),
            list: Vec::new(),
            index: HashTable::new(),
        }
    }

    /// Returns the data for the exact fields whose packed number is `number`.
    #[inline]
    pub(super) fn of_number(&self, number: u64) -> Option<&T> {
        match &self.list[..] {
            [only] => (only.number == number).then_some(&only.routes),
            list => {
                let same = |at: &u32| list[*at as usize].number == number;
                let at = self.index.find(self.hasher.hash_one(number), same)?;
                list.get(*at as usize).map(|vrf| &vrf.routes)
            }
        }
    }

    /// Returns the data for the exact fields of a key.
    #[inline]
    pub(super) fn of_key(&self, key: &[u8]) -> Option<&T> {
        match &self.layout.packing {
            Some(packing) => self.of_number(packing.number(key)),
            None => self.position(key).map(|at| &self.list[at].routes),
        }
    }

    /// Returns the data for these exact fields.
    pub(super) fn of_exact(&self, exact: &[u8]) -> Option<&T> {
        let found = self.list.iter().find(|vrf| *vrf.exact == *exact);
        found.map(|vrf| &vrf.routes)
    }

    /// Returns the position in `list` of the element for a key's exact fields.
    pub(super) fn position(&self, key: &[u8]) -> Option<usize> {
        let layout = &self.layout;
        let [before, after] = layout.exact.clone().map(|range| &key[range]);
        let same = |at: &u32| {
            let known = self.list[*at as usize].exact.split_at(before.len());
            known == (before, after)
        };
        let number = layout
            .packing
            .as_ref()
            .map(|packing| packing.number(key))
            .ok_or((before, after));
        let found = self.index.find(hash(&self.hasher, number), same);
        found.map(|at| *at as usize)
    }

    /// Returns the position in `list` of the element whose exact fields equal those of `other`. `other` is an element
    /// of another map.
    pub(super) fn position_like<U>(&self, other: &Vrf<U>) -> Option<usize> {
        let same = |at: &u32| self.list[*at as usize].exact == other.exact;
        let found = self.index.find(self.hash_of(other), same);
        found.map(|at| *at as usize)
    }

    fn hash_of<U>(&self, vrf: &Vrf<U>) -> u64 {
        let number = match self.layout.packing {
            Some(_) => Ok(vrf.number),
            None => Err(vrf.exact.split_at(self.layout.exact[0].len())),
        };
        hash(&self.hasher, number)
    }

    /// Adds an element for the exact fields of a key, and returns its position. There must be no such element yet.
    pub(super) fn add(&mut self, key: &[u8], routes: T) -> usize {
        let packing = self.layout.packing.as_ref();
        self.push(Vrf {
            exact: self.layout.exact(key),
            number: packing.map_or(0, |packing| packing.number(key)),
            routes,
        })
    }

    /// Adds an element with the exact fields of `other`, which is an element of another map. Returns its position.
    pub(super) fn add_like<U>(&mut self, other: &Vrf<U>, routes: T) -> usize {
        self.push(Vrf {
            exact: other.exact.clone(),
            number: other.number,
            routes,
        })
    }

    fn push(&mut self, vrf: Vrf<T>) -> usize {
        let (at, hash) = (self.list.len(), self.hash_of(&vrf));
        self.list.push(vrf);
        let mut index = std::mem::take(&mut self.index);
        index.insert_unique(hash, at as u32, |at| self.hash_of(&self.list[*at as usize]));
        self.index = index;
        at
    }

    /// Removes the element at a position. The last element moves to this position.
    pub(super) fn remove_at(&mut self, at: usize) {
        let last = self.list.len() - 1;
        for (position, becomes) in [(at, None), (last, Some(at as u32))] {
            let hash = self.hash_of(&self.list[position]);
            let found = self
                .index
                .find_entry(hash, |known| *known as usize == position);
            if let Ok(mut place) = found {
                match becomes {
                    Some(position) => *place.get_mut() = position,
                    None => {
                        place.remove();
                    }
                }
            }
        }
        self.list.swap_remove(at);
    }
}

/// Returns the hash of exact fields, given as their packed number, or as the bytes before and after the prefix field.
fn hash(hasher: &DefaultHashBuilder, exact: Result<u64, (&[u8], &[u8])>) -> u64 {
    match exact {
        Ok(number) => hasher.hash_one(number),
        Err((before, after)) => {
            let mut hasher = hasher.build_hasher();
            hasher.write(before);
            hasher.write(after);
            hasher.finish()
        }
    }
}
