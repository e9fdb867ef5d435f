// SPDX-License-Identifier: Apache-2.0
//! Packet classification: finds the first of many overlapping rules that matches a key.
//!
//! A rule has for each bit of the key a value or "any", for some fields a range, and a [`Precedence`]:
//! the highest priority wins, among equal ones the lowest sequence. Rules are added and removed one by one.
//! The lookup time of [`Classifier`] hardly depends on the number of rules, as long as they differ in their bits.
//! There is no linear scan.
//!
//! **Structure.** A decision tree. A node either *selects bits* in a window of 64, which index its children, or
//! compares a range field with *thresholds*. A rule that wildcards selected bits is copied into the matching
//! children if they are few. Otherwise it goes to the node's *rest*, a separate tree. A lookup skips the rest if
//! the match found so far ranks before all rules in it. So trees partition the rules automatically, as CutSplit
//! (Li et al., INFOCOM 2018) and related work do by hand. Unlike in HiCuts, the copies of a rule are bounded (8).
//! Leaves hold their rules in order and by column, so that SIMD instructions compare sixteen in one pass. An
//! estimate of the lookup time selects each node's cut, which suits access lists, policies over ranges and tables
//! with a few exact fields.
//!
//! **Changes.** A rule is added to the leaves where it belongs; a leaf that grows too long becomes a node. A node
//! whose tree has changed as often as it had rules is rebuilt with its subtree: at once if it is small, else
//! incrementally beside the old one, a part with each change. So a change costs an amortised O(log n) of building,
//! n changes never cost O(n²), and no single change pauses for a whole rebuild.
//!
//! **Invariants.** [`Classifier::lookup`] and [`Classifier::lookup_batch`] do not allocate and do not
//! panic on any key. The crate depends on nothing and can be used alone:
//!
//! ```
//! use sluice_classifier::{Classifier, Precedence, Rule, NONE};
//!
//! // Keys of an address and a port; ports are matched by range.
//! let ports = 4..6;
//! let mut list = Classifier::new(6, &[ports]);
//! let rule = |value: &'static [u8], bounds: &'static [u8]| Rule { value, bounds };
//! let web = rule(&[10, 0, 0, 0, 0, 80], &[255, 0, 0, 0, 0, 89]);
//! let all = rule(&[0; 6], &[0, 0, 0, 0, 255, 255]);
//! list.insert(web, Precedence { priority: 9, sequence: 0 }, 100);
//! list.insert(all, Precedence { priority: 1, sequence: 1 }, 101);
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
mod effort;
mod estimate;
mod kernel;
mod last_word;
mod layout;
mod leaf;
mod node;
mod renew;
mod renewal;
pub mod sample;
mod search;
mod tree;

pub use classifier::{Classifier, MAX_VALUE, NONE};
pub use effort::Effort;
pub use layout::{MAX_KEY_BYTES, Precedence, Rule};
