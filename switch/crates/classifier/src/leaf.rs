// SPDX-License-Identifier: Apache-2.0
//! Reads and writes leaves in the arena. A leaf has consecutive groups of rules, stored in [`Columns`], with the rules
//! in their order. The last word of a group's last lane says whether another group follows.

use crate::arena::Arena;
use crate::columns::{Columns, LANES};
use crate::last_word::{MORE, handle_of, without_more};
use crate::layout::Layout;
use crate::node::Ref;

/// A leaf in the arena.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    block: u32,
    groups: usize,
}

impl Leaf {
    pub(crate) fn at(columns: &Columns, arena: &Arena, leaf: Ref) -> Self {
        let (words, last) = (columns.group_words(), columns.lasts() + LANES - 1);
        let mut groups = 1;
        while arena.words(leaf.block(), groups * words)[(groups - 1) * words + last] & MORE != 0 {
            groups += 1;
        }
        Self {
            block: leaf.block(),
            groups,
        }
    }

    fn words(self, columns: &Columns) -> usize {
        self.groups * columns.group_words()
    }

    fn contents<'a>(self, columns: &Columns, arena: &'a Arena) -> &'a [u64] {
        arena.words(self.block, self.words(columns))
    }

    /// Builds a leaf from records, which must be in order. Returns [`Ref::NONE`] if there are no records.
    pub(crate) fn build(layout: &Layout, arena: &mut Arena, records: &[u64]) -> Ref {
        let (columns, stride) = (&layout.columns, layout.stride());
        if records.is_empty() {
            return Ref::NONE;
        }
        let groups = (records.len() / stride).div_ceil(LANES);
        let words = columns.group_words();
        let block = arena.allocate(groups * words);
        let leaf = arena.words_mut(block, groups * words);
        for (index, record) in records.chunks_exact(stride).enumerate() {
            layout.put(&mut leaf[index / LANES * words..], index % LANES, record);
        }
        mark(columns, leaf);
        Ref::leaf(block)
    }

    /// Returns the last words of the leaf's rules, in order.
    pub(crate) fn lasts<'a>(
        self,
        columns: &Columns,
        arena: &'a Arena,
    ) -> impl Iterator<Item = u64> + use<'a> {
        let (words, start) = (self.contents(columns, arena), columns.lasts());
        let groups = words.chunks_exact(columns.group_words());
        let lasts = groups.flat_map(move |group| &group[start..]);
        lasts
            .map(|last| without_more(*last))
            .take_while(|last| handle_of(*last) != 0)
    }

    /// Returns the number of rules in the leaf.
    pub(crate) fn count(self, columns: &Columns, arena: &Arena) -> usize {
        let group = (self.groups - 1) * columns.group_words() + columns.lasts();
        let lasts = &self.contents(columns, arena)[group..];
        let used = lasts.iter().take_while(|last| handle_of(**last) != 0);
        (self.groups - 1) * LANES + used.count()
    }

    /// Appends the record of the rule at `index` to `records`.
    pub(crate) fn take(self, layout: &Layout, arena: &Arena, index: usize, records: &mut Vec<u64>) {
        let words = self.contents(&layout.columns, arena);
        let group = &words[index / LANES * layout.columns.group_words()..];
        layout.take(group, index % LANES, records);
        let last = records.last_mut().expect("a record has a last word");
        *last = without_more(*last);
    }

    /// Appends the records of all rules to `records`.
    pub(crate) fn collect(self, layout: &Layout, arena: &Arena, records: &mut Vec<u64>) {
        (0..self.count(&layout.columns, arena))
            .for_each(|index| self.take(layout, arena, index, records));
    }

    /// Inserts a rule at `index`. Returns a reference to the leaf, which may have moved.
    pub(crate) fn insert(
        self,
        layout: &Layout,
        arena: &mut Arena,
        index: usize,
        record: &[u64],
    ) -> Ref {
        let columns = &layout.columns;
        let count = self.count(columns, arena);
        let mut leaf = self;
        if count == self.groups * LANES {
            leaf = self.resized(columns, arena, self.groups + 1);
        }
        let words = arena.words_mut(leaf.block, leaf.words(columns));
        for place in (index..count).rev() {
            columns.copy(words, place, place + 1);
        }
        let group = index / LANES * columns.group_words();
        layout.put(&mut words[group..], index % LANES, record);
        mark(columns, words);
        Ref::leaf(leaf.block)
    }

    /// Removes the rule at `index`. Returns a reference to the leaf, which may have moved, or [`Ref::NONE`] if the leaf
    /// is now empty.
    pub(crate) fn remove(self, columns: &Columns, arena: &mut Arena, index: usize) -> Ref {
        let count = self.count(columns, arena);
        if count == 1 {
            self.release(columns, arena);
            return Ref::NONE;
        }
        let words = arena.words_mut(self.block, self.words(columns));
        for place in index + 1..count {
            columns.copy(words, place, place - 1);
        }
        columns.clear(words, count - 1);
        let leaf = match (count - 1).div_ceil(LANES) {
            groups if groups < self.groups => self.resized(columns, arena, groups),
            _ => self,
        };
        mark(columns, arena.words_mut(leaf.block, leaf.words(columns)));
        Ref::leaf(leaf.block)
    }

    /// Moves the leaf to a new block of `groups` groups.
    fn resized(self, columns: &Columns, arena: &mut Arena, groups: usize) -> Self {
        let mut words = self.contents(columns, arena).to_vec();
        self.release(columns, arena);
        words.resize(groups * columns.group_words(), 0);
        let block = arena.allocate(words.len());
        arena.words_mut(block, words.len()).copy_from_slice(&words);
        Self { block, groups }
    }

    pub(crate) fn release(self, columns: &Columns, arena: &mut Arena) {
        arena.release(self.block, self.words(columns));
    }
}

/// Sets [`MORE`] in all groups except the last one.
fn mark(columns: &Columns, leaf: &mut [u64]) {
    let groups = leaf.len() / columns.group_words();
    for (index, group) in leaf.chunks_exact_mut(columns.group_words()).enumerate() {
        let last = &mut group[columns.lasts() + LANES - 1];
        *last = without_more(*last) | if index + 1 < groups { MORE } else { 0 };
    }
}
