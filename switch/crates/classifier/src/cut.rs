// SPDX-License-Identifier: Apache-2.0
//! Defines cuts. A cut determines which child a node selects for a key, and to which children a rule belongs. A rule
//! that would belong to too many children goes to the node's *rest*, a separate tree.

use crate::last_word::copies_of;
use crate::layout::Layout;

/// Base-2 logarithm of the maximum number of copies of a rule in the whole tree.
const MOST_COPIES_LOG2: u32 = 3;

/// Base-2 logarithm of the maximum number of children to which one node copies a rule.
const MOST_CHILDREN_LOG2: u32 = 2;

/// Returns how many selected bits a rule may still wildcard at its next cut. More would exceed the limits on copies.
/// `last` is the rule's last word.
pub(crate) fn spare(last: u64) -> u8 {
    MOST_CHILDREN_LOG2.min(MOST_COPIES_LOG2 - copies_of(last)) as u8
}

/// Number of thresholds in a node.
pub(crate) const THRESHOLDS: usize = 7;

/// The method by which a node selects the child for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Selects bits of the eight bytes at `offset`. The selected bits form the child's index.
    Bits {
        /// Offset in the key, in bytes.
        offset: u16,
        /// The selected bits, in the little-endian word.
        mask: u64,
    },
    /// Counts the thresholds that the key's number in a range field exceeds. The count is the child's index.
    Thresholds {
        /// Index of the range field in the layout.
        number: u8,
        /// Thresholds in ascending order. An unused threshold is the greatest number, so no number exceeds it.
        at: [u32; THRESHOLDS],
    },
}

/// The children to which a rule belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Children {
    /// Each index that is `base` combined with some of the bits of `open`.
    Combinations { base: u32, open: u32 },
    /// All indices from `first` to `last`, both included.
    Span { first: u32, last: u32 },
}

/// Gathers bits: moves the bits of `value` that `mask` selects to the low bits of the result, as the instruction PEXT
/// does.
pub(crate) fn gather(value: u64, mut mask: u64) -> u32 {
    let (mut gathered, mut place) = (0, 0);
    while mask != 0 {
        gathered |= ((value >> mask.trailing_zeros() & 1) as u32) << place;
        place += 1;
        mask &= mask - 1;
    }
    gathered
}

impl Cut {
    /// Returns the number of children of a node with this cut.
    pub(crate) fn fan_out(&self) -> usize {
        match self {
            Self::Bits { mask, .. } => 1 << mask.count_ones(),
            Self::Thresholds { .. } => THRESHOLDS + 1,
        }
    }

    /// Returns the children to which a rule belongs, and the base-2 logarithm of their number, rounded up. Returns
    /// `None` if the rule belongs to the rest. `copies` is the sum of these logarithms for the cuts on the path to this
    /// node.
    pub(crate) fn children(
        &self,
        layout: &Layout,
        record: &[u64],
        copies: u32,
    ) -> Option<(Children, u32)> {
        let (children, log2) = match self {
            Self::Bits { offset, mask } => {
                let (value, known) = layout.bits(record, usize::from(*offset));
                let stars = (mask & !known).count_ones();
                if stars > MOST_CHILDREN_LOG2 {
                    return None;
                }
                let (base, open) = (gather(value & known, *mask), gather(!known, *mask));
                (Children::Combinations { base, open }, stars)
            }
            Self::Thresholds { number, at } => {
                let (low, high) = layout.range(record, usize::from(*number));
                let child = |number: u32| at.iter().filter(|at| number > **at).count() as u32;
                let (first, last) = (child(low), child(high));
                (
                    Children::Span { first, last },
                    (last - first + 1).next_power_of_two().ilog2(),
                )
            }
        };
        let fits = log2 <= MOST_CHILDREN_LOG2 && copies + log2 <= MOST_COPIES_LOG2;
        fits.then_some((children, log2))
    }
}

impl Children {
    /// Calls `call` with the index of each child.
    pub(crate) fn for_each(self, mut call: impl FnMut(usize)) {
        match self {
            Self::Combinations { base, open } => {
                let mut chosen = 0u32;
                loop {
                    call((base | chosen) as usize);
                    chosen = chosen.wrapping_sub(open) & open;
                    if chosen == 0 {
                        break;
                    }
                }
            }
            Self::Span { first, last } => (first as usize..=last as usize).for_each(call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(cut: Cut, layout: &Layout, record: &[u64], copies: u32) -> Option<Vec<usize>> {
        let (children, _) = cut.children(layout, record, copies)?;
        let mut list = Vec::new();
        children.for_each(|child| list.push(child));
        Some(list)
    }

    #[test]
    fn a_rule_goes_where_its_open_bits_lead() {
        let cut = Cut::Bits {
            offset: 0,
            mask: 0b1_0110,
        };
        let layout = Layout::new(8, &[]);
        let of = |value, mask, copies| children(cut, &layout, &[value, mask, 0], copies);
        assert_eq!(of(0b1_0010, 0b1_0110, 0), Some(vec![0b101]));
        assert_eq!(of(0b1_0000, 0b1_0000, 0), Some(vec![4, 5, 6, 7]));
        assert_eq!(of(0, 0, 0), None);
        assert_eq!(of(0b1_0000, 0b1_0000, 3), None);
    }

    #[test]
    fn a_range_goes_to_the_children_it_overlaps() {
        let mut at = [u32::MAX; THRESHOLDS];
        at[0] = 9;
        at[1] = 19;
        let cut = Cut::Thresholds { number: 0, at };
        let layout = Layout::new(4, std::slice::from_ref(&(0..4)));
        let of = |low: u32, high: u32, copies| {
            let word = |number: u32| u64::from(number.swap_bytes());
            let record = [0, 0, word(low), word(high), 0];
            children(cut, &layout, &record, copies)
        };
        assert_eq!(of(0, 9, 0), Some(vec![0]));
        assert_eq!(of(9, 10, 0), Some(vec![0, 1]));
        assert_eq!(of(0, 0xffff_ffff, 0), Some(vec![0, 1, 2]));
        assert_eq!(of(0, 0xffff_ffff, 4), None);
    }

    #[test]
    fn gather_is_pext() {
        assert_eq!(gather(0b1011_0101, 0b0111_0001), 0b0111);
        assert_eq!(gather(u64::MAX, 1 << 63 | 1), 0b11);
    }
}
