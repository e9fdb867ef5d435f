// SPDX-License-Identifier: Apache-2.0
//! SAs by key. A lookup gives a place, by which an SA is prefetched first and served later.

use std::hash::Hash;

use hashbrown::HashMap;

use crate::prefetch::prefetch;

/// Where an SA is in its table, until it is removed.
pub(crate) type Place = u32;

/// SAs, each in memory of its own, so that none moves when others come and go.
pub(crate) struct SaTable<K, S> {
    places: HashMap<K, Place>,
    sas: Vec<Option<Box<S>>>,
    free: Vec<Place>,
}

impl<K, S> Default for SaTable<K, S> {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            sas: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<K: Hash + Eq, S> SaTable<K, S> {
    /// The number of SAs.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is an SA of this key.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// Adds an SA; none may have this key yet.
    pub(crate) fn insert(&mut self, key: K, sa: Box<S>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.sas.push(None);
            (self.sas.len() - 1) as Place
        });
        self.sas[place as usize] = Some(sa);
        let before = self.places.insert(key, place);
        debug_assert!(before.is_none());
    }

    /// Removes an SA.
    pub(crate) fn remove(&mut self, key: &K) -> Option<Box<S>> {
        let place = self.places.remove(key)?;
        self.free.push(place);
        self.sas[place as usize].take()
    }

    /// Where an SA is.
    #[inline]
    pub(crate) fn find(&self, key: &K) -> Option<Place> {
        self.places.get(key).copied()
    }

    /// The SA at a place.
    #[inline]
    pub(crate) fn at(&mut self, place: Place) -> Option<&mut S> {
        self.sas.get_mut(place as usize)?.as_deref_mut()
    }

    /// An SA by its key.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut S> {
        self.at(self.find(key)?)
    }

    /// Prefetches the SA at a place.
    #[inline]
    pub(crate) fn prefetch(&self, place: Place) {
        if let Some(sa) = self.peek(place) {
            prefetch(sa);
        }
    }

    /// The SA at a place, to be read only.
    #[inline]
    pub(crate) fn peek(&self, place: Place) -> Option<&S> {
        self.sas.get(place as usize)?.as_deref()
    }

    /// All SAs, in no order, to be read only.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> {
        self.sas.iter().filter_map(Option::as_deref)
    }

    /// All SAs, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.sas.iter_mut().filter_map(Option::as_deref_mut)
    }
}
