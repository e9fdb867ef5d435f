// SPDX-License-Identifier: Apache-2.0
//! The tree: rules are added, taken out, and trees below a node built anew.

use crate::arena::Arena;
use crate::cut::Cut;
use crate::estimate;
use crate::layout::{Layout, Rank, Rule};
use crate::node::{
    Node, Ref, leaf_count, leaf_insert, leaf_records, leaf_remove, leaf_split_at, new_leaf,
    new_node, release_leaf,
};

/// A leaf of so many rules is not worth a split.
pub(crate) const SMALL_LEAF: usize = 6;

/// No path from the root is longer. Deeper down, rules stay in one leaf.
pub(crate) const MOST_LEVELS: usize = 40;

/// Bits of a rule's last word: priority (32), logarithm of its copies (4), handle (28).
const COPIES_SHIFT: u32 = 28;
const HANDLE_MASK: u64 = (1 << COPIES_SHIFT) - 1;

/// The priority in a rule's last word, higher first.
#[inline(always)]
pub(crate) fn priority_of(last: u64) -> u32 {
    (last >> 32) as u32
}

/// The handle in a rule's last word: the caller's value, plus one.
#[inline(always)]
pub(crate) fn handle_of(last: u64) -> u32 {
    (last & HANDLE_MASK) as u32
}

/// The logarithm of a rule's copies, in its last word.
pub(crate) fn copies_of(last: u64) -> u32 {
    (last >> COPIES_SHIFT & 0xf) as u32
}

fn with_copies(last: u64, copies: u32) -> u64 {
    last & !(0xf << COPIES_SHIFT) | u64::from(copies) << COPIES_SHIFT
}

/// A decision tree over keys of `W` words with `R` numbers.
#[derive(Debug)]
pub(crate) struct Tree<const W: usize, const R: usize> {
    pub(crate) layout: Layout<W, R>,
    pub(crate) arena: Arena,
    pub(crate) root: Ref,
    /// By handle.
    pub(crate) sequences: Vec<u64>,
    /// By handle: what is compared last, of the layout's `deep` fields.
    pub(crate) deep: Vec<u8>,
    deep_stride: usize,
    pub(crate) rules: usize,
}

impl<const W: usize, const R: usize> Tree<W, R> {
    const STRIDE: usize = Layout::<W, R>::STRIDE;

    pub(crate) fn new(layout: Layout<W, R>) -> Self {
        let deep_stride = layout.deep.iter().map(|bytes| 2 * bytes.len()).sum();
        Self {
            layout,
            arena: Arena::new(),
            root: Ref::NONE,
            sequences: Vec::new(),
            deep: Vec::new(),
            deep_stride,
            rules: 0,
        }
    }

    /// What is compared last of the rule with this handle.
    #[inline]
    pub(crate) fn deep_of(&self, handle: u32) -> &[u8] {
        let start = handle as usize * self.deep_stride;
        &self.deep[start..start + self.deep_stride]
    }

    /// Adds a rule, or puts a handle in the place of that of the rule that looks the same and has
    /// the same priority; gives that one.
    pub(crate) fn insert(&mut self, rule: Rule<'_>, rank: Rank, handle: u32) -> Option<u32> {
        let known = self.remove(rule, rank);
        let mut record = self.layout.record(rule, rank);
        self.note(handle, rank.sequence, &self.layout.deep_bytes(rule));
        *record.last_mut().expect("a record has a last word") |= u64::from(handle);
        self.root = self.insert_at(self.root, &record, 0);
        self.rules += 1;
        known
    }

    /// Takes out the rule that looks like this and has this priority; gives its handle.
    pub(crate) fn remove(&mut self, rule: Rule<'_>, rank: Rank) -> Option<u32> {
        let mut record = self.layout.record(rule, rank);
        let known = self.find(&record, &self.layout.deep_bytes(rule))?;
        *record.last_mut().expect("a record has a last word") |= u64::from(known);
        self.root = self.remove_at(self.root, &record, 0);
        self.rules -= 1;
        Some(known)
    }

    /// Builds the whole tree anew.
    pub(crate) fn rebuild(&mut self) {
        let records = self.collected(self.root);
        self.root = self.build(&records, 0);
    }

    fn note(&mut self, handle: u32, sequence: u64, deep: &[u8]) {
        let index = handle as usize;
        if self.sequences.len() <= index {
            self.sequences.resize(index + 1, 0);
            self.deep.resize((index + 1) * self.deep_stride, 0);
        }
        self.sequences[index] = sequence;
        self.deep[index * self.deep_stride..][..self.deep_stride].copy_from_slice(deep);
    }

