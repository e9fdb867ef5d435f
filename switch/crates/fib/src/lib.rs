// SPDX-License-Identifier: Apache-2.0
//! Longest-prefix-match look-up structures.
//!
//! [`Lpm`] is what a look-up structure can do; [`TreeBitmap`] is the one in use: updated in place,
//! a few cache lines a look-up, compact enough for full Internet tables. Addresses are `u32`
//! (IPv4) or `u128` (IPv6 and every other width up to 128 bits, left-aligned).
//!
//! Depends on nothing. Promises: every structure agrees with a linear search over its prefixes
//! (property-tested), whatever the order of updates.

mod address;
mod algorithm;
mod line_trie;
mod pool;
mod rib;
mod tree_bitmap;

pub use address::{Address, Prefix};
pub use algorithm::{Algorithm, BuildError, NONE, NeedsRebuild};
pub use line_trie::LineTrie;
pub use rib::Rib;
pub use tree_bitmap::TreeBitmap;

/// A longest-prefix-match structure from prefixes to values.
pub trait Lpm<A: Address> {
    /// Adds a prefix or replaces its value; returns the value it had.
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32>;

    /// Removes a prefix; returns the value it had.
    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32>;

    /// The value of the longest prefix that contains the address.
    fn lookup(&self, address: A) -> Option<u32>;

    /// Number of prefixes.
    fn len(&self) -> usize;

    /// Whether there is no prefix.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
