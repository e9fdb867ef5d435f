// SPDX-License-Identifier: Apache-2.0
//! The parts of tables that machine code reads: rows, and handles of tables.
//!
//! A lookup returns a *row*, the address of some words. The first word is the head. An action's parameters follow at an
//! offset that depends only on the table. Records of entries, classes of longest-prefix tables and default entries
//! begin with a row. The lifetimes of [`Row`] and [`TableHandles`] borrow the side, so neither outlives the pin that
//! holds the side.
//!
//! A table's [`Access`] and [`RowShape`] never change, so compiled code may embed them. The table's [`TableHandle`]
//! holds the values that change with the entries.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_program::{Key, MatchKind, Program, Table};

use crate::entry::EntryState;
use crate::key::KeyShape;
use crate::lookup::Direct;
use crate::packing::Packing;
use crate::profile::{GroupHandle, row_words};
use crate::slab::Layout;

/// Bit of a row's head that marks a hit. The low 32 bits of the head hold the action.
pub const ROW_HIT: u64 = 1 << 34;

/// Lowest bit of a two-bit field in the row's head of a table with a profile. The field says what the low 32 bits are
/// ([`KIND_ACTION`], [`KIND_MEMBER`] or [`KIND_GROUP`]).
pub const ROW_KIND: u32 = 32;

/// Lowest bit of a field in the head of an entry's row. The field is the number of the record that holds the packet
/// state.
pub const ROW_HOLDER: u32 = 36;

/// The low half of the head is an action. Its parameters are in the row.
pub const KIND_ACTION: u64 = 0;

/// The low half of the head is the id of a member.
pub const KIND_MEMBER: u64 = 1;

/// The low half of the head is the id of a group.
pub const KIND_GROUP: u64 = 2;

/// Value that stands for no action.
pub const NO_ACTION: u32 = u32::MAX;

/// Method by which compiled code looks up a packet's key in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The table has no key, so every packet misses.
    Keyless,
    /// The key is a number of at most this many bits, and is the index into an array.
    Direct(u32),
    /// Uses [`Side::row_narrow`](crate::Side::row_narrow) or [`Side::row_wide`](crate::Side::row_wide). The arguments
    /// are the exact fields as one number, and the prefix field. The number here is the prefix field's position in the
    /// key.
    Prefix(usize),
    /// Uses [`Side::row_exact`](crate::Side::row_exact) with the key's bytes.
    Exact,
    /// Uses [`Side::row`](crate::Side::row) with the key's bytes.
    Bytes,
}

impl Access {
    /// Returns the lookup method for a table.
    pub fn of(table: &Table) -> Self {
        match KeyShape::of(table) {
            _ if table.key.is_empty() => Self::Keyless,
            KeyShape::Exact => Direct::bits(table).map_or(Self::Exact, Self::Direct),
            KeyShape::Lpm(field) if Packing::bits(exact_fields(table)) <= u64::BITS => {
                Self::Prefix(field)
            }
            KeyShape::Lpm(_) | KeyShape::Ordered => Self::Bytes,
        }
    }
}

/// Returns the exact fields of a longest-prefix table.
pub(crate) fn exact_fields(table: &Table) -> impl Iterator<Item = &Key> {
    let fields = table.key.iter();
    fields.filter(|field| field.kind != MatchKind::Lpm)
}

/// Offsets and strides of a table's rows and records, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct RowShape {
    /// Offset of the action's parameters.
    pub params: usize,
    /// Offset of the packet state in the record that holds this state; see [`EntryState`].
    pub state: usize,
    /// Distance from one record to the next.
    pub stride: usize,
    /// Distance from one member's row to the next, a power of two. A member's row holds the action in its first 32
    /// bits, and the action's parameters from byte 8 on.
    pub member_stride: usize,
}

impl RowShape {
    /// Returns the row shape of a table.
    pub fn of(program: &Program, table: &Table) -> Self {
        let layout = Layout::new(program, table);
        Self {
            params: layout.params() * size_of::<u64>(),
            state: layout.state() * size_of::<u64>(),
            stride: layout.bytes(),
            member_stride: table
                .profile
                .map_or(0, |profile| row_words(program, profile) * size_of::<u64>()),
        }
    }
}

/// The row that a lookup found; see the module. Its layout is that of an address, for machine code.
///
/// Invariant: the words exist during `'a`. Packets and machine code change only words that hold packet state.
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

/// The handles of all tables of a side, in table order. Its layout is that of an address, for machine code.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct TableHandles<'a> {
    first: *const TableHandle,
    handles: PhantomData<&'a [TableHandle]>,
}

impl<'a> TableHandles<'a> {
    #[inline(always)]
    pub(crate) fn of(handles: &'a [TableHandle]) -> Self {
        Self {
            first: handles.as_ptr(),
            handles: PhantomData,
        }
    }

    /// Returns the address of the first handle. The address, and all addresses in the handles, are valid for reads
    /// during `'a`.
    #[inline(always)]
    pub fn as_ptr(self) -> *const TableHandle {
        self.first
    }
}

/// Values of one table that change with its entries; see the module. The constants are offsets of fields, in bytes.
///
/// Invariant: a handle belongs to the side whose memory it refers to. It is reachable only through a borrow of that
/// side.
#[derive(Debug)]
#[repr(C)]
pub struct TableHandle {
    pub(crate) entries: u64,
    pub(crate) places: *const u32,
    pub(crate) heads: *const u64,
    pub(crate) records: *const u8,
    pub(crate) default: *const AtomicU64,
    pub(crate) default_state: *const EntryState,
    pub(crate) members: *const u64,
    pub(crate) groups: *const GroupHandle,
    pub(crate) member_count: u32,
    pub(crate) group_count: u32,
}

// SAFETY: a handle itself dereferences no address. Code that follows its addresses holds the side to which the handle
// belongs.
unsafe impl Send for TableHandle {}
// SAFETY: as for `Send`.
unsafe impl Sync for TableHandle {}

impl TableHandle {
    /// Number of entries.
    pub const ENTRIES: usize = offset_of!(Self, entries);
    /// Start of the array of [`Access::Direct`]. Each key has 32 bits: the entry's number plus 1, or 0 for no entry.
    pub const PLACES: usize = offset_of!(Self, places);
    /// Start of the array of row heads in a table with [`Access::Direct`] and a profile. Each key has one head, which
    /// is 0 for no entry. So a single read finds an entry's target.
    pub const HEADS: usize = offset_of!(Self, heads);
    /// Start of the records of entries.
    pub const RECORDS: usize = offset_of!(Self, records);
    /// The row of a miss.
    pub const DEFAULT: usize = offset_of!(Self, default);
    /// State that packets write on a miss.
    pub const DEFAULT_STATE: usize = offset_of!(Self, default_state);
    /// Start of the rows of the profile's members, indexed by id.
    pub const MEMBERS: usize = offset_of!(Self, members);
    /// Number of member rows, 32 bits.
    pub const MEMBER_COUNT: usize = offset_of!(Self, member_count);
    /// Start of the [`GroupHandle`]s of the profile's groups, indexed by id.
    pub const GROUPS: usize = offset_of!(Self, groups);
    /// Number of [`GroupHandle`]s, 32 bits.
    pub const GROUP_COUNT: usize = offset_of!(Self, group_count);
}