    /// Order among the rules: descending priority, then ascending sequence.
    fn order(&self, last: u64) -> (u32, u64) {
        (!priority_of(last), self.sequences[handle_of(last) as usize])
    }

    /// Where a rule of a leaf is, or would be.
    fn place(&self, leaf: Ref, record: &[u64]) -> usize {
        let records = leaf_records(&self.arena, leaf, Self::STRIDE);
        let order = self.order(record[Self::STRIDE - 1]);
        let (mut low, mut high) = (0, records.len() / Self::STRIDE);
        while low < high {
            let middle = low.midpoint(high);
            if self.order(records[middle * Self::STRIDE + Self::STRIDE - 1]) < order {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The rule of a leaf that looks like this and has this priority.
    fn position(&self, leaf: Ref, record: &[u64], deep: &[u8]) -> Option<usize> {
        let last = Self::STRIDE - 1;
        let records = leaf_records(&self.arena, leaf, Self::STRIDE);
        records.chunks_exact(Self::STRIDE).position(|known| {
            priority_of(known[last]) == priority_of(record[last])
                && known[..last] == record[..last]
                && self.deep_of(handle_of(known[last])) == deep
        })
    }

    /// The handle of the rule that looks like this and has this priority.
    fn find(&self, record: &[u64], deep: &[u8]) -> Option<u32> {
        let (mut at, mut copies) = (self.root, 0);
        while !at.is_none() {
            if at.is_leaf() {
                let index = self.position(at, record, deep)?;
                let records = leaf_records(&self.arena, at, Self::STRIDE);
                return Some(handle_of(records[(index + 1) * Self::STRIDE - 1]));
            }
            let node = Node::at(&self.arena, at);
            at = match node.cut.children::<W>(record, copies) {
                None => node.rest(&self.arena),
                Some((children, more)) => {
                    copies += more;
                    let mut first = None;
                    children.for_each(|child| first = first.or(Some(child)));
                    node.child(&self.arena, first.unwrap_or(0))
                }
            };
        }
        None
    }

    fn insert_at(&mut self, at: Ref, record: &[u64], level: usize) -> Ref {
        if at.is_none() {
            return new_leaf(&mut self.arena, record, Self::STRIDE, SMALL_LEAF + 1);
        }
        if at.is_leaf() {
            let place = self.place(at, record);
            let leaf = leaf_insert(&mut self.arena, at, place, record);
            if leaf_count(&self.arena, leaf) < leaf_split_at(&self.arena, leaf) {
                return leaf;
            }
            let records = leaf_records(&self.arena, leaf, Self::STRIDE).to_vec();
            release_leaf(&mut self.arena, leaf, Self::STRIDE);
            return self.build(&records, level);
        }
        let node = Node::at(&self.arena, at);
        if node.changed(&mut self.arena) {
            let mut records = self.collected(at);
            records.extend_from_slice(record);
            let records = self.sorted(&records);
            return self.build(&records, level);
        }
        let last = record[Self::STRIDE - 1];
        match node.cut.children::<W>(record, copies_of(last)) {
            None => {
                let rest = self.insert_at(node.rest(&self.arena), record, level + 1);
                node.set_rest(&mut self.arena, rest, priority_of(last));
            }
            Some((children, more)) => {
                let mut copy = record.to_vec();
                copy[Self::STRIDE - 1] = with_copies(last, copies_of(last) + more);
                children.for_each(|child| {
                    let below = self.insert_at(node.child(&self.arena, child), &copy, level + 1);
                    node.set_child(&mut self.arena, child, below);
                });
            }
        }
        at
    }

    fn remove_at(&mut self, at: Ref, record: &[u64], level: usize) -> Ref {
        if at.is_none() {
            return at;
        }
        let last = record[Self::STRIDE - 1];
        if at.is_leaf() {
            let records = leaf_records(&self.arena, at, Self::STRIDE).chunks_exact(Self::STRIDE);
            let mut handles = records.map(|known| handle_of(known[Self::STRIDE - 1]));
            let index = handles.position(|handle| handle == handle_of(last));
            return match index {
                Some(index) => leaf_remove(&mut self.arena, at, index, Self::STRIDE),
                None => at,
            };
        }
        let node = Node::at(&self.arena, at);
        if node.changed(&mut self.arena) {
            let mut records = self.collected(at);
            let chunks = records.chunks_exact(Self::STRIDE);
            let mut handles = chunks.map(|known| handle_of(known[Self::STRIDE - 1]));
            if let Some(index) = handles.position(|handle| handle == handle_of(last)) {
                records.drain(index * Self::STRIDE..(index + 1) * Self::STRIDE);
            }
            return self.build(&records, level);
        }
        match node.cut.children::<W>(record, copies_of(last)) {
            None => {
                let rest = self.remove_at(node.rest(&self.arena), record, level + 1);
                node.set_rest(&mut self.arena, rest, 0);
            }
            Some((children, more)) => {
                let mut copy = record.to_vec();
                copy[Self::STRIDE - 1] = with_copies(last, copies_of(last) + more);
                children.for_each(|child| {
                    let below = self.remove_at(node.child(&self.arena, child), &copy, level + 1);
                    node.set_child(&mut self.arena, child, below);
                });
            }
        }
        at
    }

    /// Releases a tree; gives its rules, in order and each once.
    fn collected(&mut self, at: Ref) -> Vec<u64> {
        let mut records = Vec::new();
        self.collect(at, &mut Vec::new(), &mut records);
        self.sorted(&records)
    }

    /// Appends the rules of a tree, with the copies they have at its top. `path` are the cuts above
    /// that multiplied them.
    fn collect(&mut self, at: Ref, path: &mut Vec<Cut>, records: &mut Vec<u64>) {
        if at.is_none() {
            return;
        }
        if at.is_leaf() {
            let start = records.len();
            records.extend_from_slice(leaf_records(&self.arena, at, Self::STRIDE));
            release_leaf(&mut self.arena, at, Self::STRIDE);
            for record in records[start..].chunks_exact_mut(Self::STRIDE) {
                let last = record[Self::STRIDE - 1];
                let more = path.iter().filter_map(|cut| cut.children::<W>(record, 0));
                let more: u32 = more.map(|(_, more)| more).sum();
                record[Self::STRIDE - 1] = with_copies(last, copies_of(last) - more);
            }
            return;
        }
        let node = Node::at(&self.arena, at);
        self.collect(node.rest(&self.arena), path, records);
        path.push(node.cut);
        for child in 0..node.cut.fan_out() {
            self.collect(node.child(&self.arena, child), path, records);
        }
        path.pop();
        node.release(&mut self.arena);
    }

    /// Rules in order, each once.
    fn sorted(&self, records: &[u64]) -> Vec<u64> {
        let mut order: Vec<&[u64]> = records.chunks_exact(Self::STRIDE).collect();
        order.sort_unstable_by_key(|record| {
            let last = record[Self::STRIDE - 1];
            (self.order(last), handle_of(last))
        });
        order.dedup_by_key(|record| handle_of(record[Self::STRIDE - 1]));
        order.concat()
    }

    /// A tree of rules that are in order.
    fn build(&mut self, records: &[u64], level: usize) -> Ref {
        let count = records.len() / Self::STRIDE;
        let cut = if count <= SMALL_LEAF || level >= MOST_LEVELS {
            None
        } else {
            estimate::choose::<W>(records, Self::STRIDE, self.layout.ranges.len())
        };
        let Some(cut) = cut else {
            let split_at = (2 * count).max(SMALL_LEAF + 1);
            return new_leaf(&mut self.arena, records, Self::STRIDE, split_at);
        };
        let (children, rest) = Self::divide(&cut, records);
        let largest = children
            .iter()
            .map(Vec::len)
            .max()
            .unwrap_or(0)
            .max(rest.len());
        if largest >= records.len() {
            // The sample promised what all rules do not keep.
            return new_leaf(&mut self.arena, records, Self::STRIDE, 2 * count);
        }
        let at = new_node(&mut self.arena, &cut, count);
        let node = Node::at(&self.arena, at);
        for (index, child) in children
            .iter()
            .enumerate()
            .filter(|(_, child)| !child.is_empty())
        {
            let below = self.build(child, level + 1);
            node.set_child(&mut self.arena, index, below);
        }
        if let Some(last) = rest.get(Self::STRIDE - 1) {
            let priority = priority_of(*last);
            let below = self.build(&rest, level + 1);
            node.set_rest(&mut self.arena, below, priority);
        }
        at
    }

    /// Rules of each child, and of the rest.
    fn divide(cut: &Cut, records: &[u64]) -> (Vec<Vec<u64>>, Vec<u64>) {
        let mut children: Vec<Vec<u64>> = vec![Vec::new(); cut.fan_out()];
        let mut rest = Vec::new();
        for record in records.chunks_exact(Self::STRIDE) {
            let (front, last) = (&record[..Self::STRIDE - 1], record[Self::STRIDE - 1]);
            match cut.children::<W>(record, copies_of(last)) {
                None => rest.extend_from_slice(record),
                Some((of_rule, more)) => of_rule.for_each(|child| {
                    children[child].extend_from_slice(front);
                    children[child].push(with_copies(last, copies_of(last) + more));
                }),
            }
        }
        (children, rest)
    }
}
