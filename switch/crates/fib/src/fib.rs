// SPDX-License-Identifier: Apache-2.0
//! A RIB and the look-up algorithm of the moment.
//!
//! Every change goes into the RIB at once, and is seen by look-ups when [`Fib::settle`] next brings the
//! algorithm's structure in line: call it after a batch of changes, and now and then. So look-ups see all of
//! a batch or nothing, and cost what the algorithm costs. What
//! lies under another changed prefix is not looked at twice, and where most routes have changed the
//! structure is built anew instead; so a batch costs no more than a build, whatever is in it. Where the
//! structure cannot follow and it is too early to build another, a copy of the RIB answers (correct, but
//! slower).

use std::time::Instant;

use crate::algorithm::NONE;
use crate::change::{Change, outermost};
use crate::follower::{Follower, PinError, Status};
use crate::kinds::Family;
use crate::{Lines, Prefix, Rib};

/// Changes that room is kept for.
const KEPT: usize = 1024;

/// See the module. What look-ups read comes first: they are so short that a longer way to it shows.
#[derive(Debug)]
#[repr(C)]
pub struct Fib<A: Family> {
    /// What answers.
    follower: Follower<A>,
    /// What the follower has not been told of.
    changed: Vec<Change<A>>,
    rib: Rib<A>,
}

impl<A: Family> Default for Fib<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Family> Fib<A> {
    /// No routes.
    pub fn new() -> Self {
        let rib = Rib::new();
        Self {
            follower: Follower::new(&rib),
            rib,
            changed: Vec::new(),
        }
    }

    /// The routes.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// Adds a route, or gives it another value (anything but [`NONE`]); returns the value it had. Look-ups see
    /// it when it is settled, as all changes.
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        debug_assert_ne!(value, NONE, "that is the answer where no route matches");
        // What will change in the structure comes from memory while the RIB is searched.
        self.follower.lines(prefix.address()).fetch();
        let (old, change) = self.rib.put(prefix, value, 0);
        let old = old.map(|(value, _)| value);
        if old != Some(value) {
            self.changed.push(change);
        }
        old
    }

    /// Removes a route; returns the value it had.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        self.follower.lines(prefix.address()).fetch();
        let ((old, _), change) = self.rib.take(prefix)?;
        self.changed.push(change);
        Some(old)
    }

    /// What [`lines`](Self::lines) will read.
    #[inline]
    pub fn way(&self, address: A) -> Lines {
        self.follower.way(address)
    }

    /// What a look-up of this address will read: see [`Algorithm::lines`](crate::Algorithm::lines).
    #[inline]
    pub fn lines(&self, address: A) -> Lines {
        self.follower.lines(address)
    }

    /// The value of the longest prefix that contained `address` when the routes were last settled, or
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

    /// Brings the structure in line with the changes, or builds one that is due `now`, which is asked
    /// only if it matters. Call it after a batch of changes, and at least every
    /// [`LONGEST_DELAY`](crate::LONGEST_DELAY) while [`Status::pending`] is set.
    pub fn settle(&mut self, now: impl FnOnce() -> Instant) {
        outermost(&mut self.changed);
        self.follower.follow(&self.changed, &self.rib, now);
        self.forget();
    }

    /// The follower knows of all changes.
    fn forget(&mut self) {
        self.changed.clear();
        self.changed.shrink_to(KEPT);
    }

    /// Whether the structure is to be brought in line or built.
    pub fn is_pending(&self) -> bool {
        !self.changed.is_empty() || self.follower.is_pending()
    }

    /// Has an algorithm used from now on whatever the routes, or (with `None`) lets the framework
    /// choose again.
    ///
    /// # Errors
    /// There is no such algorithm, or it cannot hold the routes; nothing has changed then.
    pub fn pin(&mut self, name: Option<&str>) -> Result<(), PinError> {
        self.settle(Instant::now);
        self.follower.pin(name, &self.rib)
    }

    /// Bytes of the structure and the RIB.
    pub fn memory_bytes(&self) -> usize {
        let changed = self.changed.capacity() * size_of::<Change<A>>();
        self.follower.memory_bytes() + changed + self.rib.memory_bytes()
    }

    /// How things are. Takes time proportional to the number of routes.
    pub fn status(&self) -> Status {
        Status {
            pending: self.is_pending(),
            ..self.follower.status(&self.rib)
        }
    }
}
