// SPDX-License-Identifier: Apache-2.0
//! Rebuilds large trees incrementally, so that no change waits for a whole rebuild. Each change of the rules also
//! builds one piece of the new tree, beside the old one. Changes of the old tree are queued. When the new tree is
//! complete, the queued changes are applied to it. When few are left, the rest of them is applied at once, and the new
//! tree replaces the old one.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};

use crate::columns::LANES;
use crate::last_word::handle_of;
use crate::node::{Node, Ref};
use crate::renewal::{Attachment, Change, Renewal, Sorting, Task};
use crate::tree::{Division, Tree};

/// Work per change. The unit is about the cost of building one rule into a tree.
const PIECE: usize = 64;

/// Cost of selecting a cut (`CHOICE`) and of applying a change (`CHANGE`), in the unit of [`PIECE`].
const CHOICE: usize = 256;
const CHANGE: usize = 16;

/// `RUN` is the number of rules that are sorted in one step. `RUN_SORTED` is the cost of this step, in the unit of
/// [`PIECE`].
const RUN: usize = 256;
const RUN_SORTED: usize = 16;

/// Maximum number of queued changes that may be applied at once to end the rebuild.
const LAST: usize = 8;

impl Tree {
    /// Begins to rebuild the tree below a node, unless a rebuild is in progress.
    pub(crate) fn begin_renewal(&mut self, of: Ref, level: usize) {
        if self.renewal.is_some() || self.renewing {
            return;
        }
        let records = self.collect(of);
        let sorting = Sorting {
            keys: self.keys(&records),
            sorted: Vec::with_capacity(records.len()),
            records,
            runs: 0,
            heads: BinaryHeap::new(),
        };
        self.renewal = Some(Box::new(Renewal {
            of,
            level,
            root: Ref::NONE,
            sorting: Some(sorting),
            tasks: Vec::new(),
            changes: VecDeque::new(),
            sequences: self.sequences.clone(),
        }));
    }

    /// Returns whether the tree below this node is being rebuilt.
    pub(crate) fn renews(&self, node: Ref) -> bool {
        self.renewal
            .as_ref()
            .is_some_and(|renewal| renewal.of == node)
    }

    /// Queues a change of the node that is being rebuilt. If the new tree is complete and few changes are queued,
    /// applies them, releases the old tree and returns the new root.
    pub(crate) fn note_change(&mut self, change: Change) -> Option<Ref> {
        let renewal = self.renewal.as_mut()?;
        renewal.changes.push_back(change);
        let built = renewal.sorting.is_none() && renewal.tasks.is_empty();
        if !built || renewal.changes.len() > LAST {
            return None;
        }
        self.renew(usize::MAX);
        let renewal = self.renewal.take()?;
        self.release(renewal.of);
        Some(renewal.root)
    }

    /// Performs one piece of the rebuild.
    pub(crate) fn renew_some(&mut self) {
        self.renew(PIECE);
    }

    fn renew(&mut self, most: usize) {
        let Some(mut renewal) = self.renewal.take() else {
            return;
        };
        self.renewing = true;
        std::mem::swap(&mut self.sequences, &mut renewal.sequences);
        let mut done = 0;
        while done < most {
            done += if let Some(mut sorting) = renewal.sorting.take() {
                if self.sort(&mut sorting) {
                    renewal.tasks.push(Task {
                        records: sorting.sorted,
                        level: renewal.level,
                        attachment: Attachment::Root,
                    });
                } else {
                    renewal.sorting = Some(sorting);
                }
                RUN_SORTED
            } else if let Some(task) = renewal.tasks.pop() {
                self.perform(&mut renewal, task)
            } else if let Some(change) = renewal.changes.pop_front() {
                self.catch_up(&mut renewal, change);
                CHANGE
            } else {
                break;
            };
        }
        std::mem::swap(&mut self.sequences, &mut renewal.sequences);
        self.renewing = false;
        self.renewal = Some(renewal);
    }

    /// Sorts one run. If all runs are sorted already, merges as many rules from the runs as a run has. Returns whether
    /// all rules are in order.
    fn sort(&self, sorting: &mut Sorting) -> bool {
        if let Some(run) = sorting.keys.chunks_mut(RUN).nth(sorting.runs) {
            run.sort_unstable();
            sorting.heads.push(Reverse((run[0], sorting.runs * RUN)));
            sorting.runs += 1;
            return false;
        }
        for _ in 0..RUN {
            let Some(mut head) = sorting.heads.peek_mut() else {
                return true;
            };
            let Reverse((key, at)) = *head;
            sorting
                .sorted
                .extend_from_slice(self.record_of(&sorting.records, &key));
            match sorting.keys.get(at + 1) {
                Some(next) if !(at + 1).is_multiple_of(RUN) => *head = Reverse((*next, at + 1)),
                _ => {
                    PeekMut::pop(head);
                }
            }
        }
        false
    }

    /// Builds a node or a small tree. Returns the cost in the unit of [`PIECE`].
    fn perform(&mut self, renewal: &mut Renewal, task: Task) -> usize {
        let count = task.records.len() / self.layout.stride();
        let (built, cost) = if count <= 2 * LANES {
            (self.build(&task.records, task.level), count)
        } else {
            let cost = CHOICE + count / LANES;
            match self.divided(&task.records, task.level) {
                Division::Leaf(leaf) => (leaf, cost),
                Division::Node(at, children, rest) => {
                    let level = task.level + 1;
                    let filled = children.into_iter().enumerate();
                    let filled = filled.filter(|(_, records)| !records.is_empty());
                    renewal.tasks.extend(filled.map(|(index, records)| Task {
                        records,
                        level,
                        attachment: Attachment::Child(at, index),
                    }));
                    if !rest.is_empty() {
                        renewal.tasks.push(Task {
                            records: rest,
                            level,
                            attachment: Attachment::Rest(at),
                        });
                    }
                    (at, cost)
                }
            }
        };
        match task.attachment {
            Attachment::Root => renewal.root = built,
            Attachment::Child(at, index) => {
                Node::at(&self.arena, at).set_child(&mut self.arena, index, built)
            }
            Attachment::Rest(at) => {
                let priority = self.first_priority(&task.records);
                Node::at(&self.arena, at).set_rest(&mut self.arena, built, priority);
            }
        }
        cost
    }

    /// Applies a change to the new tree.
    fn catch_up(&mut self, renewal: &mut Renewal, change: Change) {
        renewal.root = match change {
            Change::Insert(record, sequence) => {
                let last = record[record.len() - 1];
                self.note(handle_of(last), sequence);
                self.insert_at(renewal.root, &record, renewal.level)
            }
            Change::Remove(record) => self.remove_at(renewal.root, &record, renewal.level),
        };
    }

    /// Abandons the rebuild, if one is in progress.
    pub(crate) fn abandon_renewal(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            self.release(renewal.root);
        }
    }
}
