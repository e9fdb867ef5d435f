// SPDX-License-Identifier: Apache-2.0
//! Addresses and layouts by which machine code finds the rows of a table ([`Row`](crate::Row)).
//!
//! A reader pins a replica while it processes packets. [`Row`](crate::Row) and [`TableHandles`] borrow the pinned
//! replica, so the compiler refuses code that keeps one of them after the pin.
//!
//! A table's [`Access`] and [`RowShape`] never change, so compiled code may embed them. The table's [`TableHandle`]
//! holds the values that change with the entries.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use sluice_program::{Program, Table};

use crate::entry_state::EntryState;
use crate::key::{KeyShape, exact_fields};
use crate::lookup::Direct;
use crate::packing::Packing;
use crate::profile::{GroupHandle, row_words};
use crate::slab::RecordLayout;

/// Method by which compiled code looks up a packet's key in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The table has no key, so every packet misses.
    Keyless,
    /// The key is a number of at most this many bits, and is the index into an array.
    Direct(u32),
    /// Uses [`TableReplica::row_narrow`](crate::TableReplica::row_narrow) or
    /// [`TableReplica::row_wide`](crate::TableReplica::row_wide). The arguments are the exact fields as one number, and
    /// the prefix field. The number here is the prefix field's position in the key.
    Prefix(usize),
    /// Uses [`TableReplica::row_exact`](crate::TableReplica::row_exact) with the key's bytes.
    Exact,
    /// Uses [`TableReplica::row`](crate::TableReplica::row) with the key's bytes.
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
        let layout = RecordLayout::new(program, table);
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

/// The handles of all tables of a replica, in table order. The type has the layout of an address, because machine code
/// receives it as one.
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
/// Invariant: a handle belongs to the replica whose memory it refers to. It is reachable only through a borrow of that
/// replica.
#[derive(Debug)]
#[repr(C)]
pub struct TableHandle {
    pub(crate) entries: u64,
    pub(crate) direct_slots: *const u32,
    pub(crate) heads: *const u64,
    pub(crate) records: *const u8,
    pub(crate) default: *const AtomicU64,
    pub(crate) default_state: *const EntryState,
    pub(crate) members: *const u64,
    pub(crate) groups: *const GroupHandle,
    pub(crate) member_count: u32,
    pub(crate) group_count: u32,
}

// SAFETY: a handle itself dereferences no address. Code that follows its addresses holds the replica to which the
// handle belongs.
unsafe impl Send for TableHandle {}
// SAFETY: as for `Send`.
unsafe impl Sync for TableHandle {}

impl TableHandle {
    /// Number of entries.
    pub const ENTRIES: usize = offset_of!(Self, entries);
    /// Start of the array of [`Access::Direct`]. Each key has 32 bits: the entry's number plus 1, or 0 for no entry.
    pub const DIRECT_SLOTS: usize = offset_of!(Self, direct_slots);
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
