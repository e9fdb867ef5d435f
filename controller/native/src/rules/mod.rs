// SPDX-License-Identifier: Apache-2.0
//! Finds the first rule of an ordered list that matches a packet, in lists of a million rules.
//!
//! * [`area`]: the packets that a rule matches, as boxes over the selectors, and queries for them,
//! * [`tree`]: a persistent decision tree over these boxes,
//! * [`list`]: an ordered list of rules with its tree.
//!
//! A list is immutable. A changed list shares all unchanged nodes with the list before, so that a
//! change of one rule copies a few nodes, and both lists can be searched. Memory grows linearly
//! with the number of rules: a rule is in at most [`area::MAX_AREAS`] leaves.

pub mod area;
pub mod list;
pub mod tree;
