// SPDX-License-Identifier: Apache-2.0
//! Longest prefix match with any number of exact fields beside it (a VRF, say): a FIB for each value
//! of the exact fields.
//!
//! A FIB's values are classes of entries that lead to the same where packets leave nothing behind at
//! an entry; otherwise they are the entries' slots.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use hashbrown::{DefaultHashBuilder, HashTable};
use sluice_fib::{Family, Fib, NONE, PinError, Prefix, Rib, Status, Trial};
use sluice_program::Table;

use super::Found;
use super::classes::Classes;
use crate::entry::EntryState;
use crate::handle::exact_fields;
use crate::packing::Packing;
use crate::slab::{Record, Slab, class_target};

/// The routes of one value of the exact fields, by the narrower address type that holds the field.
#[derive(Debug)]
enum Width {
    Narrow(Fib<u32>),
    Wide(Fib<u128>),
}

#[derive(Debug)]
struct Group {
    /// The exact fields' bytes, one after the other.
    exact: Box<[u8]>,
    /// These as one number, if they make one.
    number: u64,
    routes: Width,
}

/// Where a key's fields are.
#[derive(Clone, Debug)]
struct Layout {
    /// The exact fields: before and after the prefix field.
    exact: [Range<usize>; 2],
    /// How these make a number, if they have at most 64 bits.
    packing: Option<Packing>,
    prefix: Range<usize>,
    width: u32,
}

#[derive(Debug)]
pub(crate) struct LpmTable {
    layout: Layout,
    hasher: DefaultHashBuilder,
    groups: Vec<Group>,
    /// Positions of groups, by their exact fields.
    index: HashTable<u32>,
    /// The algorithm for groups that are yet to be made, if an operator has pinned one.
    pinned: Option<String>,
    /// Whether a FIB waits to be built.
    pending: bool,
    classes: Option<Classes>,
}

impl Layout {
    /// The hash of the exact fields of a key.
    fn hash(&self, hasher: &DefaultHashBuilder, key: &[u8]) -> u64 {
        if let Some(packing) = &self.packing {
            return hasher.hash_one(packing.number(key));
        }
        let mut hasher = hasher.build_hasher();
        for range in &self.exact {
            hasher.write(&key[range.clone()]);
        }
        hasher.finish()
    }

    fn hash_group(&self, hasher: &DefaultHashBuilder, group: &Group) -> u64 {
        if self.packing.is_some() {
            return hasher.hash_one(group.number);
        }
        let (before, after) = group.exact.split_at(self.exact[0].len());
        let mut hasher = hasher.build_hasher();
        hasher.write(before);
        hasher.write(after);
        hasher.finish()
    }

    #[inline]
    fn same_exact(&self, group: &Group, key: &[u8]) -> bool {
        let (before, after) = group.exact.split_at(self.exact[0].len());
        before == &key[self.exact[0].clone()] && after == &key[self.exact[1].clone()]
    }

    /// The prefix field as an IPv4-like address: left-aligned.
    #[inline]
    fn narrow(&self, key: &[u8]) -> u32 {
        let bytes = &key[self.prefix.clone()];
        let number = match bytes.first_chunk() {
            Some(four) => u32::from_be_bytes(*four),
            None => bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
        };
        number << (u32::BITS - self.width)
    }

