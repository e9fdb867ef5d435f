// SPDX-License-Identifier: Apache-2.0
//! Longest prefix match with any number of exact fields beside it (a VRF, say): a FIB for each value
//! of the exact fields.
//!
//! A FIB's values are classes of entries that lead to the same where packets leave nothing behind at
//! an entry; otherwise they are the entries' slots.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::time::Instant;

use hashbrown::{DefaultHashBuilder, HashTable};
use sluice_fib::{Family, Fib, NONE, PinError, Prefix, Rib, Status, Trial};
use sluice_program::Table;

use super::Found;
use super::classes::Classes;
use crate::entry::EntryState;
use crate::slab::Record;

/// The routes of one value of the exact fields.
#[derive(Debug)]
struct Routes<A: Family> {
    fib: Fib<A>,
    /// The slot of the entry behind a prefix, where the FIB's values are classes.
    slots: Option<Rib<A>>,
}

/// Routes by the narrower address type that holds the field.
#[derive(Debug)]
enum Width {
    Narrow(Routes<u32>),
    Wide(Routes<u128>),
}

#[derive(Debug)]
struct Group {
    /// The exact fields' bytes, one after the other.
    exact: Box<[u8]>,
    routes: Width,
}

/// Where a key's fields are.
#[derive(Clone, Debug)]
struct Layout {
    /// The exact fields: before and after the prefix field.
    exact: [Range<usize>; 2],
    prefix: Range<usize>,
    width: u32,
}

#[derive(Debug)]
pub(crate) struct LpmTable {
    layout: Layout,
    hasher: DefaultHashBuilder,
    groups: HashTable<Group>,
    /// The algorithm for groups that are yet to be made, if an operator has pinned one.
    pinned: Option<String>,
    /// Whether a FIB waits to be built.
    pending: bool,
    classes: Option<Classes>,
}

impl Layout {
    fn hash(&self, hasher: &DefaultHashBuilder, key: &[u8]) -> u64 {
        let mut hasher = hasher.build_hasher();
        for range in &self.exact {
            hasher.write(&key[range.clone()]);
        }
        hasher.finish()
    }

