// SPDX-License-Identifier: Apache-2.0
//! Longest-prefix match: routes, and lookup structures that are built from routes.
//!
//! * [`Rib`] holds the routes. A route is a prefix with a value (a `u32`). A RIB is compact and authoritative, and
//!   supports the queries and iterations that are needed to build a structure.
//! * [`Algorithm`] is the trait of structures for fast lookups. Such a structure is built from a RIB and follows the
//!   RIB's changes. [`Ranges`] is for a few routes, [`BitmapRank`] for IPv4 tables of any size, [`BoundTree16`] and
//!   [`BoundTree32`] are for IPv6.
//! * [`TrackedRib`] is a RIB that records its changes ([`Change`]).
//! * [`Follower`] holds the current structure and updates it from a RIB, given the changes. It selects an algorithm by
//!   the number of routes and by the limits of the structures, and applies changes in place. Where this is impossible,
//!   it rebuilds the structure with back-off, while a copy of the RIB answers. An operator can see and pin the selected
//!   algorithm. One RIB may have several followers.
//!
//! ```
//! use sluice_fib::{Follower, NONE, Prefix, TrackedRib};
//!
//! let mut routes = TrackedRib::<u32>::new();
//! let mut follower = Follower::new(routes.rib());
//! routes.insert(Prefix::new(0x0a00_0000, 8), 1, 0); // 10.0.0.0/8
//! routes.insert(Prefix::new(0x0a01_0000, 16), 2, 0); // 10.1.0.0/16
//! routes.reduce();
//! follower.follow(routes.changes(), routes.rib(), std::time::Instant::now);
//! routes.forget();
//! assert_eq!(follower.lookup(0x0a01_0203), 2);
//! assert_eq!(follower.lookup(0x0a02_0203), 1);
//! let mut values = [0; 2];
//! follower.lookup_batch(&[0x0a01_0203, 0x0b00_0000], &mut values);
//! assert_eq!(values, [2, NONE]);
//! assert_eq!(follower.status(routes.rib()).algorithm, "ranges");
//! follower.pin(Some("rank16"), routes.rib()).expect("two routes fit anywhere");
//! assert_eq!(follower.lookup(0x0a01_0203), 2);
//! ```
//!
//! Addresses are `u32` (IPv4) or `u128` (IPv6 and every other width up to 128 bits, left-aligned). Values should be
//! small and few. Small values need less memory ([`BitmapRank16`]). If there are few values, adjacent answers are often
//! equal, and equal answers are stored once. To map prefixes to large objects, callers should number the distinct
//! objects and use the numbers as values.
//!
//! A lookup takes `&self` and neither locks nor allocates. Any number of threads may look up concurrently. A change
//! takes `&mut self`. The `tables` crate changes routes while packets flow: it has two followers of one RIB, and
//! readers use one of them while the other is changed (left-right).
//!
//! Depends on `pages` for the memory of large structures. Invariant: every structure gives the answers of a linear
//! search over its prefixes, for any order of updates. Property tests check this. `unsafe` is used only in the kernels
//! of `bitmap_rank` and `bound_tree`, for prefetch, and to call functions that are compiled for processor extensions.

mod address;
mod algorithm;
mod answer;
mod array_pool;
mod bitmap_rank;
mod bound_tree;
mod change;
mod follower;
mod lines;
mod lookup_item;
mod named_algorithm;
mod ranges;
mod rib;
mod tracked_rib;
mod trial;

pub use address::{Address, Prefix};
pub use algorithm::{Algorithm, BuildError, NeedsRebuild};
pub use answer::NONE;
pub use bitmap_rank::{BitmapRank, BitmapRank16, BitmapRank32};
pub use bound_tree::{BoundTree16, BoundTree32};
pub use change::Change;
pub use follower::{Follower, LONGEST_DELAY, PinError, Status};
pub use lines::Lines;
pub use named_algorithm::{Built, Family, NamedAlgorithm};
pub use ranges::Ranges;
pub use rib::{Rib, TOGETHER};
pub use tracked_rib::TrackedRib;
pub use trial::{Rates, Trial};
