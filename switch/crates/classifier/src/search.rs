// SPDX-License-Identifier: Apache-2.0
//! Look-ups, one by one or many side by side.
//!
//! A look-up goes down to a leaf, then through the rests it passed on the way, the last first, but
//! not through one whose rules all come after what was found. In a batch, look-ups go side by
//! side: those that are at nodes take a step each and ask for the memory of the next, those that
//! have come to leaves compare, and so on. Which list a look-up goes to is computed, not branched
//! upon: for lists of some hundred rules a wrongly predicted branch would cost more than the rest.
//!
//! **Invariant that the unchecked reads rest on.** Every [`Ref`] in the arena names a block that is
//! in use: `tree.rs` writes a block before the reference to it and clears or overwrites the
//! reference when it releases the block. A block's length follows from its first words. A child's
//! index is below the fan-out: it is made of the bits the node selects, or of a count of
//! thresholds. Behind the last block lie more words than a leaf's kernel reads beyond its rules.

use std::hint::select_unpredictable;
use std::mem::MaybeUninit;

use crate::arena::LINE;
use crate::classifier::Effort;
use crate::layout::{Key, window};
use crate::node::{Head, NODE_HEAD, Ref, THRESHOLD_WORDS, leaf_count};
use crate::tree::{MOST_LEVELS, Tree, handle_of, priority_of};

/// Look-ups that go side by side.
const LANES: usize = 32;

/// Rules of a leaf that are compared before it is asked which of them matched.
const CHUNK: usize = 4;

/// What a processor must have for a kernel.
pub(crate) trait Machine: Copy {
    /// The bits of `value` that `mask` selects.
    fn gather(self, value: u64, mask: u64) -> u32;
}

/// Any processor.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Machine for Portable {
    #[inline(always)]
    fn gather(self, value: u64, mask: u64) -> u32 {
        crate::cut::gather(value, mask)
    }
}

/// One with BMI2: exists only where it was detected.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bmi2(());

#[cfg(target_arch = "x86_64")]
impl Bmi2 {
    pub(crate) fn detect() -> Option<Self> {
        (std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("avx2"))
        .then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Machine for Bmi2 {
    #[inline(always)]
    fn gather(self, value: u64, mask: u64) -> u32 {
        // SAFETY: a `Bmi2` exists only where the processor has it.
        unsafe { std::arch::x86_64::_pext_u64(value, mask) as u32 }
    }
}

/// A tree to be read without checks.
struct Words<'a>(&'a [u64]);

impl Words<'_> {
    #[inline(always)]
    fn at(&self, index: usize) -> u64 {
        debug_assert!(index < self.0.len());
        // SAFETY: the module's invariant: callers read words of blocks in use, or so few beyond
        // the last that they are in the arena's slack.
        unsafe { *self.0.get_unchecked(index) }
    }

    /// The half word `index` after the word `base`.
    #[inline(always)]
    fn half(&self, base: usize, index: usize) -> u32 {
        (self.at(base + index / 2) >> (32 * (index & 1) as u32)) as u32
    }

    /// Asks for the memory of a block's beginning.
    #[inline(always)]
    fn prefetch(&self, word: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing; the address is not dereferenced.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.0.as_ptr().wrapping_add(word).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = word;
    }
}

/// A look-up under way.
#[derive(Clone, Copy)]
struct Lane<const W: usize, const R: usize> {
    key: Key<W, R>,
    at: Ref,
    /// The last word of the best rule so far, 0 for none.
    best: u64,
    pending: usize,
    /// Rests to be searched, each below the highest priority in it.
    rests: [MaybeUninit<u64>; MOST_LEVELS],
}

impl<const W: usize, const R: usize> Tree<W, R> {
    /// The handle of the first rule that matches, 0 for none.
    #[inline(always)]
    pub(crate) fn search(&self, machine: impl Machine, key: &[u8]) -> u32 {
        let words = Words(self.arena.flat());
        let mut lane = Lane::new(self.layout.key(key), self.root);
        while !lane.at.is_none() {
            self.step(machine, &words, &mut lane);
        }
        handle_of(lane.best)
    }

    /// What a search costs.
    pub(crate) fn effort(&self, key: &[u8]) -> Effort {
        let words = Words(self.arena.flat());
        let mut lane = Lane::new(self.layout.key(key), self.root);
        let mut effort = Effort::default();
        while !lane.at.is_none() {
            if lane.at.is_leaf() {
                effort.leaves += 1;
                effort.rules += leaf_count(&self.arena, lane.at);
            } else {
                effort.nodes += 1;
            }
            self.step(Portable, &words, &mut lane);
        }
        effort
    }

