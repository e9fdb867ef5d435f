// SPDX-License-Identifier: Apache-2.0
//! Implements lookups, one by one or interleaved in a batch.
//!
//! A lookup descends to a leaf. Then it searches the rests of the nodes on its path, beginning with the last node. It
//! skips a rest if the match found so far ranks before all rules of the rest.
//!
//! In a large tree, the lookups of a batch are interleaved. First all lookups at nodes descend one step and prefetch
//! the next node, then all lookups at leaves compare rules, and so on. After each step, code without a branch puts the
//! lookup into the list for nodes or the list for leaves.
//!
//! **Invariant for the unchecked reads.** Every [`Ref`] in the arena refers to a block in use. For this, `tree.rs`
//! writes a block before the reference to it. When `tree.rs` releases a block, it clears or overwrites the reference.
//! The first words of a node give its length, and the marks of groups give the length of a leaf. A child's index
//! consists of the bits that the node selects, or is a count of thresholds. So the index is below the node's number of
//! children.

use std::hint::select_unpredictable;
use std::mem::MaybeUninit;

use crate::arena::LINE;
use crate::columns::{KeyBytes, LANES};
use crate::effort::Effort;
use crate::kernel::{Machine, Portable};
use crate::last_word::{MORE, handle_of, priority_of};
use crate::leaf::Leaf;
use crate::node::{Head, NODE_HEAD, Ref, THRESHOLD_WORDS};
use crate::tree::{MOST_LEVELS, Tree};

/// Number of lookups that are interleaved.
const ABREAST: usize = 32;

/// Number of lookups in a resident tree whose first steps, from the root, run in one loop. Without this loop, a
/// misprediction later in one lookup would discard the first steps of the following lookups.
const TOGETHER: usize = 16;

/// Size in bytes up to which a tree is resident: it stays in or near a core's caches under load. In a resident tree,
/// consecutive lookups overlap by themselves. By measurement, interleaving lowers their rate by a seventh. In trees of
/// about 100,000 rules or more, interleaving raises the rate by two sevenths.
const RESIDENT: usize = 4 << 20;

/// The words of a tree, read without bounds checks.
#[derive(Clone, Copy)]
struct Words(*const u64);

impl Words {
    /// Reads the word at `index`.
    #[inline(always)]
    fn at(self, index: usize) -> u64 {
        // SAFETY: by the module's invariant, callers read only words of blocks in use.
        unsafe { *self.0.add(index) }
    }

    /// Reads a half word. `index` counts half words from the word `base` on.
    #[inline(always)]
    fn half(self, base: usize, index: usize) -> u32 {
        // SAFETY: as for `at`. The lower half of a word comes first in memory.
        #[cfg(target_endian = "little")]
        return unsafe { *self.0.add(base).cast::<u32>().add(index) };
        #[cfg(target_endian = "big")]
        return (self.at(base + index / 2) >> (32 * (index & 1) as u32)) as u32;
    }

    /// Prefetches `words` words from `start` on.
    #[inline(always)]
    fn prefetch(self, start: usize, words: usize) {
        #[cfg(target_arch = "x86_64")]
        for word in (start..start + words).step_by(LINE) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch does not dereference its address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.0.wrapping_add(word).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, words);
    }
}

/// State of a lookup.
#[derive(Clone, Copy)]
struct Lane {
    key: KeyBytes,
    at: Ref,
    /// Last word of the best match so far, or 0 if there is no match yet.
    best: u64,
    pending: usize,
    /// Stack of rests that must be searched. The upper half of each element is the highest priority in the rest.
    rests: [MaybeUninit<u64>; MOST_LEVELS],
}

impl Tree {
    fn words(&self) -> Words {
        Words(self.arena.flat().as_ptr())
    }

    /// Returns the handle of the first rule that matches, or 0 if no rule matches. Missing bytes of a short key count
    /// as 0.
    #[inline(always)]
    pub(crate) fn search(&self, machine: impl Machine, key: &[u8]) -> u32 {
        let length = self.layout.key_bytes;
        if key.len() < length {
            return self.search_filled(key);
        }
        if length >= 8 {
            return self.search_at(machine, KeyBytes(key.as_ptr()));
        }
        let mut filled = [0; 8];
        let bytes = filled.iter_mut().zip(&key[..length]);
        bytes.for_each(|(filled, byte)| *filled = *byte);
        self.search_at(machine, KeyBytes(filled.as_ptr()))
    }

