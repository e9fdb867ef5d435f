// SPDX-License-Identifier: Apache-2.0
//! A RIB that records its changes for its followers.
//!
//! A change enters the RIB immediately. Lookups in a follower see it only after the follower has applied the recorded
//! changes. So lookups see all changes of a batch or none. Order: callers change the routes, call
//! [`reduce`](TrackedRib::reduce), have every follower apply [`changes`](TrackedRib::changes), and then call
//! [`forget`](TrackedRib::forget).

use crate::address::{Address, Prefix};
use crate::answer::NONE;
use crate::change::{Change, outermost};
use crate::rib::Rib;

/// Capacity, in changes, that stays allocated between batches.
const RETAINED_CHANGES: usize = 1024;

/// A RIB and its changes since the followers were last updated; see the module.
#[derive(Debug)]
pub struct TrackedRib<A> {
    rib: Rib<A>,
    changes: Vec<Change<A>>,
}

impl<A: Address> Default for TrackedRib<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Address> TrackedRib<A> {
    /// Creates a RIB without routes and without recorded changes.
    pub fn new() -> Self {
        Self {
            rib: Rib::new(),
            changes: Vec::new(),
        }
    }

    /// Returns the routes.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// Returns the recorded changes.
    pub fn changes(&self) -> &[Change<A>] {
        &self.changes
    }

    /// Adds a route, or replaces the route's value and note. The value must not be [`NONE`]. Returns the old value.
    /// Records a change if the value differs from the old one.
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32, note: u32) -> Option<u32> {
        debug_assert_ne!(value, NONE, "that is the answer where no route matches");
        let (old, change) = self.rib.put(prefix, value, note);
        let old = old.map(|(value, _)| value);
        if old != Some(value) {
            self.changes.push(change);
        }
        old
    }

    /// Removes a route, and records the change. Returns the route's value.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let ((old, _), change) = self.rib.take(prefix)?;
        self.changes.push(change);
        Some(old)
    }

    /// Removes each change whose prefix is covered by the prefix of another change. So followers process each address
    /// only once.
    pub fn reduce(&mut self) {
        outermost(&mut self.changes);
    }

    /// Drops the recorded changes. Order: all followers must have applied them before.
    pub fn forget(&mut self) {
        self.changes.clear();
        self.changes.shrink_to(RETAINED_CHANGES);
    }
}
