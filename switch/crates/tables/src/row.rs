// SPDX-License-Identifier: Apache-2.0
//! Rows: the words that a lookup returns, for packets and for machine code.
//!
//! The first word of a row is the head. An action's parameters follow at an offset that depends only on the table.
//! Three kinds of data begin with a row: an entry's record, the class of equal targets in a longest-prefix table, and
//! a default entry.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bit of a row's head that is set on a hit and clear in the row of a default entry. The low 32 bits of the head hold
/// the action.
pub const ROW_HIT: u64 = 1 << 34;

/// Lowest bit of a two-bit field in a row's head, in a table with a profile. The field says what the low 32 bits of
/// the head are: [`KIND_ACTION`], [`KIND_MEMBER`] or [`KIND_GROUP`].
pub const ROW_KIND: u32 = 32;

/// Lowest bit of a field in the head of an entry's row. The field is the number of the record that holds the entry's
/// packet state.
pub const ROW_HOLDER: u32 = 36;

/// The low half of the head is an action. Its parameters are in the row.
pub const KIND_ACTION: u64 = 0;

/// The low half of the head is the id of a member.
pub const KIND_MEMBER: u64 = 1;

/// The low half of the head is the id of a group.
pub const KIND_GROUP: u64 = 2;

/// Stands in the low half of the head for "no action".
pub const NO_ACTION: u32 = u32::MAX;

/// The row that a lookup found; see the module. The type has the layout of an address, because machine code passes it
/// as one.
///
/// Invariant: the words exist during `'a`. During this time, packets and machine code write only the words of the
/// packet state.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Row<'a> {
    start: *const AtomicU64,
    words: PhantomData<&'a [AtomicU64]>,
}

impl<'a> Row<'a> {
    /// Returns the row that consists of these words.
    #[inline(always)]
    pub(crate) fn of(words: &'a [AtomicU64]) -> Self {
        Self {
            start: words.as_ptr(),
            words: PhantomData,
        }
    }

    /// Returns the row that begins at `start`.
    ///
    /// # Safety
    /// The words of a row must exist at this address during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn at(start: *const AtomicU64) -> Self {
        Self {
            start,
            words: PhantomData,
        }
    }

    /// Returns the head.
    #[inline(always)]
    pub fn head(self) -> u64 {
        // SAFETY: a row begins with a head, and the words exist as long as `self`.
        unsafe { &*self.start }.load(Ordering::Relaxed)
    }

    /// Returns the address of the head. The address is valid for reads of the whole row during `'a`.
    #[inline(always)]
    pub fn as_ptr(self) -> *const u64 {
        self.start.cast()
    }
}