    #[cold]
    fn search_filled(&self, key: &[u8]) -> u32 {
        self.search(Portable, &self.filled(key))
    }

    /// Pads a key with zeros to the layout's key length, and to at least eight bytes.
    fn filled(&self, key: &[u8]) -> Vec<u8> {
        let length = self.layout.key_bytes;
        let mut filled = key[..length.min(key.len())].to_vec();
        filled.resize(length.max(8), 0);
        filled
    }

    #[inline(always)]
    fn search_at(&self, machine: impl Machine, key: KeyBytes) -> u32 {
        let words = self.words();
        let mut lane = Lane::new(key, self.root);
        while !lane.at.is_none() {
            self.step(machine, words, &mut lane);
        }
        handle_of(lane.best)
    }

    /// Returns the effort of a search.
    pub(crate) fn effort(&self, key: &[u8]) -> Effort {
        let (filled, columns) = (self.filled(key), &self.layout.columns);
        let mut lane = Lane::new(KeyBytes(filled.as_ptr()), self.root);
        let mut effort = Effort::default();
        while !lane.at.is_none() {
            if lane.at.is_leaf() {
                let leaf = Leaf::at(columns, &self.arena, lane.at);
                effort.leaves += 1;
                effort.rules += leaf.count(columns, &self.arena);
            } else {
                effort.nodes += 1;
            }
            self.step(Portable, self.words(), &mut lane);
        }
        effort
    }

    /// Looks up consecutive keys. A result is a handle minus one. If no rule matches, the handle 0 wraps to the
    /// greatest number.
    #[inline(always)]
    pub(crate) fn search_batch(&self, machine: impl Machine, keys: &[u8], found: &mut [u32]) {
        let length = self.layout.key_bytes;
        if length < 8 {
            // The keys are shorter than eight bytes, and lookups read eight bytes. So each key is copied to a longer
            // buffer.
            let count = keys.len().checked_div(length).unwrap_or(found.len());
            for (index, found) in found.iter_mut().enumerate().take(count) {
                let key = &keys[index * length..][..length];
                *found = self.search(machine, key).wrapping_sub(1);
            }
            return;
        }
        if self.arena.bytes() <= RESIDENT {
            let nowhere = |_| Lane::new(KeyBytes(keys.as_ptr()), Ref::NONE);
            let mut lanes = std::array::from_fn(nowhere);
            let keys = keys.chunks(TOGETHER * length);
            for (keys, found) in keys.zip(found.chunks_mut(TOGETHER)) {
                self.one_by_one(machine, &mut lanes, keys, found);
            }
            return;
        }
        let mut lanes = [Lane::new(KeyBytes(keys.as_ptr()), Ref::NONE); ABREAST];
        let keys = keys.chunks(ABREAST * length);
        for (keys, found) in keys.zip(found.chunks_mut(ABREAST)) {
            self.side_by_side(machine, &mut lanes, keys, found);
        }
    }

    /// Looks up at most `TOGETHER` keys.
    #[inline(always)]
    fn one_by_one(
        &self,
        machine: impl Machine,
        lanes: &mut [Lane; TOGETHER],
        keys: &[u8],
        found: &mut [u32],
    ) {
        let words = self.words();
        let count = found.len().min(keys.len() / self.layout.key_bytes);
        let (found, lanes) = (&mut found[..count], &mut lanes[..count]);
        let keys = keys.chunks_exact(self.layout.key_bytes);
        for (lane, key) in lanes.iter_mut().zip(keys) {
            lane.begin(KeyBytes(key.as_ptr()), self.root);
            if !self.root.is_leaf() && !self.root.is_none() {
                self.descend(machine, words, lane);
            }
        }
        for (found, lane) in found.iter_mut().zip(lanes) {
            if lane.at.is_none() {
                lane.next_rest();
            }
            while !lane.at.is_none() {
                self.step(machine, words, lane);
            }
            *found = handle_of(lane.best).wrapping_sub(1);
        }
    }

