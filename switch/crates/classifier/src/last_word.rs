// SPDX-License-Identifier: Apache-2.0
//! Packs and unpacks the last word of a rule's record: the priority, a flag for leaves, the number of copies, and the
//! handle.

/// Flag in the last word of a group's last lane. Set if the leaf has another group after this one.
pub(crate) const MORE: u64 = 1 << 31;

/// Layout of a rule's last word, from the highest bit:
/// - priority (32 bits)
/// - [`MORE`] (1 bit)
/// - logarithm of the rule's number of copies (3 bits)
/// - handle (28 bits)
const COPIES_SHIFT: u32 = 28;
const HANDLE_MASK: u64 = (1 << COPIES_SHIFT) - 1;

/// Returns the priority in a rule's last word. Rules with higher numbers come first.
#[inline(always)]
pub(crate) fn priority_of(last: u64) -> u32 {
    (last >> 32) as u32
}

/// Returns the handle in a rule's last word. The handle is the caller's value plus one.
#[inline(always)]
pub(crate) fn handle_of(last: u64) -> u32 {
    (last & HANDLE_MASK) as u32
}

/// Reads the base-2 logarithm of the number of copies from a rule's last word.
pub(crate) fn copies_of(last: u64) -> u32 {
    (last >> COPIES_SHIFT & 7) as u32
}

/// Returns a last word in which the logarithm of the number of copies is replaced by `copies`.
pub(crate) fn with_copies(last: u64, copies: u32) -> u64 {
    last & !(7 << COPIES_SHIFT) | u64::from(copies) << COPIES_SHIFT
}

/// Returns a last word without [`MORE`].
pub(crate) fn without_more(last: u64) -> u64 {
    last & !MORE
}