    /// The prefix field as an IPv6-like address.
    #[inline]
    fn wide(&self, key: &[u8]) -> u128 {
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

impl LpmTable {
    pub(super) fn new(table: &Table, field: usize, slab: &Arc<Slab>) -> Self {
        let packed = Packing::bits(exact_fields(table)) <= u64::BITS;
        let field = &table.key[field];
        let prefix = field.offset..field.offset + field.bytes();
        Self {
            layout: Layout {
                exact: [0..prefix.start, prefix.end..table.key_bytes],
                packing: packed.then(|| Packing::new(exact_fields(table))),
                prefix,
                width: u32::from(field.width),
            },
            hasher: DefaultHashBuilder::default(),
            groups: Vec::new(),
            index: HashTable::new(),
            pinned: None,
            pending: false,
            classes: (!EntryState::kept_by(table)).then(|| Classes::new(slab.layout().row_words())),
        }
    }

    /// The routes for the exact fields of a key.
    #[inline]
    fn group(&self, key: &[u8]) -> Option<&Group> {
        match &self.layout.packing {
            Some(packing) => self.group_of(packing.number(key)),
            None => self.groups.get(self.position(key)?),
        }
    }

    /// The routes for exact fields that make this number.
    #[inline]
    fn group_of(&self, number: u64) -> Option<&Group> {
        match &self.groups[..] {
            [only] => Some(only).filter(|group| group.number == number),
            groups => {
                let same = |at: &u32| groups[*at as usize].number == number;
                let at = self.index.find(self.hasher.hash_one(number), same)?;
                groups.get(*at as usize)
            }
        }
    }

    /// The position of the group for the exact fields of a key.
    fn position(&self, key: &[u8]) -> Option<usize> {
        let hash = self.layout.hash(&self.hasher, key);
        let same = |at: &u32| self.layout.same_exact(&self.groups[*at as usize], key);
        self.index.find(hash, same).map(|at| *at as usize)
    }

    /// The routes for a key's exact fields, made if there are none.
    fn routes(&mut self, key: &[u8]) -> &mut Width {
        let at = self.position(key).unwrap_or_else(|| {
            let Self {
                layout,
                hasher,
                groups,
                index,
                ..
            } = self;
            let at = groups.len();
            let exact = layout.exact.iter();
            groups.push(Group {
                exact: exact
                    .flat_map(|range| &key[range.clone()])
                    .copied()
                    .collect(),
                number: layout
                    .packing
                    .as_ref()
                    .map_or(0, |packing| packing.number(key)),
                routes: Width::new(layout.width, self.pinned.as_deref()),
            });
            index.insert_unique(layout.hash(hasher, key), at as u32, |at| {
                layout.hash_group(hasher, &groups[*at as usize])
            });
            at
        });
        &mut self.groups[at].routes
    }

    /// Takes out a group without routes.
    fn take_out(&mut self, at: usize) {
        let last = self.groups.len() - 1;
        for (position, becomes) in [(at, None), (last, Some(at as u32))] {
            let hash = self.layout.hash_group(&self.hasher, &self.groups[position]);
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
        self.groups.swap_remove(at);
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        let (key, length) = (entry.value(), entry.prefix_len());
        let value = match &mut self.classes {
            Some(classes) => classes.add(&entry),
            None => entry.slot(),
        };
        let layout = self.layout.clone();
        let routes = self.routes(key);
        let replaced = match routes {
            Width::Narrow(routes) => routes.insert(Prefix::new(layout.narrow(key), length), value),
            Width::Wide(routes) => routes.insert(Prefix::new(layout.wide(key), length), value),
        };
        self.pending |= routes.is_pending();
        self.release(replaced);
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        let (key, length) = (entry.value(), entry.prefix_len());
        let Some(at) = self.position(key) else { return };
        let (layout, routes) = (&self.layout, &mut self.groups[at].routes);
        let removed = match routes {
            Width::Narrow(routes) => routes.remove(Prefix::new(layout.narrow(key), length)),
            Width::Wide(routes) => routes.remove(Prefix::new(layout.wide(key), length)),
        };
        self.pending |= routes.is_pending();
        if routes.is_empty() {
            self.take_out(at);
        }
        self.release(removed);
    }

    /// One entry fewer has a class.
    fn release(&mut self, class: Option<u32>) {
        if let (Some(classes), Some(class)) = (&mut self.classes, class) {
            classes.release(class);
        }
    }

    /// The class or slot of what a key matches.
    #[inline]
    fn value(&self, key: &[u8]) -> Option<u32> {
        let value = match &self.group(key)?.routes {
            Width::Narrow(routes) => routes.lookup(self.layout.narrow(key)),
            Width::Wide(routes) => routes.lookup(self.layout.wide(key)),
        };
        (value != NONE).then_some(value)
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<Found<'_>> {
        let value = self.value(key)?;
        Some(match &self.classes {
            Some(classes) => {
                let (target, slot) = classes.get(value);
                Found::Class(target, slot)
            }
            None => Found::Slot(value),
        })
    }

    /// The row of what a key matches.
    #[inline]
    pub(super) fn row(&self, slab: &Slab, key: &[u8]) -> Option<*const u64> {
        self.value(key).map(|value| self.row_at(slab, value))
    }

    /// The row of what an address of at most 32 bits matches, left-aligned, under exact fields that
    /// make this number.
    #[inline]
    pub(crate) fn row_narrow(&self, slab: &Slab, exact: u64, address: u32) -> Option<*const u64> {
        let Width::Narrow(routes) = &self.group_of(exact)?.routes else {
            return None;
        };
        let value = routes.lookup(address);
        (value != NONE).then(|| self.row_at(slab, value))
    }

    /// Asks for the memory that [`prefetch_narrow`](Self::prefetch_narrow) will read.
    #[inline]
    pub(crate) fn approach_narrow(&self, exact: u64, address: u32) {
        if let Some(group) = self.group_of(exact)
            && let Width::Narrow(fib) = &group.routes
        {
            fib.approach(address);
        }
    }

    /// Asks for the memory that [`prefetch_wide`](Self::prefetch_wide) will read.
    #[inline]
    pub(crate) fn approach_wide(&self, exact: u64, address: u128) {
        if let Some(group) = self.group_of(exact)
            && let Width::Wide(fib) = &group.routes
        {
            fib.approach(address);
        }
    }

    /// Asks for the memory that [`row_wide`](Self::row_wide) will read.
    #[inline]
    pub(crate) fn prefetch_wide(&self, exact: u64, address: u128) {
        if let Some(group) = self.group_of(exact)
            && let Width::Wide(fib) = &group.routes
        {
            fib.prefetch(address);
        }
    }

    /// Asks for the memory that [`row_narrow`](Self::row_narrow) will read.
    #[inline]
    pub(crate) fn prefetch_narrow(&self, exact: u64, address: u32) {
        if let Some(group) = self.group_of(exact)
            && let Width::Narrow(fib) = &group.routes
        {
            fib.prefetch(address);
        }
    }

    /// Likewise for an address of more bits.
    #[inline]
    pub(crate) fn row_wide(&self, slab: &Slab, exact: u64, address: u128) -> Option<*const u64> {
        let Width::Wide(routes) = &self.group_of(exact)?.routes else {
            return None;
        };
        let value = routes.lookup(address);
        (value != NONE).then(|| self.row_at(slab, value))
    }

    /// The row of a class or slot.
    #[inline]
    fn row_at(&self, slab: &Slab, value: u32) -> *const u64 {
        match &self.classes {
            Some(classes) => classes.row(value).as_ptr(),
            None => slab.row(value),
        }
    }

    /// What is behind a row.
    ///
    /// # Safety
    /// This table gave it, and has not changed since.
    pub(super) unsafe fn at(&self, slab: &Slab, row: *const u64) -> Found<'_> {
        match &self.classes {
            Some(classes) => {
                // SAFETY: the caller's promise: it is one of the classes' rows.
                let row = unsafe { std::slice::from_raw_parts(row, classes.words()) };
                let (target, slot) = class_target(row);
                Found::Class(target, slot)
            }
            None => Found::Slot(slab.slot_of(row)),
        }
    }

    /// The length of the longest prefix that a key matches.
    pub(super) fn prefix_len(&self, key: &[u8]) -> Option<u32> {
        match &self.group(key)?.routes {
            Width::Narrow(routes) => {
                let found = routes.rib().lookup(self.layout.narrow(key));
                found.map(|(prefix, _)| prefix.length())
            }
            Width::Wide(routes) => {
                let found = routes.rib().lookup(self.layout.wide(key));
                found.map(|(prefix, _)| prefix.length())
            }
        }
    }

    /// Builds the structures that are due.
    pub(super) fn settle(&mut self, now: Instant) {
        if !self.pending {
            return;
        }
        self.pending = false;
        for group in &mut self.groups {
            let pending = match &mut group.routes {
                Width::Narrow(routes) => settled(routes, now),
                Width::Wide(routes) => settled(routes, now),
            };
            self.pending |= pending;
        }
    }

    /// Whether a structure waits to be built.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// How the FIBs are: for each its exact fields' bytes, and its status.
    pub(crate) fn status(&self) -> Vec<(Vec<u8>, Status)> {
        let status = |group: &Group| match &group.routes {
            Width::Narrow(routes) => routes.status(),
            Width::Wide(routes) => routes.status(),
        };
        let groups = self.groups.iter();
        groups
            .map(|group| (group.exact.to_vec(), status(group)))
            .collect()
    }

    /// Pins an algorithm, or with `None` lets the framework choose: for the FIB of these exact
    /// fields, or for all, those to come included. Says whether there is such a FIB; on an error,
    /// every FIB that can has the algorithm.
    pub(crate) fn pin(
        &mut self,
        exact: Option<&[u8]>,
        name: Option<&str>,
    ) -> Result<bool, PinError> {
        let known: Vec<_> = match self.layout.width {
            ..=32 => u32::KINDS.iter().map(|kind| kind.name).collect(),
            _ => u128::KINDS.iter().map(|kind| kind.name).collect(),
        };
        if name.is_some_and(|name| !known.contains(&name)) {
            return Err(PinError::Unknown { known });
        }
        if exact.is_none() {
            self.pinned = name.map(str::to_owned);
        }
        let (mut found, mut outcome) = (exact.is_none(), Ok(()));
        for group in &mut self.groups {
            if exact.is_none_or(|exact| *group.exact == *exact) {
                found = true;
                outcome = outcome.and(match &mut group.routes {
                    Width::Narrow(routes) => routes.pin(name),
                    Width::Wide(routes) => routes.pin(name),
                });
            }
        }
        outcome.map(|()| found)
    }

    /// A copy of the routes of these exact fields.
    pub(crate) fn copy(&self, exact: &[u8]) -> Option<RibCopy> {
        let group = self.groups.iter().find(|group| *group.exact == *exact)?;
        Some(match &group.routes {
            Width::Narrow(routes) => RibCopy::Narrow(routes.rib().clone()),
            Width::Wide(routes) => RibCopy::Wide(routes.rib().clone()),
        })
    }
}

/// Routes taken out of a table, to try algorithms on.
#[derive(Debug)]
pub(crate) enum RibCopy {
    Narrow(Rib<u32>),
    Wide(Rib<u128>),
}

impl RibCopy {
    pub(crate) fn try_algorithms(&self) -> Vec<Trial> {
        match self {
            Self::Narrow(rib) => rib.try_algorithms(),
            Self::Wide(rib) => rib.try_algorithms(),
        }
    }
}

/// No routes yet.
fn fib<A: Family>(pinned: Option<&str>) -> Fib<A> {
    let mut fib = Fib::new();
    // An algorithm that was pinned for other groups can hold no routes as well.
    let _ = fib.pin(pinned);
    fib
}

/// Builds what is due; says whether a structure still waits.
fn settled<A: Family>(fib: &mut Fib<A>, now: Instant) -> bool {
    fib.settle(now);
    fib.is_pending()
}

impl Width {
    fn new(width: u32, pinned: Option<&str>) -> Self {
        if width <= u32::BITS {
            Self::Narrow(fib(pinned))
        } else {
            Self::Wide(fib(pinned))
        }
    }

    fn is_pending(&self) -> bool {
        match self {
            Self::Narrow(routes) => routes.is_pending(),
            Self::Wide(routes) => routes.is_pending(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Narrow(routes) => routes.rib().is_empty(),
            Self::Wide(routes) => routes.rib().is_empty(),
        }
    }
}
