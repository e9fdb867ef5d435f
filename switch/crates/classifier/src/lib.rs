// SPDX-License-Identifier: Apache-2.0
//! Classifies packets: finds the first of many overlapping rules that matches a key.
//!
//! For each bit of the key, a rule has a value or "any". For some fields, a rule has a range instead. Each rule has a
//! [`Precedence`]: the highest priority wins, and of equal priorities the lowest sequence number. Rules are added and
//! removed one by one. A lookup never scans all rules. As long as rules differ in their bits, the lookup time of
//! [`Classifier`] hardly depends on their number.
//!
//! **Structure.** The classifier is a decision tree. There are two kinds of nodes. One kind *selects bits* of a window
//! of 64 bits. These bits are the index of a child. The other kind compares a range field with *thresholds*. If a rule
//! wildcards some of the selected bits, it is copied to all matching children. If these are too many, the rule goes to
//! the node's *rest* instead, a separate tree. A lookup skips the rest if the match found so far ranks before all rules
//! of the rest. So the trees partition the rules automatically, as CutSplit (Li et al., INFOCOM 2018) and related work
//! do by hand. Unlike in HiCuts, the number of copies of a rule is bounded (8).
//!
//! Leaves hold their rules in order and column by column, so that SIMD instructions compare sixteen rules in one pass.
//! The cut of each node is selected by an estimate of the lookup time. This structure suits access lists, policies over
//! ranges and tables with a few exact fields.
//!
//! **Changes.** A rule is added to the leaves to which it belongs. A leaf that grows too long becomes a node. A subtree
//! is rebuilt when it has had as many changes as it had rules when it was built. A small subtree is rebuilt
//! immediately. A large subtree is rebuilt incrementally: the new subtree is built beside the old one, one part with
//! each change. So a change costs amortised O(log n) time, n changes never cost O(n²), and no single change waits for a
//! whole rebuild.
//!
//! **Invariants.** [`Classifier::lookup`] and [`Classifier::lookup_batch`] do not panic on any key, and do not allocate
//! memory for keys of the right length. The crate depends only on `random`, for [`sample`], and can be used alone:
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
