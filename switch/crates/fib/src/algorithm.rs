// SPDX-License-Identifier: Apache-2.0
//! What a look-up algorithm is: a structure made from the routes in a [`Rib`] for the sake of fast
//! look-ups, which can follow the RIB's changes.
//!
//! Depends on the RIB only. An algorithm never holds routes of its own: the RIB is the truth.

use crate::{Address, Change, Lines, Prefix, Rib};

/// What a look-up gives where no route matches. No route may have this value.
pub const NONE: u32 = u32::MAX;

/// How many changes ahead memory is asked for, and twice as many what leads to it.
const AHEAD: usize = 4;

/// Why an algorithm cannot hold a set of routes. Another algorithm may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// A route's value is above the largest that the structure can hold.
    ValueTooLarge {
        /// The value.
        value: u32,
        /// The largest one possible.
        limit: u32,
    },
    /// The structure's internal references do not reach far enough.
    TooManyRoutes,
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ValueTooLarge { value, limit } => {
                write!(
                    formatter,
                    "a route has value {value}, the largest possible is {limit}"
                )
            }
            Self::TooManyRoutes => formatter.write_str("the routes do not fit into the structure"),
        }
    }
}

impl std::error::Error for BuildError {}

/// The structure could not be brought up to date in place, or it would cost more than to make it
/// anew: it has to be rebuilt. Until then it answers as before the change, or as after it, for each
/// address under the changed prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsRebuild;

/// A look-up algorithm. Every one gives the same answers: the value of the longest prefix in the
/// RIB that contains the address.
pub trait Algorithm<A: Address>: std::fmt::Debug + Send + Sync {
    /// The structure for the routes of `rib`.
    ///
    /// # Errors
    /// The routes exceed what the structure can hold.
    fn build(rib: &Rib<A>) -> Result<Self, BuildError>
    where
        Self: Sized;

    /// The value of the longest prefix that contains `address`, or [`NONE`].
    fn lookup(&self, address: A) -> u32;

    /// What [`lines`](Self::lines) will read: who asks for it and has time for something else waits for neither.
    fn way(&self, address: A) -> Lines {
        let _ = address;
        Lines::NONE
    }

    /// What a look-up of this address will read that is not likely to be in a cache near by, as far as its place is
    /// known by then.
    fn lines(&self, address: A) -> Lines {
        let _ = address;
        Lines::NONE
    }

    /// Looks up `addresses[i]` into `values[i]`, for every `i`: faster than one after the other.
    ///
    /// # Panics
    /// If the slices are not equally long.
    fn lookup_batch(&self, addresses: &[A], values: &mut [u32]);

    /// Brings what is under `prefix` in line with the present state of `rib`, where a route to
    /// `prefix` has been added, removed or given another value. It may be called any number of
    /// times for one change and for many changes in any order: after a call for each of the changed
    /// prefixes, the structure is as if it were built from `rib`.
    ///
    /// # Errors
    /// The structure needs to be rebuilt.
    fn refresh(&mut self, prefix: Prefix<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild>;

    /// Does what [`refresh`](Self::refresh) does for a change's prefix, perhaps faster, with what is known of the change.
    ///
    /// # Errors
    /// The structure needs to be rebuilt.
    fn follow(&mut self, change: Change<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild> {
        self.refresh(change.prefix(), rib)
    }

    /// Does what [`follow`](Self::follow) does for one change after the other.
    ///
    /// # Errors
    /// The structure needs to be rebuilt.
    fn follow_all(&mut self, changes: &[Change<A>], rib: &Rib<A>) -> Result<(), NeedsRebuild> {
        for (index, change) in changes.iter().enumerate() {
            if let Some(later) = changes.get(index + 2 * AHEAD) {
                self.way(later.prefix().address()).fetch();
            }
            if let Some(later) = changes.get(index + AHEAD) {
                self.lines(later.prefix().address()).fetch();
            }
            self.follow(*change, rib)?;
        }
        Ok(())
    }

    /// Bytes that the structure takes, on the heap and inline.
    fn memory_bytes(&self) -> usize;
}
