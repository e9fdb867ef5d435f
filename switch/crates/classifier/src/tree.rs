// SPDX-License-Identifier: Apache-2.0
//! Implements the decision tree: adds and removes rules, and builds subtrees.

use crate::arena::Arena;
use crate::columns::LANES;
use crate::cut::Cut;
use crate::estimate;
use crate::last_word::{copies_of, handle_of, priority_of, with_copies};
use crate::layout::{Layout, Precedence, Rule};
use crate::leaf::Leaf;
use crate::node::{Node, Ref, new_node};
use crate::renewal::{AT_ONCE, Change, Renewal, SortKey};

/// Maximum number of nodes on a path from the root. At the end of such a path, all remaining rules are in one leaf.
pub(crate) const MOST_LEVELS: usize = 40;

/// A decision tree.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) layout: Layout,
    pub(crate) arena: Arena,
    pub(crate) root: Ref,
    /// Sequence number of each rule, by handle.
    pub(crate) sequences: Vec<u64>,
    pub(crate) rules: usize,
    /// The rebuild of a large subtree, if one is in progress.
    pub(crate) renewal: Option<Box<Renewal>>,
    /// Whether the rebuild is performing a piece now.
    pub(crate) renewing: bool,
}

/// Rules that were collected from a tree.
struct Collected {
    records: Vec<u64>,
    /// Bit set of the handles of these rules.
    seen: Vec<u64>,
}

impl Collected {
    /// Marks a handle. Returns whether it was unmarked before.
    fn is_first(&mut self, handle: u32) -> bool {
        let word = &mut self.seen[handle as usize / 64];
        let before = *word;
        *word |= 1 << (handle % 64);
        *word != before
    }
}

/// Result of an attempt to divide rules by a cut.
pub(crate) enum Division {
    /// A leaf, because no cut is better.
    Leaf(Ref),
    /// A node that has no children yet, the rules of each child, and the rules of the rest.
    Node(Ref, Vec<Vec<u64>>, Vec<u64>),
}

