// SPDX-License-Identifier: Apache-2.0
//! Finds the first rule of an ordered list that matches a packet, in lists of a million rules.
//!
//! * [`area`]: the packets that a rule matches, as boxes, and the packets that a query asks for,
//! * [`tree`]: a persistent decision tree over these boxes,
//! * [`list`]: an ordered list of rules with its tree.
//!
//! A list is immutable. A changed list shares all unchanged nodes with the list from which it was
//! made. So a change of one rule copies only a few nodes, and both lists can be searched. Memory
//! grows linearly with the number of rules, because a rule is in at most [`area::MAX_AREAS`]
//! leaves.

pub mod area;
pub mod list;
pub mod tree;
