// SPDX-License-Identifier: Apache-2.0
//! Nodes and leaves as they lie in the arena.
//!
//! | word | of a node | of a leaf |
//! |---|---|---|
//! | 0 | kind, offset or number, fan-out's logarithm | count, and from which count on a split is tried |
//! | 1 | the selected bits | the rules, one after the other, in their order |
//! | 2 | the rest, and the highest priority in it | |
//! | 3 | rules when it was built, changes since | |
//! | 4.. | thresholds (4 words) if it has them, then children, two to a word | |

use crate::arena::Arena;
use crate::cut::{Cut, THRESHOLDS};

/// A node, a leaf or nothing: the block, shifted by one, and whether it is a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref(pub(crate) u32);

impl Ref {
    pub(crate) const NONE: Self = Self(0);

    #[inline(always)]
    pub(crate) fn is_leaf(self) -> bool {
        self.0 & 1 == 1
    }

    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The block's number in the arena.
    #[inline(always)]
    pub(crate) fn block(self) -> u32 {
        self.0 >> 1
    }

    fn leaf(block: u32) -> Self {
        Self(block << 1 | 1)
    }

    fn node(block: u32) -> Self {
        Self(block << 1)
    }
}

/// Words before a node's thresholds or children.
pub(crate) const NODE_HEAD: usize = 4;
/// Words of thresholds.
pub(crate) const THRESHOLD_WORDS: usize = THRESHOLDS.div_ceil(2);

const KIND_BITS: u64 = 0;
const KIND_THRESHOLDS: u64 = 1;

/// Word 0 of a node, unpacked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head(pub(crate) u64);

impl Head {
    #[inline(always)]
    pub(crate) fn is_thresholds(self) -> bool {
        self.0 & 0xff == KIND_THRESHOLDS
    }

    /// The window's offset, or which number.
    #[inline(always)]
    pub(crate) fn place(self) -> usize {
        (self.0 >> 8 & 0xffff) as usize
    }
}

fn node_words(cut: &Cut) -> usize {
    let thresholds = match cut {
        Cut::Bits { .. } => 0,
        Cut::Thresholds { .. } => THRESHOLD_WORDS,
    };
    NODE_HEAD + thresholds + cut.fan_out().div_ceil(2)
}

fn put_half(words: &mut [u64], index: usize, half: u32) {
    let shift = 32 * (index % 2);
    let word = &mut words[index / 2];
    *word = *word & !(0xffff_ffff << shift) | u64::from(half) << shift;
}

fn half(words: &[u64], index: usize) -> u32 {
    (words[index / 2] >> (32 * (index % 2))) as u32
}

/// A node without children.
pub(crate) fn new_node(arena: &mut Arena, cut: &Cut, rules: usize) -> Ref {
    let count = node_words(cut);
    let block = arena.allocate(count);
    let words = arena.words_mut(block, count);
    words[3] = rules as u64 & 0xffff_ffff;
    match cut {
        Cut::Bits { offset, mask } => {
            words[0] = KIND_BITS | u64::from(*offset) << 8;
            words[1] = *mask;
        }
        Cut::Thresholds { number, at } => {
            words[0] = KIND_THRESHOLDS | u64::from(*number) << 8;
            for (index, at) in at.iter().enumerate() {
                put_half(&mut words[NODE_HEAD..], index, *at);
            }
            put_half(&mut words[NODE_HEAD..], THRESHOLDS, u32::MAX);
        }
    }
    Ref::node(block)
}

/// A view of a node.
pub(crate) struct Node {
    block: u32,
    pub(crate) cut: Cut,
}

impl Node {
    pub(crate) fn at(arena: &Arena, node: Ref) -> Self {
        let words = arena.words(node.block(), NODE_HEAD + THRESHOLD_WORDS);
        let head = Head(words[0]);
        let cut = if head.is_thresholds() {
            let at = std::array::from_fn(|index| half(&words[NODE_HEAD..], index));
            Cut::Thresholds {
                number: head.place() as u8,
                at,
            }
        } else {
            Cut::Bits {
                offset: head.place() as u16,
                mask: words[1],
            }
        };
        Self {
            block: node.block(),
            cut,
        }
    }

    fn children_at(&self) -> usize {
        match self.cut {
            Cut::Bits { .. } => NODE_HEAD,
            Cut::Thresholds { .. } => NODE_HEAD + THRESHOLD_WORDS,
        }
    }

    pub(crate) fn child(&self, arena: &Arena, child: usize) -> Ref {
        Ref(half(
            &arena.words(self.block, node_words(&self.cut))[self.children_at()..],
            child,
        ))
    }