    fn hash_exact(&self, hasher: &DefaultHashBuilder, exact: &[u8]) -> u64 {
        let (before, after) = exact.split_at(self.exact[0].len());
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
    pub(super) fn new(table: &Table, field: usize) -> Self {
        let field = &table.key[field];
        let prefix = field.offset..field.offset + field.bytes();
        Self {
            layout: Layout {
                exact: [0..prefix.start, prefix.end..table.key_bytes],
                prefix,
                width: u32::from(field.width),
            },
            hasher: DefaultHashBuilder::default(),
            groups: HashTable::new(),
            pinned: None,
            pending: false,
            classes: (!EntryState::kept_by(table)).then(Classes::default),
        }
    }

    #[inline]
    fn group(&self, key: &[u8]) -> Option<&Group> {
        let same = |group: &Group| self.layout.same_exact(group, key);
        if self.groups.len() == 1 {
            return self.groups.iter().next().filter(|group| same(group));
        }
        self.groups.find(self.layout.hash(&self.hasher, key), same)
    }

    /// The routes for a key's exact fields, made if there are none.
    fn routes(&mut self, key: &[u8]) -> &mut Width {
        let Self {
            layout,
            hasher,
            groups,
            ..
        } = self;
        let hash = layout.hash(hasher, key);
        let place = groups.entry(
            hash,
            |group| layout.same_exact(group, key),
            |group| layout.hash_exact(hasher, &group.exact),
        );
        let classified = self.classes.is_some();
        let group = place.or_insert_with(|| Group {
            exact: layout
                .exact
                .iter()
                .flat_map(|range| &key[range.clone()])
                .copied()
                .collect(),
            routes: Width::new(layout.width, classified, self.pinned.as_deref()),
        });
        &mut group.into_mut().routes
    }

    pub(super) fn insert(&mut self, entry: Record<'_>) {
        let (key, length, slot) = (entry.value(), entry.prefix_len(), entry.slot());
        let class = self.classes.as_mut().map(|classes| classes.add(&entry));
        let layout = self.layout.clone();
        let routes = self.routes(key);
        let replaced = match routes {
            Width::Narrow(routes) => {
                routes.insert(Prefix::new(layout.narrow(key), length), slot, class)
            }
            Width::Wide(routes) => {
                routes.insert(Prefix::new(layout.wide(key), length), slot, class)
            }
        };
        self.pending |= routes.is_pending();
        self.release(replaced);
    }

    pub(super) fn remove(&mut self, entry: Record<'_>) {
        let (key, length) = (entry.value(), entry.prefix_len());
        let Self { layout, hasher, .. } = self;
        let hash = layout.hash(hasher, key);
        let found = self
            .groups
            .find_entry(hash, |group| layout.same_exact(group, key));
        let Ok(mut place) = found else { return };
        let routes = &mut place.get_mut().routes;
        let removed = match routes {
            Width::Narrow(routes) => routes.remove(Prefix::new(layout.narrow(key), length)),
            Width::Wide(routes) => routes.remove(Prefix::new(layout.wide(key), length)),
        };
        self.pending |= routes.is_pending();
        if routes.is_empty() {
            place.remove();
        }
        self.release(removed);
    }

    /// One entry fewer has a class.
    fn release(&mut self, class: Option<u32>) {
        if let (Some(classes), Some(class)) = (&mut self.classes, class) {
            classes.release(class);
        }
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<Found<'_>> {
        let value = match &self.group(key)?.routes {
            Width::Narrow(routes) => routes.fib.lookup(self.layout.narrow(key)),
            Width::Wide(routes) => routes.fib.lookup(self.layout.wide(key)),
        };
        if value == NONE {
            return None;
        }
        match &self.classes {
            Some(classes) => {
                let (target, slot) = classes.get(value)?;
                Some(Found::Class(target, slot))
            }
            None => Some(Found::Slot(value)),
        }
    }

    /// The slot of the entry that a key matches.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        match &self.group(key)?.routes {
            Width::Narrow(routes) => routes.slot(self.layout.narrow(key)),
            Width::Wide(routes) => routes.slot(self.layout.wide(key)),
        }
    }

    /// Builds the structures that are due.
    pub(super) fn settle(&mut self, now: Instant) {
        if !self.pending {
            return;
        }
        self.pending = false;
        for group in self.groups.iter_mut() {
            let pending = match &mut group.routes {
                Width::Narrow(routes) => routes.settle(now),
                Width::Wide(routes) => routes.settle(now),
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
            Width::Narrow(routes) => routes.fib.status(),
            Width::Wide(routes) => routes.fib.status(),
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
        for group in self.groups.iter_mut() {
            if exact.is_none_or(|exact| *group.exact == *exact) {
                found = true;
                outcome = outcome.and(match &mut group.routes {
                    Width::Narrow(routes) => routes.fib.pin(name),
                    Width::Wide(routes) => routes.fib.pin(name),
                });
            }
        }
        outcome.map(|()| found)
    }

    /// A copy of the routes of these exact fields.
    pub(crate) fn copy(&self, exact: &[u8]) -> Option<RibCopy> {
        let group = self.groups.iter().find(|group| *group.exact == *exact)?;
        Some(match &group.routes {
            Width::Narrow(routes) => RibCopy::Narrow(routes.fib.rib().clone()),
            Width::Wide(routes) => RibCopy::Wide(routes.fib.rib().clone()),
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

impl<A: Family> Routes<A> {
    fn new(classified: bool, pinned: Option<&str>) -> Self {
        let mut fib = Fib::new();
        // An algorithm that was pinned for other groups can hold no routes as well.
        let _ = fib.pin(pinned);
        Self {
            fib,
            slots: classified.then(Rib::new),
        }
    }

    /// Returns the class of the entry that was replaced.
    fn insert(&mut self, prefix: Prefix<A>, slot: u32, class: Option<u32>) -> Option<u32> {
        if let Some(slots) = &mut self.slots {
            slots.insert(prefix, slot);
        }
        self.fib.insert(prefix, class.unwrap_or(slot))
    }

    /// Returns the class of the entry that was there.
    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        if let Some(slots) = &mut self.slots {
            slots.remove(prefix);
        }
        self.fib.remove(prefix)
    }

    fn slot(&self, address: A) -> Option<u32> {
        let slots = self.slots.as_ref().unwrap_or(self.fib.rib());
        slots.lookup(address).map(|(_, slot)| slot)
    }

    /// Whether a structure still waits.
    fn settle(&mut self, now: Instant) -> bool {
        self.fib.settle(now);
        self.fib.is_pending()
    }
}

impl Width {
    fn new(width: u32, classified: bool, pinned: Option<&str>) -> Self {
        if width <= u32::BITS {
            Self::Narrow(Routes::new(classified, pinned))
        } else {
            Self::Wide(Routes::new(classified, pinned))
        }
    }

    fn is_pending(&self) -> bool {
        match self {
            Self::Narrow(routes) => routes.fib.is_pending(),
            Self::Wide(routes) => routes.fib.is_pending(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Narrow(routes) => routes.fib.rib().is_empty(),
            Self::Wide(routes) => routes.fib.rib().is_empty(),
        }
    }
}
