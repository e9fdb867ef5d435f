// SPDX-License-Identifier: Apache-2.0
//! Packet classification: which of many overlapping rules is the first that matches a key.
//!
//! A rule has for each bit of the key a value or "any", for some fields a range, and a [`Rank`]:
//! the highest priority wins, among equal ones the lowest sequence. Rules come and go one by one.
//! [`Classifier`] answers in a time that hardly depends on how many rules there are, as long as
//! they differ in their bits; there is no scan.
//!
//! **How.** A decision tree. A node either *selects bits* of a window of 64 (with them it indexes its
//! children) or compares a range field with *thresholds*. A rule that leaves selected bits open is
//! copied into the children it meets while these are few, else it goes to the node's *rest*, a tree
//! of its own that is searched unless what was found comes before all of it. So trees partition
//! themselves as CutSplit (Li et al., INFOCOM 2018) and its kin do by hand, and copies of a rule
//! are bounded (8), which HiCuts' are not. Leaves hold their rules in order and column by column, so
//! that sixteen are compared in one pass of wide instructions. What a node cuts is chosen by an estimate of a look-up's time, so it fits
//! access lists, policies over ranges and tables with a few exact fields alike.
//!
//! **Changes.** A rule is added to the leaves where it belongs; a leaf that grows too long becomes a
//! node; a node whose tree changed as often as it had rules is built anew with what is below it: at
//! once if it is small, else beside the old one, a piece with each change. So a change costs an
//! amortised O(log n) of building, n of them never O(n²), and none of them a pause for all.
//!
//! **Promises.** [`Classifier::lookup`] and [`Classifier::lookup_batch`] do not allocate and do not
//! panic on any key. The crate depends on nothing and can be used alone:
//!
//! ```
//! use sluice_classifier::{Classifier, Rank, Rule, NONE};
//!
//! // Keys of an address and a port; ports are matched by range.
//! let ports = 4..6;
//! let mut list = Classifier::new(6, &[ports]);
//! let rule = |value: &'static [u8], bounds: &'static [u8]| Rule { value, bounds };
//! let web = rule(&[10, 0, 0, 0, 0, 80], &[255, 0, 0, 0, 0, 89]);
//! let all = rule(&[0; 6], &[0, 0, 0, 0, 255, 255]);
//! list.insert(web, Rank { priority: 9, sequence: 0 }, 100);
//! list.insert(all, Rank { priority: 1, sequence: 1 }, 101);
//! assert_eq!(list.lookup(&[10, 1, 2, 3, 0, 85]), Some(100));
//! assert_eq!(list.lookup(&[10, 1, 2, 3, 0, 90]), Some(101));
//!
//! let mut found = [NONE; 2];
//! list.lookup_batch(&[10, 1, 2, 3, 0, 80, 11, 1, 2, 3, 0, 80], &mut found);
//! assert_eq!(found, [100, 101]);
//! ```

mod arena;
mod classifier;
mod columns;
mod cut;
mod estimate;
mod kernel;
mod layout;
mod leaf;
mod node;
mod renewal;
pub mod sample;
mod search;
mod tree;

pub use classifier::{Classifier, Effort, MAX_VALUE, NONE};
pub use layout::{MAX_KEY_BYTES, Rank, Rule};