    /// Handles, less one (0 becomes the greatest number), for keys that lie one after the other.
    #[inline(always)]
    pub(crate) fn search_batch(&self, machine: impl Machine, keys: &[u8], found: &mut [u32]) {
        if self.layout.key_bytes == 0 {
            return found.fill(self.search(machine, &[]).wrapping_sub(1));
        }
        let mut lanes = [Lane::new(
            Key {
                words: [0; W],
                numbers: [0; R],
            },
            Ref::NONE,
        ); LANES];
        let keys = keys.chunks(LANES * self.layout.key_bytes);
        for (keys, found) in keys.zip(found.chunks_mut(LANES)) {
            self.side_by_side(machine, &mut lanes, keys, found);
        }
    }

    /// At most `LANES` keys.
    #[inline(always)]
    fn side_by_side(
        &self,
        machine: impl Machine,
        lanes: &mut [Lane<W, R>; LANES],
        keys: &[u8],
        found: &mut [u32],
    ) {
        let words = Words(self.arena.flat());
        let mut waiting = List::default();
        let (mut nodes, mut leaves) = (List::default(), List::default());
        let mut count = 0;
        for (index, key) in keys
            .chunks_exact(self.layout.key_bytes)
            .take(found.len())
            .enumerate()
        {
            lanes[index].begin(self.layout.key(key), self.root);
            nodes.push_if(index, !self.root.is_leaf() && !self.root.is_none());
            leaves.push_if(index, self.root.is_leaf());
            count += 1;
        }
        while nodes.count + leaves.count > 0 {
            while nodes.count > 0 {
                let mut deeper = List::default();
                for index in nodes.iter() {
                    let lane = &mut lanes[index];
                    self.descend(machine, &words, lane);
                    lane.prefetch(&words);
                    deeper.push_if(index, !lane.at.is_leaf() && !lane.at.is_none());
                    leaves.push_if(index, lane.at.is_leaf());
                    waiting.push_if(index, lane.at.is_none() && lane.pending > 0);
                }
                nodes = deeper;
            }
            for index in leaves.iter() {
                let lane = &mut lanes[index];
                self.compare(&words, lane);
                waiting.push_if(index, lane.pending > 0);
            }
            leaves.count = 0;
            for index in waiting.iter() {
                let lane = &mut lanes[index];
                lane.next_rest();
                lane.prefetch(&words);
                nodes.push_if(index, !lane.at.is_leaf() && !lane.at.is_none());
                leaves.push_if(index, lane.at.is_leaf());
            }
            waiting.count = 0;
        }
        for (found, lane) in found[..count].iter_mut().zip(lanes) {
            *found = handle_of(lane.best).wrapping_sub(1);
        }
    }

    /// One node or leaf, and on to the next rest where a path ends.
    #[inline(always)]
    fn step(&self, machine: impl Machine, words: &Words<'_>, lane: &mut Lane<W, R>) {
        if lane.at.is_leaf() {
            self.compare(words, lane);
            return lane.next_rest();
        }
        self.descend(machine, words, lane);
        if lane.at.is_none() {
            lane.next_rest();
        }
    }

    /// From a node to its child; the rest is kept for later.
    #[inline(always)]
    fn descend(&self, machine: impl Machine, words: &Words<'_>, lane: &mut Lane<W, R>) {
        let base = lane.at.block() as usize * LINE;
        let head = Head(words.at(base));
        let (child, children) = if head.is_thresholds() {
            // `place` is below R: the estimate chooses among the layout's numbers.
            let number = lane.key.numbers.get(head.place()).copied().unwrap_or(0);
            let exceeds = |index| u32::from(number > words.half(base + NODE_HEAD, index));
            let child: u32 = (0..8).map(exceeds).sum();
            (child, base + NODE_HEAD + THRESHOLD_WORDS)
        } else {
            let window = window(&lane.key.words, head.place());
            (machine.gather(window, words.at(base + 1)), base + NODE_HEAD)
        };
        let rest = words.at(base + 2);
        let wanted = rest as u32 != 0 && (rest >> 32) as u32 >= priority_of(lane.best);
        // A path has at most `MOST_LEVELS` nodes, so there is room.
        lane.rests[lane.pending] = MaybeUninit::new(rest);
        lane.pending += usize::from(wanted);
        lane.at = Ref(words.half(children, child as usize));
    }