impl Tree {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            arena: Arena::new(),
            root: Ref::NONE,
            sequences: Vec::new(),
            rules: 0,
            renewal: None,
            renewing: false,
        }
    }

    /// Adds a rule. If a rule with equal fields and equal priority exists, replaces it and returns its handle.
    pub(crate) fn insert(
        &mut self,
        rule: Rule<'_>,
        precedence: Precedence,
        handle: u32,
    ) -> Option<u32> {
        let known = self.remove(rule, precedence);
        let mut record = self.layout.record(rule, precedence);
        self.note(handle, precedence.sequence);
        *record.last_mut().expect("a record has a last word") |= u64::from(handle);
        self.root = self.insert_at(self.root, &record, 0);
        self.rules += 1;
        self.renew_some();
        known
    }

    /// Removes the rule that has equal fields and equal priority. Returns its handle.
    pub(crate) fn remove(&mut self, rule: Rule<'_>, precedence: Precedence) -> Option<u32> {
        let mut record = self.layout.record(rule, precedence);
        let known = self.find(&record)?;
        *record.last_mut().expect("a record has a last word") |= u64::from(known);
        self.root = self.remove_at(self.root, &record, 0);
        self.rules -= 1;
        self.renew_some();
        Some(known)
    }

    /// Rebuilds the whole tree.
    pub(crate) fn rebuild(&mut self) {
        self.abandon_renewal();
        let records = self.collected(self.root);
        self.root = self.build(&records, 0);
    }

    pub(crate) fn note(&mut self, handle: u32, sequence: u64) {
        let index = handle as usize;
        if self.sequences.len() <= index {
            self.sequences.resize(index + 1, 0);
        }
        self.sequences[index] = sequence;
    }

    /// Returns a rule's position in the order: by descending priority, then by ascending sequence number.
    fn order(&self, last: u64) -> (u32, u64) {
        (!priority_of(last), self.sequences[handle_of(last) as usize])
    }

    fn leaf(&self, at: Ref) -> Leaf {
        Leaf::at(&self.layout.columns, &self.arena, at)
    }

    /// Returns the index of a rule in a leaf. If the leaf does not have the rule, returns the index at which it would
    /// be inserted.
    fn index_in(&self, leaf: Leaf, record: &[u64]) -> usize {
        let order = self.order(record[record.len() - 1]);
        let lasts = leaf.lasts(&self.layout.columns, &self.arena);
        lasts.take_while(|last| self.order(*last) < order).count()
    }

    /// Returns the handle of the rule in a leaf that has equal fields and equal priority.
    fn find_in(&self, leaf: Leaf, record: &[u64]) -> Option<u32> {
        let (looks, last) = record.split_at(record.len() - 1);
        let mut known = Vec::with_capacity(record.len());
        for (index, other) in leaf.lasts(&self.layout.columns, &self.arena).enumerate() {
            if priority_of(other) == priority_of(last[0]) {
                known.clear();
                leaf.take(&self.layout, &self.arena, index, &mut known);
                if known[..looks.len()] == *looks {
                    return Some(handle_of(other));
                }
            }
        }
        None
    }

    /// Returns the handle of the rule that has equal fields and equal priority.
    fn find(&self, record: &[u64]) -> Option<u32> {
        let (mut at, mut copies) = (self.root, 0);
        while !at.is_none() {
            if at.is_leaf() {
                return self.find_in(self.leaf(at), record);
            }
            let node = Node::at(&self.arena, at);
            at = match node.cut.children(&self.layout, record, copies) {
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

    pub(crate) fn insert_at(&mut self, at: Ref, record: &[u64], level: usize) -> Ref {
        if at.is_none() {
            return Leaf::build(&self.layout, &mut self.arena, record);
        }
        if at.is_leaf() {
            let leaf = self.leaf(at);
            let count = leaf.count(&self.layout.columns, &self.arena) + 1;
            let index = self.index_in(leaf, record);
            if !splits(count) {
                return leaf.insert(&self.layout, &mut self.arena, index, record);
            }
            let mut records = Vec::with_capacity(count * record.len());
            leaf.collect(&self.layout, &self.arena, &mut records);
            let start = index * record.len();
            records.splice(start..start, record.iter().copied());
            leaf.release(&self.layout.columns, &mut self.arena);
            return self.build(&records, level);
        }
        let node = Node::at(&self.arena, at);
        let last = record[record.len() - 1];
        if node.changed(&mut self.arena) {
            if node.most_rules(&self.arena) <= AT_ONCE {
                let mut records = self.collected(at);
                records.extend_from_slice(record);
                let records = self.sorted(&records);
                return self.build(&records, level);
            }
            self.begin_renewal(at, level);
        }
        if self.renews(at) {
            let sequence = self.sequences[handle_of(last) as usize];
            let change = Change::Insert(record.to_vec(), sequence);
            if let Some(renewed) = self.note_change(change) {
                return renewed;
            }
        }
        match node.cut.children(&self.layout, record, copies_of(last)) {
            None => {
                let rest = self.insert_at(node.rest(&self.arena), record, level + 1);
                node.set_rest(&mut self.arena, rest, priority_of(last));
            }
            Some((children, more)) => {
                let mut copy = record.to_vec();
                copy[record.len() - 1] = with_copies(last, copies_of(last) + more);
                children.for_each(|child| {
                    let below = self.insert_at(node.child(&self.arena, child), &copy, level + 1);
                    node.set_child(&mut self.arena, child, below);
                });
            }
        }
        at
    }

    pub(crate) fn remove_at(&mut self, at: Ref, record: &[u64], level: usize) -> Ref {
        if at.is_none() {
            return at;
        }
        let last = record[record.len() - 1];
        if at.is_leaf() {
            let (columns, leaf) = (&self.layout.columns, self.leaf(at));
            let index = leaf
                .lasts(columns, &self.arena)
                .position(|known| handle_of(known) == handle_of(last));
            return match index {
                Some(index) => leaf.remove(columns, &mut self.arena, index),
                None => at,
            };
        }
        let node = Node::at(&self.arena, at);
        if node.changed(&mut self.arena) {
            if node.most_rules(&self.arena) <= AT_ONCE {
                let mut records = self.collected(at);
                let stride = record.len();
                let chunks = records.chunks_exact(stride);
                let mut handles = chunks.map(|known| handle_of(known[stride - 1]));
                if let Some(index) = handles.position(|handle| handle == handle_of(last)) {
                    records.drain(index * stride..(index + 1) * stride);
                }
                return self.build(&records, level);
            }
            self.begin_renewal(at, level);
        }
        if self.renews(at)
            && let Some(renewed) = self.note_change(Change::Remove(record.to_vec()))
        {
            return renewed;
        }
        match node.cut.children(&self.layout, record, copies_of(last)) {
            None => {
                let rest = self.remove_at(node.rest(&self.arena), record, level + 1);
                node.set_rest(&mut self.arena, rest, 0);
            }
            Some((children, more)) => {
                let mut copy = record.to_vec();
                copy[record.len() - 1] = with_copies(last, copies_of(last) + more);
                children.for_each(|child| {
                    let below = self.remove_at(node.child(&self.arena, child), &copy, level + 1);
                    node.set_child(&mut self.arena, child, below);
                });
            }
        }
        at
    }

    /// Releases a tree. Returns the tree's rules in order.
    fn collected(&mut self, at: Ref) -> Vec<u64> {
        let records = self.collect(at);
        self.release(at);
        self.sorted(&records)
    }

    /// Releases a tree.
    pub(crate) fn release(&mut self, at: Ref) {
        if at.is_none() {
            return;
        }
        if at.is_leaf() {
            return self.leaf(at).release(&self.layout.columns, &mut self.arena);
        }
        let node = Node::at(&self.arena, at);
        self.release(node.rest(&self.arena));
        for child in 0..node.cut.fan_out() {
            self.release(node.child(&self.arena, child));
        }
        node.release(&mut self.arena);
    }

    /// Returns each rule of a tree once, with the number of copies that the rule has at the tree's root.
    pub(crate) fn collect(&self, at: Ref) -> Vec<u64> {
        let mut collected = Collected {
            records: Vec::new(),
            seen: vec![0; self.sequences.len().div_ceil(64)],
        };
        self.collect_below(at, &mut Vec::new(), &mut collected);
        collected.records
    }

    /// Collects the rules below `at`. `path` holds the cuts from the root of the tree to `at`. The number of a rule's
    /// copies at the root follows from these cuts.
    fn collect_below(&self, at: Ref, path: &mut Vec<Cut>, collected: &mut Collected) {
        if at.is_none() {
            return;
        }
        if at.is_leaf() {
            let leaf = self.leaf(at);
            let lasts = leaf.lasts(&self.layout.columns, &self.arena);
            for (index, last) in lasts.enumerate() {
                if !collected.is_first(handle_of(last)) {
                    continue;
                }
                let start = collected.records.len();
                leaf.take(&self.layout, &self.arena, index, &mut collected.records);
                let record = &mut collected.records[start..];
                let cuts = path.iter();
                let more = cuts.filter_map(|cut| cut.children(&self.layout, record, 0));
                let more: u32 = more.map(|(_, more)| more).sum();
                record[record.len() - 1] = with_copies(last, copies_of(last) - more);
            }
            return;
        }
        let node = Node::at(&self.arena, at);
        self.collect_below(node.rest(&self.arena), path, collected);
        path.push(node.cut);
        for child in 0..node.cut.fan_out() {
            self.collect_below(node.child(&self.arena, child), path, collected);
        }
        path.pop();
    }

    /// Returns the sort keys of records.
    pub(crate) fn keys(&self, records: &[u64]) -> Vec<SortKey> {
        let stride = self.layout.stride();
        let records = records.chunks_exact(stride).enumerate();
        let keys = records.map(|(index, record)| {
            let last = record[stride - 1];
            let (priority, sequence) = self.order(last);
            (priority, sequence, handle_of(last), index as u32)
        });
        keys.collect()
    }

    /// Returns the record to which a sort key belongs.
    pub(crate) fn record_of<'a>(&self, records: &'a [u64], key: &SortKey) -> &'a [u64] {
        let stride = self.layout.stride();
        &records[key.3 as usize * stride..][..stride]
    }

    /// Returns the records in order.
    pub(crate) fn sorted(&self, records: &[u64]) -> Vec<u64> {
        let mut keys = self.keys(records);
        keys.sort_unstable();
        let mut sorted = Vec::with_capacity(records.len());
        for key in &keys {
            sorted.extend_from_slice(self.record_of(records, key));
        }
        sorted
    }

    /// Builds a tree from records, which must be in order.
    pub(crate) fn build(&mut self, records: &[u64], level: usize) -> Ref {
        let (at, children, rest) = match self.divided(records, level) {
            Division::Leaf(leaf) => return leaf,
            Division::Node(at, children, rest) => (at, children, rest),
        };
        let node = Node::at(&self.arena, at);
        let filled = children.iter().enumerate();
        for (index, child) in filled.filter(|(_, child)| !child.is_empty()) {
            let below = self.build(child, level + 1);
            node.set_child(&mut self.arena, index, below);
        }
        if !rest.is_empty() {
            let below = self.build(&rest, level + 1);
            let priority = self.first_priority(&rest);
            node.set_rest(&mut self.arena, below, priority);
        }
        at
    }

    /// Returns the priority of the first record.
    pub(crate) fn first_priority(&self, records: &[u64]) -> u32 {
        priority_of(records[self.layout.stride() - 1])
    }

    /// Divides records, which must be in order, if a node is better than a leaf.
    pub(crate) fn divided(&mut self, records: &[u64], level: usize) -> Division {
        let count = records.len() / self.layout.stride();
        let cut = if count <= LANES || level >= MOST_LEVELS {
            None
        } else {
            estimate::choose(&self.layout, records)
        };
        if let Some(cut) = cut {
            let (children, rest) = self.divide(&cut, records);
            let largest = children.iter().map(Vec::len).max().unwrap_or(0);
            // If this does not hold, the sample was misleading: the cut does not divide the complete set of rules.
            if largest.max(rest.len()) < records.len() {
                let at = new_node(&mut self.arena, &cut, count);
                return Division::Node(at, children, rest);
            }
        }
        Division::Leaf(Leaf::build(&self.layout, &mut self.arena, records))
    }

    /// Returns the records of each child, and the records of the rest.
    fn divide(&self, cut: &Cut, records: &[u64]) -> (Vec<Vec<u64>>, Vec<u64>) {
        let mut children: Vec<Vec<u64>> = vec![Vec::new(); cut.fan_out()];
        let mut rest = Vec::new();
        for record in records.chunks_exact(self.layout.stride()) {
            let (last, front) = record.split_last().expect("a record has a last word");
            match cut.children(&self.layout, record, copies_of(*last)) {
                None => rest.extend_from_slice(record),
                Some((of_rule, more)) => of_rule.for_each(|child| {
                    children[child].extend_from_slice(front);
                    children[child].push(with_copies(*last, copies_of(*last) + more));
                }),
            }
        }
        (children, rest)
    }
}

/// Returns whether a leaf that has just grown to `count` rules should be tried as a node. The tree tries this when a
/// leaf grows beyond 1, 2, 4, 8, ... groups.
fn splits(count: usize) -> bool {
    count % LANES == 1 && count > 1 && (count / LANES).is_power_of_two()
}
