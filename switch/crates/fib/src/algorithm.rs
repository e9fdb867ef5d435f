// SPDX-License-Identifier: Apache-2.0
//! The trait of lookup algorithms. An algorithm is a structure for fast lookups. It is built from the routes in a
//! [`Rib`], and can follow the RIB's changes.
//!
//! Depends only on the RIB. Invariant: the RIB is authoritative, and an algorithm holds no other routes.

use crate::address::{Address, Prefix};
use crate::change::Change;
use crate::lines::Lines;
use crate::rib::Rib;

/// Prefetch distance in changes, for the lines of [`Algorithm::lines`]. Index lines use twice this distance.
const AHEAD: usize = 4;

/// The reason why an algorithm cannot hold a set of routes. Another algorithm may be able to hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// A route's value exceeds the largest value that the structure can hold.
    ValueTooLarge {
        /// The value.
        value: u32,
        /// The largest possible value.
        limit: u32,
    },
    /// The structure needs more internal references than it can represent.
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

/// Error: the structure must be rebuilt, because it could not be updated in place, or because an update would cost more
/// than a rebuild. Until the rebuild, a lookup of an address under the changed prefix may still return the answer from
/// before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsRebuild;

/// A lookup algorithm. All algorithms give the same answers: the value of the longest prefix in the RIB that
/// contains the address.
pub trait Algorithm<A: Address>: std::fmt::Debug + Send + Sync {
    /// Builds the structure for the routes of `rib`.
    ///
    /// # Errors
    /// Fails if the routes exceed what the structure can hold.
    fn build(rib: &Rib<A>) -> Result<Self, BuildError>
    where
        Self: Sized;

    /// Returns the value of the longest prefix that contains `address`, or [`NONE`](crate::NONE).
    fn lookup(&self, address: A) -> u32;

    /// Returns the index lines: the cache lines that [`lines`](Self::lines) dereferences. Callers prefetch these first.
    fn index_lines(&self, address: A) -> Lines {
        let _ = address;
        Lines::NONE
    }

    /// Returns the cache lines that a lookup of this address reads and that are probably not in a cache near the core.
    /// Leaves out lines whose addresses are known only after other lines have been loaded.
    fn lines(&self, address: A) -> Lines {
        let _ = address;
        Lines::NONE
    }

    /// Looks up `addresses[i]` and writes the answer to `values[i]`, for every `i`. Faster than single lookups.
    ///
    /// # Panics
    /// Panics if the slices have different lengths.
    fn lookup_batch(&self, addresses: &[A], values: &mut [u32]);

    /// Updates the answers of all addresses under `prefix` to the current state of `rib`. Must be called after a route
    /// to `prefix` was added, removed or given another value. Calls are idempotent and may come in any order. After a
    /// call for each changed prefix, the structure gives the same answers as one that is built from `rib`.
    ///
    /// # Errors
    /// Fails if the structure needs to be rebuilt.
    fn refresh(&mut self, prefix: Prefix<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild>;

    /// Like [`refresh`](Self::refresh) for the prefix of a change. Implementations may use the change's details to be
    /// faster.
    ///
    /// # Errors
    /// Fails if the structure needs to be rebuilt.
    fn follow(&mut self, change: Change<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild> {
        self.refresh(change.prefix(), rib)
    }

    /// Calls [`follow`](Self::follow) for each change in order.
    ///
    /// # Errors
    /// Fails if the structure needs to be rebuilt.
    fn follow_all(&mut self, changes: &[Change<A>], rib: &Rib<A>) -> Result<(), NeedsRebuild> {
        for (index, change) in changes.iter().enumerate() {
            if let Some(later) = changes.get(index + 2 * AHEAD) {
                self.index_lines(later.prefix().address()).fetch();
            }
            if let Some(later) = changes.get(index + AHEAD) {
                self.lines(later.prefix().address()).fetch();
            }
            self.follow(*change, rib)?;
        }
        Ok(())
    }

    /// Returns the size of the structure in bytes, including its memory on the heap.
    fn memory_bytes(&self) -> usize;
}
