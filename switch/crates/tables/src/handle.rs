// SPDX-License-Identifier: Apache-2.0
//! Tables as machine code sees them.
//!
//! A look-up gives a *row*: the address of words that begin with a head and hold the parameters of
//! an action at a place that depends on the table only. Rows are the records of entries, the classes
//! of longest-prefix tables, and what tables do on a miss. They are there as long as the side is
//! held.
//!
//! What a program's code may rely on for a table is its [`Access`] and its [`RowShape`]; what changes
//! with the entries is in the table's [`TableHandle`].

use std::mem::offset_of;

use sluice_program::{Key, MatchKind, Program, Table};

use crate::entry::EntryState;
use crate::key::KeyShape;
use crate::lookup::Direct;
use crate::packing::Packing;
use crate::profile::{GroupHandle, row_words};
use crate::slab::Layout;

/// In a row's head: there is an entry behind it. The low half is the action.
pub const ROW_HIT: u64 = 1 << 34;

/// In a row's head, of two bits, where the table has a profile: what the low half is.
pub const ROW_KIND: u32 = 32;

/// From this bit on the head of an entry's row has the number of the record that holds what packets leave behind.
pub const ROW_HOLDER: u32 = 36;

/// The action, whose parameters are in the row.
pub const KIND_ACTION: u64 = 0;

/// The id of a member.
pub const KIND_MEMBER: u64 = 1;

/// The id of a group.
pub const KIND_GROUP: u64 = 2;

/// In place of an action: none.
pub const NO_ACTION: u32 = u32::MAX;

/// How packets' keys get to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// There is no key: always a miss.
    Keyless,
    /// The key as a number, of at most so many bits, is the place in an array.
    Direct(u32),
    /// [`Side::row_narrow`](crate::Side::row_narrow), [`Side::row_wide`](crate::Side::row_wide): the
    /// exact fields as one number, and the prefix field, which is the one at this position.
    Prefix(usize),
    /// [`Side::row_exact`](crate::Side::row_exact): the key's bytes.
    Exact,
    /// [`Side::row`](crate::Side::row): the key's bytes.
    Bytes,
}

impl Access {
    /// That of a table.
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

/// The exact fields of a longest-prefix table.
pub(crate) fn exact_fields(table: &Table) -> impl Iterator<Item = &Key> {
    let fields = table.key.iter();
    fields.filter(|field| field.kind != MatchKind::Lpm)
}

/// Where things are in a table's rows and records, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct RowShape {
    /// The action's parameters.
    pub params: usize,
    /// What packets leave behind, in a holder: see [`EntryState`].
    pub state: usize,
    /// From one record to the next.
    pub stride: usize,
    /// From one member's row to the next: a power of two. In it there is the action, of 32 bits, and
    /// eight bytes further its parameters.
    pub member_stride: usize,
}

impl RowShape {
    /// That of a table.
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

/// See the module. Offsets of its fields are constants.
#[derive(Debug)]
#[repr(C)]
pub struct TableHandle {
    pub(crate) entries: u64,
    pub(crate) places: *const u32,
    pub(crate) heads: *const u64,
    pub(crate) records: *const u8,
    pub(crate) default: *const u64,
    pub(crate) default_state: *const EntryState,
    pub(crate) members: *const u64,
    pub(crate) groups: *const GroupHandle,
    pub(crate) member_count: u32,
    pub(crate) group_count: u32,
}

// SAFETY: a handle reads nothing: who follows its addresses holds the side that it belongs to.
unsafe impl Send for TableHandle {}
// SAFETY: as for `Send`.
unsafe impl Sync for TableHandle {}

impl TableHandle {
    /// How many entries there are.
    pub const ENTRIES: usize = offset_of!(Self, entries);
    /// Where the array of [`Access::Direct`] begins: for each key 32 bits, 1 more than the entry's
    /// number, 0 for none.
    pub const PLACES: usize = offset_of!(Self, places);
    /// Where a table with [`Access::Direct`] and a profile keeps for each key the head of the entry's row, 0
    /// for none: what an entry leads to is one read away then.
    pub const HEADS: usize = offset_of!(Self, heads);
    /// Where the records of entries begin.
    pub const RECORDS: usize = offset_of!(Self, records);
    /// The row of a miss.
    pub const DEFAULT: usize = offset_of!(Self, default);
    /// What packets that missed left behind.
    pub const DEFAULT_STATE: usize = offset_of!(Self, default_state);
    /// Where the rows of the profile's members begin, by id.
    pub const MEMBERS: usize = offset_of!(Self, members);
    /// How many rows there are: 32 bits.
    pub const MEMBER_COUNT: usize = offset_of!(Self, member_count);
    /// Where the [`GroupHandle`]s of the profile's groups begin, by id.
    pub const GROUPS: usize = offset_of!(Self, groups);
    /// How many there are: 32 bits.
    pub const GROUP_COUNT: usize = offset_of!(Self, group_count);
}
