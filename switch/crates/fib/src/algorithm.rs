// SPDX-License-Identifier: Apache-2.0
//! The trait of lookup algorithms. An algorithm is a structure built from the routes in a [`Rib`] for fast
//! lookups, which can follow the RIB's changes.
//!
//! Depends on the RIB only. Invariant: an algorithm holds no routes of its own; the RIB is authoritative.

use crate::{Address, Change, Lines, Prefix, Rib};

/// Result of a lookup that no route matches. No route may have this value.
pub const NONE: u32 = u32::MAX;

/// Prefetch distance of [`Algorithm::lines`], in changes. [`Algorithm::way`] uses twice this distance.
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

/// The structure must be rebuilt: it could not be updated in place, or an update would cost more than a rebuild.
/// Until then each address under the changed prefix gets the answer from before or from after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsRebuild;

/// A lookup algorithm. All algorithms give the same answers: the value of the longest prefix in the RIB that
/// contains the address.
pub trait Algorithm<A: Address>: std::fmt::Debug + Send + Sync {
    /// Builds the structure for the routes of `rib`.
    ///
    /// # Errors
    /// The routes exceed what the structure can hold.
    fn build(rib: &Rib<A>) -> Result<Self, BuildError>
    where
        Self: Sized;

    /// Returns the value of the longest prefix that contains `address`, or [`NONE`].
    fn lookup(&self, address: A) -> u32;

    /// Returns the cache lines that [`lines`](Self::lines) dereferences. Callers prefetch these first.
    fn way(&self, address: A) -> Lines {
        let _ = address;
        Lines::NONE
    }

    /// Returns the cache lines that a lookup of this address reads and that are probably not in a near cache, as
    /// far as their addresses are known at this point.
    fn lines(&self, address: A) -> Lines {
        let _ = address;
        Lines::NONE
    }

    /// Looks up `addresses[i]` into `values[i]` for every `i`, faster than one by one.
    ///
    /// # Panics
    /// If the slices are not equally long.
    fn lookup_batch(&self, addresses: &[A], values: &mut [u32]);

    /// Updates all addresses under `prefix` to the current state of `rib`, after a route to `prefix` was added,
    /// removed or given another value. Calls are idempotent and may come in any order: after a call for each
    /// changed prefix, the structure is as if it were built from `rib`.
    ///
    /// # Errors
    /// The structure needs to be rebuilt.
    fn refresh(&mut self, prefix: Prefix<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild>;

    /// Like [`refresh`](Self::refresh) for a change's prefix, but may use the details of the change to be faster.
    ///
    /// # Errors
    /// The structure needs to be rebuilt.
    fn follow(&mut self, change: Change<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild> {
        self.refresh(change.prefix(), rib)
    }

    /// Calls [`follow`](Self::follow) for each change in order.
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

    /// Returns the size of the structure in bytes, on the heap and inline.
    fn memory_bytes(&self) -> usize;
}
