// SPDX-License-Identifier: Apache-2.0
//! The last word of a rule's record: priority, flag of leaves, number of copies, handle.

/// Flag in the last word of a group of rules in a leaf: another group follows.
pub(crate) const MORE: u64 = 1 << 31;

/// Bits of a rule's last word: priority (32), [`MORE`] of leaves (1), logarithm of the rule's copies (3), handle (28).
const COPIES_SHIFT: u32 = 28;
const HANDLE_MASK: u64 = (1 << COPIES_SHIFT) - 1;

/// Returns the priority in a rule's last word. Higher numbers come first.
#[inline(always)]
pub(crate) fn priority_of(last: u64) -> u32 {
    (last >> 32) as u32
}

/// Returns the handle in a rule's last word: the caller's value plus one.
#[inline(always)]
pub(crate) fn handle_of(last: u64) -> u32 {
    (last & HANDLE_MASK) as u32
}

/// Returns the base-2 logarithm of a rule's copies, from its last word.
pub(crate) fn copies_of(last: u64) -> u32 {
    (last >> COPIES_SHIFT & 7) as u32
}

/// Returns a last word with another logarithm of copies.
pub(crate) fn with_copies(last: u64, copies: u32) -> u64 {
    last & !(7 << COPIES_SHIFT) | u64::from(copies) << COPIES_SHIFT
}

/// Returns a last word without [`MORE`].
pub(crate) fn without_more(last: u64) -> u64 {
    last & !MORE
}