    /// Compares with the rules of a leaf.
    #[inline(always)]
    fn compare(&self, words: &Words<'_>, lane: &mut Lane<W, R>) {
        let base = lane.at.block() as usize * LINE;
        let stride = 2 * W + R + 1;
        let count = words.at(base) as u32 as usize;
        let mut start = 0;
        loop {
            let mut hits = 0u32;
            for index in 0..CHUNK {
                // What lies behind the last rule may be far away in the caches: take the last again.
                let rule = (start + index).min(count - 1);
                let hit = matches(words, base + 1 + rule * stride, &lane.key);
                hits |= u32::from(hit) << index;
            }
            if !self.deep.is_empty() {
                hits = self.confirmed(words, base, start, count, hits, &lane.key);
            }
            let index = start + (hits | 1 << (CHUNK - 1)).trailing_zeros() as usize;
            let last = words.at(base + (index.min(count - 1) + 1) * stride);
            let better = hits != 0 && self.comes_first(last, lane.best);
            lane.best = select_unpredictable(better, last, lane.best);
            start += CHUNK;
            if start >= count || hits != 0 {
                return;
            }
        }
    }

    /// Those of the hits that what is compared last confirms.
    #[inline(never)]
    fn confirmed(
        &self,
        words: &Words<'_>,
        base: usize,
        start: usize,
        count: usize,
        hits: u32,
        key: &Key<W, R>,
    ) -> u32 {
        let stride = 2 * W + R + 1;
        let confirms = |index: &usize| {
            let last = words.at(base + ((start + index).min(count - 1) + 1) * stride);
            hits >> index & 1 == 1
                && self
                    .layout
                    .deep_matches(&key.words, self.deep_of(handle_of(last)))
        };
        (0..CHUNK)
            .filter(confirms)
            .fold(0, |all, index| all | 1 << index)
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

/// Whether a key matches the rule at a word; without branches.
#[inline(always)]
fn matches<const W: usize, const R: usize>(
    words: &Words<'_>,
    rule: usize,
    key: &Key<W, R>,
) -> bool {
    let mut differs = 0;
    for index in 0..W {
        differs |= key.words[index] & words.at(rule + W + index) ^ words.at(rule + index);
    }
    let mut outside = false;
    for index in 0..R {
        let range = words.at(rule + 2 * W + index);
        outside |= key.numbers[index].wrapping_sub((range >> 32) as u32) > range as u32;
    }
    differs == 0 && !outside
}

impl<const W: usize, const R: usize> Lane<W, R> {
    #[inline(always)]
    fn new(key: Key<W, R>, root: Ref) -> Self {
        Self {
            key,
            at: root,
            best: 0,
            pending: 0,
            rests: [MaybeUninit::uninit(); MOST_LEVELS],
        }
    }

    #[inline(always)]
    fn begin(&mut self, key: Key<W, R>, root: Ref) {
        self.key = key;
        self.at = root;
        self.best = 0;
        self.pending = 0;
    }

    /// Goes on with the last rest in which a rule may come first.
    #[inline(always)]
    fn next_rest(&mut self) {
        self.at = Ref::NONE;
        while self.pending > 0 {
            self.pending -= 1;
            // SAFETY: the first `pending` were written by `step`.
            let rest = unsafe { self.rests[self.pending].assume_init() };
            if (rest >> 32) as u32 >= priority_of(self.best) {
                self.at = Ref(rest as u32);
                return;
            }
        }
    }

    #[inline(always)]
    fn prefetch(&self, words: &Words<'_>) {
        let base = self.at.block() as usize * LINE;
        words.prefetch(base);
        words.prefetch(base + LINE);
    }
}

/// Which lanes are at the same sort of step.
struct List {
    /// One more place than can be in use: `push_if` writes before it knows.
    lanes: [u8; LANES + 1],
    count: usize,
}

impl Default for List {
    #[inline(always)]
    fn default() -> Self {
        Self {
            lanes: [0; LANES + 1],
            count: 0,
        }
    }
}

impl List {
    /// Appends a lane on a condition, without a branch.
    #[inline(always)]
    fn push_if(&mut self, lane: usize, wanted: bool) {
        self.lanes[self.count] = lane as u8;
        self.count += usize::from(wanted);
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.lanes[..self.count]
            .iter()
            .map(|lane| usize::from(*lane) % LANES)
    }
}
