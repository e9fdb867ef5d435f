// SPDX-License-Identifier: Apache-2.0
//! Reads and writes nodes in the arena, and defines references to nodes and leaves. A node has these words:
//!
//! | word | content |
//! |---|---|
//! | 0 | kind of cut, and the window's offset or the index of the range field |
//! | 1 | the selected bits |
//! | 2 | the rest, and an upper bound of the priorities in the rest |
//! | 3 | number of rules when the node was built, and number of changes since then |
//! | 4.. | thresholds (4 words, only in a node with thresholds), then children, two in each word |

use crate::arena::Arena;
use crate::cut::{Cut, THRESHOLDS};

/// Reference to a node, to a leaf or to nothing: the block number, shifted left by one. The lowest bit is set for a
/// leaf.
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

    /// Returns the block's number in the arena.
    #[inline(always)]
    pub(crate) fn block(self) -> u32 {
        self.0 >> 1
    }

    pub(crate) fn leaf(block: u32) -> Self {
        Self(block << 1 | 1)
    }

    fn node(block: u32) -> Self {
        Self(block << 1)
    }
}

/// Number of words before a node's thresholds or children.
pub(crate) const NODE_HEAD: usize = 4;
/// Number of words of thresholds in a node.
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

    /// Returns the window's offset, or the index of the range field.
    #[inline(always)]
    pub(crate) fn operand(self) -> usize {
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

/// Allocates a node without children. `rules` is the number of rules for which the node is built.
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

/// Access to a node in the arena.
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
                number: head.operand() as u8,
                at,
            }
        } else {
            Cut::Bits {
                offset: head.operand() as u16,
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

    /// Sets the rest. Raises the upper bound of the priorities in the rest to at least `priority`. If the node has no
    /// rest yet, `priority` becomes the bound.
    pub(crate) fn set_rest(&self, arena: &mut Arena, rest: Ref, priority: u32) {
        let word = &mut arena.words_mut(self.block, 3)[2];
        let priority = if *word as u32 == 0 {
            priority
        } else {
            priority.max((*word >> 32) as u32)
        };
        *word = u64::from(priority) << 32 | u64::from(rest.0);
    }

    /// Counts a change. Returns true when the subtree should be rebuilt: after more than n + 16 changes, where n is the
    /// number of rules for which the node was built.
    pub(crate) fn changed(&self, arena: &mut Arena) -> bool {
        arena.words_mut(self.block, NODE_HEAD)[3] += 1 << 32;
        let (rules, changes) = self.rules_and_changes(arena);
        changes > rules + 16
    }

    /// Returns an upper bound of the number of rules below this node.
    pub(crate) fn most_rules(&self, arena: &Arena) -> usize {
        let (rules, changes) = self.rules_and_changes(arena);
        rules + changes
    }

    fn rules_and_changes(&self, arena: &Arena) -> (usize, usize) {
        let word = arena.words(self.block, NODE_HEAD)[3];
        (word as u32 as usize, (word >> 32) as usize)
    }

    pub(crate) fn release(self, arena: &mut Arena) {
        arena.release(self.block, node_words(&self.cut));
    }
}
