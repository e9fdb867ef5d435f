// SPDX-License-Identifier: Apache-2.0
//! A RIB and its current lookup algorithm.
//!
//! Every change enters the RIB at once. Lookups see it after the next [`Fib::settle`], which updates the
//! algorithm's structure: call it after each batch of changes, and periodically. So lookups see all of a batch
//! or nothing, and cost only what the algorithm costs.
//!
//! A batch costs at most one build, whatever it contains: a prefix under another changed prefix is not processed
//! twice, and if most routes have changed, the structure is rebuilt instead. If the structure cannot follow and
//! it is too early for a rebuild, a copy of the RIB answers (correct, but slower).

use std::time::Instant;

use crate::algorithm::NONE;
use crate::change::{Change, outermost};
use crate::follower::{Follower, PinError, Status};
use crate::kinds::Family;
use crate::{Lines, Prefix, Rib};

/// Capacity for changes that is kept between batches.
const KEPT: usize = 1024;

/// A RIB and its lookup structure; see the module. Order: fields that lookups read come first, because lookups are
/// so short that a longer address computation is measurable.
#[derive(Debug)]
#[repr(C)]
pub struct Fib<A: Family> {
    /// The lookup structure.
    follower: Follower<A>,
    /// Changes that the follower does not have yet.
    changed: Vec<Change<A>>,
    rib: Rib<A>,
}

impl<A: Family> Default for Fib<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Family> Fib<A> {
    /// Creates a FIB without routes.
    pub fn new() -> Self {
        let rib = Rib::new();
        Self {
            follower: Follower::new(&rib),
            rib,
            changed: Vec::new(),
        }
    }

    /// Returns the routes.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// Adds a route, or replaces its value (anything but [`NONE`]); returns the route's old value. As with all
    /// changes, lookups see it after the next [`settle`](Self::settle).
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        debug_assert_ne!(value, NONE, "that is the answer where no route matches");
        // Prefetch the lines of the structure that will change while the RIB is searched.
        self.follower.lines(prefix.address()).fetch();
        let (old, change) = self.rib.put(prefix, value, 0);
        let old = old.map(|(value, _)| value);
        if old != Some(value) {
            self.changed.push(change);
        }
        old
    }

    /// Removes a route; returns its value.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        self.follower.lines(prefix.address()).fetch();
        let ((old, _), change) = self.rib.take(prefix)?;
        self.changed.push(change);
        Some(old)
    }

    /// Returns the cache lines that [`lines`](Self::lines) dereferences.
    #[inline]
    pub fn way(&self, address: A) -> Lines {
        self.follower.way(address)
    }

    /// Returns the cache lines that a lookup of this address reads; see
    /// [`Algorithm::lines`](crate::Algorithm::lines).
    #[inline]
    pub fn lines(&self, address: A) -> Lines {
        self.follower.lines(address)
    }

    /// Returns the value of the longest prefix that contained `address` at the last [`settle`](Self::settle), or
    /// [`NONE`].
    #[inline]
    pub fn lookup(&self, address: A) -> u32 {
        self.follower.lookup(address)
    }

    /// Looks up `addresses[i]` into `values[i]`, for every `i`.
    ///
    /// # Panics
    /// If the slices are not equally long.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        self.follower.lookup_batch(addresses, values);
    }

    /// Applies the changes to the structure, or runs a build that is due; `now` is called only if needed. Call this
    /// after each batch of changes, and at least every [`LONGEST_DELAY`](crate::LONGEST_DELAY) while
    /// [`Status::pending`] is set.
    pub fn settle(&mut self, now: impl FnOnce() -> Instant) {
        outermost(&mut self.changed);
        self.follower.follow(&self.changed, &self.rib, now);
        self.forget();
    }

    /// Drops the recorded changes, after the follower has applied them.
    fn forget(&mut self) {
        self.changed.clear();
        self.changed.shrink_to(KEPT);
    }

    /// Returns whether the structure has changes to apply or waits for a build.
    pub fn is_pending(&self) -> bool {
        !self.changed.is_empty() || self.follower.is_pending()
    }

    /// Pins an algorithm regardless of the routes, or (with `None`) returns to automatic choice.
    ///
    /// # Errors
    /// The algorithm does not exist or cannot hold the routes; the algorithm then stays as it was.
    pub fn pin(&mut self, name: Option<&str>) -> Result<(), PinError> {
        self.settle(Instant::now);
        self.follower.pin(name, &self.rib)
    }

    /// Returns the size of the structure and the RIB in bytes.
    pub fn memory_bytes(&self) -> usize {
        let changed = self.changed.capacity() * size_of::<Change<A>>();
        self.follower.memory_bytes() + changed + self.rib.memory_bytes()
    }

    /// Returns the status. Takes time proportional to the number of routes.
    pub fn status(&self) -> Status {
        Status {
            pending: self.is_pending(),
            ..self.follower.status(&self.rib)
        }
    }
}