    pub(crate) fn set_child(&self, arena: &mut Arena, child: usize, to: Ref) {
        let words = arena.words_mut(self.block, node_words(&self.cut));
        put_half(&mut words[self.children_at()..], child, to.0);
    }

    pub(crate) fn rest(&self, arena: &Arena) -> Ref {
        Ref(arena.words(self.block, 3)[2] as u32)
    }

    /// Sets the rest, in which no priority is higher than this one or what it was.
    pub(crate) fn set_rest(&self, arena: &mut Arena, rest: Ref, priority: u32) {
        let word = &mut arena.words_mut(self.block, 3)[2];
        let priority = if *word as u32 == 0 {
            priority
        } else {
            priority.max((*word >> 32) as u32)
        };
        *word = u64::from(priority) << 32 | u64::from(rest.0);
    }

    /// Counts a change; true when there were as many as the node had rules when it was built.
    pub(crate) fn changed(&self, arena: &mut Arena) -> bool {
        let word = &mut arena.words_mut(self.block, NODE_HEAD)[3];
        *word += 1 << 32;
        (*word >> 32) > (*word & 0xffff_ffff) + 16
    }

    pub(crate) fn release(self, arena: &mut Arena) {
        arena.release(self.block, node_words(&self.cut));
    }
}

/// A leaf of these rules, which lie one after the other in their order.
pub(crate) fn new_leaf(arena: &mut Arena, records: &[u64], stride: usize, split_at: usize) -> Ref {
    if records.is_empty() {
        return Ref::NONE;
    }
    let count = records.len() / stride;
    let block = arena.allocate(1 + records.len());
    let words = arena.words_mut(block, 1 + records.len());
    words[0] = (split_at as u64) << 32 | count as u64;
    words[1..].copy_from_slice(records);
    Ref::leaf(block)
}

/// Rules of a leaf.
pub(crate) fn leaf_count(arena: &Arena, leaf: Ref) -> usize {
    arena.words(leaf.block(), 1)[0] as u32 as usize
}

/// From how many rules on a leaf is to be split.
pub(crate) fn leaf_split_at(arena: &Arena, leaf: Ref) -> usize {
    (arena.words(leaf.block(), 1)[0] >> 32) as usize
}

/// The rules of a leaf.
pub(crate) fn leaf_records(arena: &Arena, leaf: Ref, stride: usize) -> &[u64] {
    let words = leaf_count(arena, leaf) * stride;
    &arena.words(leaf.block(), 1 + words)[1..]
}

pub(crate) fn release_leaf(arena: &mut Arena, leaf: Ref, stride: usize) {
    let words = 1 + leaf_count(arena, leaf) * stride;
    arena.release(leaf.block(), words);
}

/// Puts a rule in a leaf's place `index`; gives the leaf, which may have moved.
pub(crate) fn leaf_insert(arena: &mut Arena, leaf: Ref, index: usize, record: &[u64]) -> Ref {
    let stride = record.len();
    let (count, split_at) = (leaf_count(arena, leaf), leaf_split_at(arena, leaf));
    let (old, new) = (1 + count * stride, 1 + (count + 1) * stride);
    let place = 1 + index * stride;
    if Arena::fits(old, new) {
        let words = arena.words_mut(leaf.block(), new);
        words.copy_within(place..old, place + stride);
        words[place..place + stride].copy_from_slice(record);
        words[0] += 1;
        return leaf;
    }
    let mut records = Vec::with_capacity(new - 1);
    records.extend_from_slice(leaf_records(arena, leaf, stride));
    records.splice(place - 1..place - 1, record.iter().copied());
    release_leaf(arena, leaf, stride);
    new_leaf(arena, &records, stride, split_at)
}

/// Takes a rule out of a leaf; gives the leaf, which may have moved or gone.
pub(crate) fn leaf_remove(arena: &mut Arena, leaf: Ref, index: usize, stride: usize) -> Ref {
    let (count, split_at) = (leaf_count(arena, leaf), leaf_split_at(arena, leaf));
    let (old, new) = (1 + count * stride, 1 + (count - 1) * stride);
    let place = 1 + index * stride;
    if count > 1 && Arena::fits(old, new) {
        let words = arena.words_mut(leaf.block(), old);
        words.copy_within(place + stride..old, place);
        words[0] -= 1;
        return leaf;
    }
    let mut records = leaf_records(arena, leaf, stride).to_vec();
    records.drain(place - 1..place - 1 + stride);
    release_leaf(arena, leaf, stride);
    new_leaf(arena, &records, stride, split_at)
}
