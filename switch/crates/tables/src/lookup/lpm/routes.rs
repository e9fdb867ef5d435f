// SPDX-License-Identifier: Apache-2.0
//! The routes of a longest-prefix table. The authoritative copy of the table changes them, and both replicas update
//! their lookup structures from them.
//!
//! This module records which prefixes changed since both replicas were last updated. A route holds the value that
//! lookups return, and also its entry's slot. So the authoritative copy needs no other index to find an entry. The
//! number of a class is reused only when neither replica uses it any more.

use std::sync::Arc;

use parking_lot::RwLock;
use sluice_fib::{Address, Prefix, Rib, TOGETHER, TrackedRib, Trial};
use sluice_program::Table;

use super::classes::Classes;
use super::vrfs::{KeyLayout, Vrfs};
use crate::entry_state::EntryState;
use crate::key::KeyRef;
use crate::slab::{Record, Slab};

/// Prefetches the records of the entries with these keys. Reads the routes of several keys together, so that cache
/// misses overlap.
fn prefetch<A: Address>(
    rib: &Rib<A>,
    slab: &Slab,
    keys: &[KeyRef<'_>],
    prefix: impl Fn(&KeyRef<'_>) -> Prefix<A>,
) {
    for keys in keys.chunks(TOGETHER) {
        let mut prefixes = [Prefix::new(A::default(), 0); TOGETHER];
        for (known, key) in prefixes.iter_mut().zip(keys) {
            *known = prefix(key);
        }
        rib.get_all(&prefixes[..keys.len()], |found| {
            if let Some((_, slot)) = found {
                slab.prefetch(slot);
            }
        });
    }
}

/// Routes of one VRF. The address type is the narrowest one that holds the prefix field.
#[derive(Debug)]
pub(super) enum VrfRoutes {
    Narrow(TrackedRib<u32>),
    Wide(TrackedRib<u128>),
}

impl VrfRoutes {
    fn new(width: u32) -> Self {
        if width <= u32::BITS {
            Self::Narrow(TrackedRib::new())
        } else {
            Self::Wide(TrackedRib::new())
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Narrow(routes) => routes.rib().is_empty(),
            Self::Wide(routes) => routes.rib().is_empty(),
        }
    }

    fn is_changed(&self) -> bool {
        match self {
            Self::Narrow(routes) => !routes.changes().is_empty(),
            Self::Wide(routes) => !routes.changes().is_empty(),
        }
    }

    /// Returns the length and the value of the longest prefix that a key matches.
    pub(super) fn longest(&self, layout: &KeyLayout, key: &[u8]) -> Option<(u32, u32)> {
        match self {
            Self::Narrow(routes) => {
                let found = routes.rib().lookup(layout.narrow(key));
                found.map(|(prefix, value)| (prefix.length(), value))
            }
            Self::Wide(routes) => {
                let found = routes.rib().lookup(layout.wide(key));
                found.map(|(prefix, value)| (prefix.length(), value))
            }
        }
    }
}

/// Returns the slot of a route's entry.
fn slot_of<A: Address>(routes: &TrackedRib<A>, prefix: Prefix<A>) -> Option<u32> {
    routes.rib().get_noted(prefix).map(|(_, slot)| slot)
}

/// The routes of a table; see the module.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(super) vrfs: Vrfs<VrfRoutes>,
    /// Positions of VRFs with recorded changes. Invariant: these positions are stable until the changes are cleared.
    pub(super) touched: Vec<usize>,
    /// Classes of targets. `None` if the values for lookups are slots.
    pub(super) classes: Option<Classes>,
}

/// The routes behind a lock. The authoritative copy of the table takes the lock to change the routes. A replica takes
/// it to update its lookup structures. Packets never wait for this lock.
pub(crate) type SharedRoutes = Arc<RwLock<Routes>>;

impl Routes {
    /// Creates the routes of a table. `field` is the index of its prefix field.
    pub(crate) fn new(table: &Table, field: usize, slab: &Slab) -> Self {
        let classes = !EntryState::is_kept_by(table);
        Self {
            vrfs: Vrfs::new(KeyLayout::of(table, field)),
            touched: Vec::new(),
            classes: classes.then(|| Classes::new(slab.layout().row_words())),
        }
    }

    /// Returns the slot of the entry with this key.
    pub(crate) fn slot(&self, key: &[u8], length: u32) -> Option<u32> {
        let layout = &self.vrfs.layout;
        match self.vrfs.of_key(key)? {
            VrfRoutes::Narrow(routes) => slot_of(routes, Prefix::new(layout.narrow(key), length)),
            VrfRoutes::Wide(routes) => slot_of(routes, Prefix::new(layout.wide(key), length)),
        }
    }

    /// Prefetches the records of the entries with these keys, for changes of the entries. Reads the routes of all keys
    /// together, so that cache misses overlap.
    pub(crate) fn prefetch(&self, slab: &Slab, keys: &[KeyRef<'_>]) {
        let layout = &self.vrfs.layout;
        // Usually all keys are in one VRF.
        let routes = keys.first().and_then(|key| self.vrfs.of_key(key.stored()));
        match routes {
            Some(VrfRoutes::Narrow(routes)) => {
                let prefix =
                    |key: &KeyRef<'_>| Prefix::new(layout.narrow(key.stored()), key.prefix_len());
                prefetch(routes.rib(), slab, keys, prefix);
            }
            Some(VrfRoutes::Wide(routes)) => {
                let prefix =
                    |key: &KeyRef<'_>| Prefix::new(layout.wide(key.stored()), key.prefix_len());
                prefetch(routes.rib(), slab, keys, prefix);
            }
            None => {}
        }
    }

    /// Adds an entry, or replaces the entry with an equal key.
    pub(crate) fn insert(&mut self, entry: Record<'_>) {
        let (key, length, slot) = (entry.value(), entry.prefix_len(), entry.slot());
        let value = match &mut self.classes {
            Some(classes) => classes.add(&entry),
            None => slot,
        };
        let at = self.vrfs.position(key).unwrap_or_else(|| {
            let width = self.vrfs.layout.width;
            self.vrfs.add(key, VrfRoutes::new(width))
        });
        let replaced = self.change(at, |routes, layout| match routes {
            VrfRoutes::Narrow(routes) => {
                routes.insert(Prefix::new(layout.narrow(key), length), value, slot)
            }
            VrfRoutes::Wide(routes) => {
                routes.insert(Prefix::new(layout.wide(key), length), value, slot)
            }
        });
        self.release(replaced);
    }

    /// Removes the entry that has the key of `entry`.
    pub(crate) fn remove(&mut self, entry: Record<'_>) {
        let (key, length) = (entry.value(), entry.prefix_len());
        let Some(at) = self.vrfs.position(key) else {
            return;
        };
        let removed = self.change(at, |routes, layout| match routes {
            VrfRoutes::Narrow(routes) => routes.remove(Prefix::new(layout.narrow(key), length)),
            VrfRoutes::Wide(routes) => routes.remove(Prefix::new(layout.wide(key), length)),
        });
        self.release(removed);
    }

    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut VrfRoutes, &KeyLayout) -> R) -> R {
        let Vrfs { layout, list, .. } = &mut self.vrfs;
        let routes = &mut list[at].routes;
        let before = routes.is_changed();
        let outcome = change(routes, layout);
        if !before && routes.is_changed() {
            self.touched.push(at);
        }
        outcome
    }

    /// Decrements the number of entries of a class.
    fn release(&mut self, class: Option<u32>) {
        if let (Some(classes), Some(class)) = (&mut self.classes, class) {
            classes.release(class);
        }
    }

    /// Drops recorded changes whose prefix is covered by another changed prefix. Order: must be called before the
    /// replicas update their lookup structures.
    pub(crate) fn compact_changes(&mut self) {
        for at in &self.touched {
            match &mut self.vrfs.list[*at].routes {
                VrfRoutes::Narrow(routes) => routes.reduce(),
                VrfRoutes::Wide(routes) => routes.reduce(),
            }
        }
    }

    /// Clears the recorded changes. Order: must be called after both replicas have updated their lookup structures.
    pub(crate) fn clear_changes(&mut self) {
        if let Some(classes) = &mut self.classes {
            classes.clear_changes();
        }
        // Order: the highest position comes first, because a removal moves the last VRF to the position of the removed
        // VRF.
        self.touched.sort_unstable();
        while let Some(at) = self.touched.pop() {
            let routes = &mut self.vrfs.list[at].routes;
            match routes {
                VrfRoutes::Narrow(routes) => routes.forget(),
                VrfRoutes::Wide(routes) => routes.forget(),
            }
            if routes.is_empty() {
                self.vrfs.remove_at(at);
            }
        }
    }

    /// Returns a copy of the routes with these exact fields, or `None` if there are no such routes.
    pub(crate) fn copy(&self, exact: &[u8]) -> Option<RibCopy> {
        let routes = self.vrfs.of_exact(exact)?;
        (!routes.is_empty()).then(|| match routes {
            VrfRoutes::Narrow(routes) => RibCopy::Narrow(routes.rib().clone()),
            VrfRoutes::Wide(routes) => RibCopy::Wide(routes.rib().clone()),
        })
    }
}

/// A copy of routes, on which algorithms are measured.
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