    /// Looks up at most `ABREAST` keys.
    #[inline(always)]
    fn side_by_side(
        &self,
        machine: impl Machine,
        lanes: &mut [Lane; ABREAST],
        keys: &[u8],
        found: &mut [u32],
    ) {
        let words = self.words();
        let group = self.layout.columns.group_words();
        let mut waiting = List::default();
        let (mut nodes, mut leaves) = (List::default(), List::default());
        let mut count = 0;
        for (index, key) in keys
            .chunks_exact(self.layout.key_bytes)
            .take(found.len())
            .enumerate()
        {
            lanes[index].begin(KeyBytes(key.as_ptr()), self.root);
            nodes.push_if(index, !self.root.is_none());
            count += 1;
        }
        while nodes.count + leaves.count > 0 {
            while nodes.count > 0 {
                let mut deeper = List::default();
                for index in nodes.iter() {
                    let lane = &mut lanes[index];
                    self.descend(machine, words, lane);
                    lane.prefetch(words, group);
                    deeper.push_if(index, !lane.at.is_leaf() && !lane.at.is_none());
                    leaves.push_if(index, lane.at.is_leaf());
                    waiting.push_if(index, lane.at.is_none() && lane.pending > 0);
                }
                nodes = deeper;
            }
            for index in leaves.iter() {
                let lane = &mut lanes[index];
                self.compare(machine, words, lane);
                waiting.push_if(index, lane.pending > 0);
            }
            leaves.count = 0;
            for index in waiting.iter() {
                let lane = &mut lanes[index];
                lane.next_rest();
                lane.prefetch(words, group);
                nodes.push_if(index, !lane.at.is_leaf() && !lane.at.is_none());
                leaves.push_if(index, lane.at.is_leaf());
            }
            waiting.count = 0;
        }
        for (found, lane) in found[..count].iter_mut().zip(lanes) {
            *found = handle_of(lane.best).wrapping_sub(1);
        }
    }

    /// Performs the step at one node or leaf. After a leaf, continues with the next rest.
    #[inline(always)]
    fn step(&self, machine: impl Machine, words: Words, lane: &mut Lane) {
        if lane.at.is_leaf() {
            self.compare(machine, words, lane);
            return lane.next_rest();
        }
        self.descend(machine, words, lane);
        if lane.at.is_none() {
            lane.next_rest();
        }
    }

    /// Descends from a node to its child, and pushes the node's rest to the stack.
    #[inline(always)]
    fn descend(&self, machine: impl Machine, words: Words, lane: &mut Lane) {
        let base = lane.at.block() as usize * LINE;
        let head = Head(words.at(base));
        let (child, children) = if head.is_thresholds() {
            // SAFETY: a lane's key is a key of the layout, and a node with thresholds has four words of thresholds.
            let child = unsafe {
                let number = self.layout.number(lane.key, head.operand());
                machine.exceeded(words.0.add(base + NODE_HEAD), number)
            };
            (child, base + NODE_HEAD + THRESHOLD_WORDS)
        } else {
            // SAFETY: as above. A node's window is one of the layout's windows.
            let window = unsafe { lane.key.window(head.operand()) };
            (machine.gather(window, words.at(base + 1)), base + NODE_HEAD)
        };
        let rest = words.at(base + 2);
        let wanted = rest as u32 != 0 && (rest >> 32) as u32 >= priority_of(lane.best);
        // A path has at most `MOST_LEVELS` nodes, so `rests` cannot overflow.
        lane.rests[lane.pending] = MaybeUninit::new(rest);
        lane.pending += usize::from(wanted);
        lane.at = Ref(words.half(children, child as usize));
    }

    /// Compares the key with the rules of a leaf.
    #[inline(always)]
    fn compare(&self, machine: impl Machine, words: Words, lane: &mut Lane) {
        let columns = &self.layout.columns;
        let lasts = columns.lasts();
        let mut group = lane.at.block() as usize * LINE;
        loop {
            // SAFETY: the lane is at a leaf, whose groups are consecutive. The lane's key is a key of the layout.
            let hits = unsafe { machine.matching(columns, words.0.add(group), lane.key) };
            let first = (hits | 1 << (LANES - 1)).trailing_zeros() as usize;
            let last = words.at(group + lasts + first) & !MORE;
            // The last word of an unused lane is 0, so a hit with a last word of 0 is no rule.
            let better = hits != 0 && last != 0 && self.comes_first(last, lane.best);
            lane.best = select_unpredictable(better, last, lane.best);
            let more = words.at(group + lasts + LANES - 1) & MORE != 0;
            if !more || hits != 0 {
                return;
            }
            group += columns.group_words();
        }
    }

