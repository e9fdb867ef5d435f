// SPDX-License-Identifier: Apache-2.0
//! Building large trees anew without a pause: beside the old one, a piece with every change that is
//! made to the rules. Changes to the old tree are noted and made in the new one once it is built;
//! when it has caught up, it takes the old one's place.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};

use crate::columns::LANES;
use crate::node::{Node, Ref};
use crate::tree::{Division, Key, Tree};

/// A node with at most so many rules is built anew at once.
pub(crate) const AT_ONCE: usize = 512;

/// What is done with each change: about as many rules built.
const PIECE: usize = 64;

/// What the choice of a cut is in rules built, and what a change is.
const CHOICE: usize = 256;
const CHANGE: usize = 16;

/// Rules that are sorted at a time, and what that is in rules built.
const RUN: usize = 256;
const RUN_SORTED: usize = 16;

/// So few noted changes are made at once, to come to an end.
const LAST: usize = 8;

/// A change to the rules of a node; the record has as many copies as at the node.
#[derive(Debug)]
pub(crate) enum Change {
    /// A rule comes, with its sequence.
    Insert(Vec<u64>, u64),
    /// A rule goes.
    Remove(Vec<u64>),
}

/// Rules that are put in order piece by piece: runs of them are sorted, and all runs then merged.
#[derive(Debug)]
struct Sorting {
    records: Vec<u64>,
    keys: Vec<Key>,
    /// Runs that have been sorted.
    runs: usize,
    /// The first key of each run that has not been merged, and where it is.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    sorted: Vec<u64>,
}

/// Where a tree that is yet to be built belongs.
#[derive(Debug)]
enum Place {
    Root,
    Child(Ref, usize),
    Rest(Ref),
}

/// A tree that is yet to be built.
#[derive(Debug)]
struct Task {
    records: Vec<u64>,
    level: usize,
    place: Place,
}

/// A tree that is being built anew.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// The old one's root.
    of: Ref,
    level: usize,
    root: Ref,
    /// Rules that are yet to be put in order, before there are tasks.
    sorting: Option<Sorting>,
    tasks: Vec<Task>,
    changes: VecDeque<Change>,
    /// As the tree's, but as they were when the last change was made that has been made here: a
    /// handle may have come to another rule since.
    sequences: Vec<u64>,
}

impl Tree {
    /// Begins to build the tree below a node anew, if none is being built.
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

    /// Whether the tree below this node is being built anew.
    pub(crate) fn renews(&self, node: Ref) -> bool {
        self.renewal
            .as_ref()
            .is_some_and(|renewal| renewal.of == node)
    }

    /// Notes a change to the node whose tree is being built anew. If the new one is ready but for
    /// this and few others, it is finished and given; then the old one is gone.
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

    /// Does a piece of what is to be done.
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
                        place: Place::Root,
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

    /// Sorts a run, or merges as many rules from all runs; whether all are in order.
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

    /// Builds a node or a small tree; gives what it was in rules built.
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
                        place: Place::Child(at, index),
                    }));
                    if !rest.is_empty() {
                        renewal.tasks.push(Task {
                            records: rest,
                            level,
                            place: Place::Rest(at),
                        });
                    }
                    (at, cost)
                }
            }
        };
        match task.place {
            Place::Root => renewal.root = built,
            Place::Child(at, index) => {
                Node::at(&self.arena, at).set_child(&mut self.arena, index, built)
            }
            Place::Rest(at) => {
                let priority = self.first_priority(&task.records);
                Node::at(&self.arena, at).set_rest(&mut self.arena, built, priority);
            }
        }
        cost
    }

    /// Makes a change in the new tree.
    fn catch_up(&mut self, renewal: &mut Renewal, change: Change) {
        renewal.root = match change {
            Change::Insert(record, sequence) => {
                let last = record[record.len() - 1];
                self.note(crate::tree::handle_of(last), sequence);
                self.insert_at(renewal.root, &record, renewal.level)
            }
            Change::Remove(record) => self.remove_at(renewal.root, &record, renewal.level),
        };
    }

    /// Gives up what was being built.
    pub(crate) fn abandon_renewal(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            self.release(renewal.root);
        }
    }
}
