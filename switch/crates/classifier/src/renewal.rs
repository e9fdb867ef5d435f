// SPDX-License-Identifier: Apache-2.0
//! Holds the state of an incremental rebuild of a large tree. The module [`renew`](crate::renew) performs the steps.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::binary_heap::BinaryHeap;

use crate::node::Ref;

/// Maximum number of rules of a node that is rebuilt immediately, not incrementally.
pub(crate) const AT_ONCE: usize = 512;

/// Sort key of a rule. The order is by descending priority, ascending sequence number, and handle as a tie-break. The
/// last number is the rule's index among the rules that are sorted.
pub(crate) type SortKey = (u32, u64, u32, u32);

/// A change of a node's rules. The record's last word contains the rule's number of copies at this node.
#[derive(Debug)]
pub(crate) enum Change {
    /// Adds a rule with this sequence number.
    Insert(Vec<u64>, u64),
    /// Removes a rule.
    Remove(Vec<u64>),
}

/// Incremental merge sort of rules. Runs of rules are sorted first, and then all runs are merged.
#[derive(Debug)]
pub(crate) struct Sorting {
    pub(crate) records: Vec<u64>,
    pub(crate) keys: Vec<SortKey>,
    /// Number of sorted runs.
    pub(crate) runs: usize,
    /// First unmerged key of each run, and its index in `keys`.
    pub(crate) heads: BinaryHeap<Reverse<(SortKey, usize)>>,
    pub(crate) sorted: Vec<u64>,
}

/// The reference that will point to a tree that is not built yet.
#[derive(Debug)]
pub(crate) enum Attachment {
    Root,
    Child(Ref, usize),
    Rest(Ref),
}

/// A tree that is not built yet.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) records: Vec<u64>,
    pub(crate) level: usize,
    pub(crate) attachment: Attachment,
}

/// A rebuild in progress.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// Root of the old tree.
    pub(crate) of: Ref,
    pub(crate) level: usize,
    pub(crate) root: Ref,
    /// The sort, while it is in progress. The sort ends before the first task exists.
    pub(crate) sorting: Option<Sorting>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) changes: VecDeque<Change>,
    /// Copy of the tree's `sequences`, up to date with the changes applied to the new tree. The tree's own `sequences`
    /// may be newer: a handle may have been reused for another rule since then.
    pub(crate) sequences: Vec<u64>,
}