    #[inline(always)]
    fn comes_first(&self, last: u64, best: u64) -> bool {
        let (a, b) = (priority_of(last), priority_of(best));
        (a > b) | (best == 0) || a == b && self.earlier(last, best)
    }

    #[inline(never)]
    fn earlier(&self, last: u64, best: u64) -> bool {
        let sequence = |last| self.sequences.get(handle_of(last) as usize);
        sequence(last) < sequence(best)
    }
}

impl Lane {
    #[inline(always)]
    fn new(key: KeyBytes, root: Ref) -> Self {
        Self {
            key,
            at: root,
            best: 0,
            pending: 0,
            rests: [MaybeUninit::uninit(); MOST_LEVELS],
        }
    }

    #[inline(always)]
    fn begin(&mut self, key: KeyBytes, root: Ref) {
        self.key = key;
        self.at = root;
        self.best = 0;
        self.pending = 0;
    }

    /// Continues with the topmost rest of the stack that may contain a rule before the best match.
    #[inline(always)]
    fn next_rest(&mut self) {
        self.at = Ref::NONE;
        while self.pending > 0 {
            self.pending -= 1;
            // SAFETY: `descend` wrote the first `pending` rests.
            let rest = unsafe { self.rests[self.pending].assume_init() };
            if (rest >> 32) as u32 >= priority_of(self.best) {
                self.at = Ref(rest as u32);
                return;
            }
        }
    }

    /// Prefetches the node or the first group at the lane's position.
    #[inline(always)]
    fn prefetch(&self, words: Words, group: usize) {
        let base = self.at.block() as usize * LINE;
        let most = if self.at.is_leaf() { group } else { 2 * LINE };
        words.prefetch(base, most);
    }
}

/// A list of lanes whose next step is of the same kind.
struct List {
    /// The lanes, and one more element, because `push_if` writes an element before it tests whether the lane is wanted.
    lanes: [u8; ABREAST + 1],
    count: usize,
}

impl Default for List {
    #[inline(always)]
    fn default() -> Self {
        Self {
            lanes: [0; ABREAST + 1],
            count: 0,
        }
    }
}

impl List {
    /// Appends a lane if `wanted` is set, without a branch.
    #[inline(always)]
    fn push_if(&mut self, lane: usize, wanted: bool) {
        self.lanes[self.count] = lane as u8;
        self.count += usize::from(wanted);
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.lanes[..self.count]
            .iter()
            .map(|lane| usize::from(*lane) % ABREAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, Precedence, Rule};
    use crate::sample::{self, KEY_BYTES, Shape};

    #[test]
    fn look_ups_side_by_side_find_what_each_finds_alone() {
        let rules = sample::rules(Shape::Chain, 1_500, 3);
        let mut tree = Tree::new(Layout::new(KEY_BYTES, &[8..10, 10..12]));
        for (index, rule) in (0..).zip(&rules) {
            let (value, bounds) = rule.parts();
            let rule = Rule {
                value: &value,
                bounds: &bounds,
            };
            let precedence = Precedence {
                priority: index % 7,
                sequence: index as u64,
            };
            tree.insert(rule, precedence, index as u32 + 1);
        }
        let keys = sample::trace(&rules, 3_000, 4);
        for keys in keys.chunks(ABREAST - 5).chain(keys.chunks(ABREAST)) {
            let flat = keys.as_flattened();
            let mut lanes = [Lane::new(KeyBytes(flat.as_ptr()), Ref::NONE); ABREAST];
            let mut found = vec![0; keys.len()];
            tree.side_by_side(Portable, &mut lanes, flat, &mut found);
            let alone = keys
                .iter()
                .map(|key| tree.search(Portable, key).wrapping_sub(1));
            assert!(alone.eq(found));
        }
    }
}
