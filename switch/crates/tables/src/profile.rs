// SPDX-License-Identifier: Apache-2.0
//! Members and groups of an action profile, in the form that packets use.
//!
//! For machine code there are two arrays, indexed by id:
//! - the *row* of each member, which is the action and its parameters;
//! - the [`GroupHandle`] of each group, which points to the group's buckets. A bucket holds a member's id.
//!
//! Dependent reads dominate the cost of a selection. A selection has three of them: the group's handle, the bucket, and
//! the member's row. When a member changes, only its row is written, regardless of the number of its groups.
//!
//! These arrays do not contain ids from [`SMALL_ID_LIMIT`] on, groups with very many members, groups that watch ports,
//! and the parts of divided buckets. [`TableReplica::lookup_at_row`](crate::TableReplica::lookup_at_row) handles these
//! cases.

use std::mem::offset_of;
use std::sync::Arc;

use sluice_program::{ProfileId, Program};

use crate::action::ActionEntry;
use crate::by_id::{ById, SMALL_ID_LIMIT};
use crate::group::Group;
use crate::row::NO_ACTION;

/// The part of a group that machine code reads. Machine code finds the bucket of a hash `h` in three steps. It
/// multiplies `h` by [`SPREAD`](Self::SPREAD) to 128 bits. It combines both halves of the product by exclusive or. It
/// multiplies the result by `count` to 128 bits; the high half is the bucket.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GroupHandle {
    /// Array with 16 bits for each bucket: the id of the member that owns the bucket, or [`DIVIDED`](Self::DIVIDED).
    /// Null if machine code cannot select a member from such an array; see the module.
    buckets: *const u16,
    count: u64,
}

/// The size is a power of two, because machine code computes the offset of a handle by a shift.
const _: () = assert!(size_of::<GroupHandle>().is_power_of_two());

impl GroupHandle {
    /// Byte offset of the address of the buckets.
    pub const BUCKETS: usize = offset_of!(Self, buckets);
    /// Byte offset of the number of buckets.
    pub const COUNT: usize = offset_of!(Self, count);
    /// Multiplier of a hash.
    pub const SPREAD: u64 = crate::group::SPREAD;
    /// Marks a bucket that is divided among several members.
    pub const DIVIDED: u16 = crate::group::DIVIDED;

    const NONE: Self = Self {
        buckets: std::ptr::null(),
        count: 0,
    };

    fn of(group: &Group) -> Self {
        match group.owners() {
            [] => Self::NONE,
            owners => Self {
                buckets: owners.as_ptr(),
                count: owners.len() as u64,
            },
        }
    }
}

// SAFETY: a handle itself dereferences no address. Code that follows its addresses holds the replica that has the
// group.
unsafe impl Send for GroupHandle {}
// SAFETY: as for `Send`.
unsafe impl Sync for GroupHandle {}

/// Returns the distance in words from one member's row to the next. A row holds an action and its parameters. The
/// distance is the size of the largest row, rounded up to a power of two.
pub(crate) fn row_words(program: &Program, profile: ProfileId) -> usize {
    let tables = program.tables.iter();
    let tables = tables.filter(|table| table.profile == Some(profile));
    let actions = tables.flat_map(|table| &table.actions);
    let params = actions.map(|action| program.action(*action).param_words);
    (1 + params.max().unwrap_or(0)).next_power_of_two()
}

/// A member of an action profile.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: u32,
    pub(crate) action: ActionEntry,
}

/// An action profile in one replica; see the module.
#[derive(Debug)]
pub(crate) struct ProfileLookup {
    members: ById<Arc<Member>>,
    groups: ById<Arc<Group>>,
    row_words: usize,
    rows: Vec<u64>,
    handles: Vec<GroupHandle>,
}

impl ProfileLookup {
    pub(crate) fn new(row_words: usize) -> Self {
        Self {
            members: ById::default(),
            groups: ById::default(),
            row_words,
            rows: Vec::new(),
            handles: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn member(&self, id: u32) -> Option<&Member> {
        self.members.get(id).map(|member| &**member)
    }

    #[inline]
    pub(crate) fn group(&self, id: u32) -> Option<&Group> {
        self.groups.get(id).map(|group| &**group)
    }

    /// Returns the start of the rows, and the number of rows.
    pub(crate) fn rows(&self) -> (*const u64, u32) {
        let count = self.rows.len() / self.row_words;
        (self.rows.as_ptr(), count as u32)
    }

    /// Returns the start of the group handles, and the number of handles.
    pub(crate) fn handles(&self) -> (*const GroupHandle, u32) {
        (self.handles.as_ptr(), self.handles.len() as u32)
    }

    pub(crate) fn set_member(&mut self, id: u32, member: Option<Arc<Member>>) {
        if id < SMALL_ID_LIMIT {
            let start = id as usize * self.row_words;
            let end = start + self.row_words;
            if self.rows.len() < end {
                let missing = end - self.rows.len();
                let none = std::iter::once(u64::from(NO_ACTION));
                let none = none.chain(std::iter::repeat_n(0, self.row_words - 1));
                self.rows.extend(none.cycle().take(missing));
            }
            let row = &mut self.rows[start..end];
            row.fill(0);
            row[0] = NO_ACTION.into();
            if let Some(member) = &member {
                let action = &member.action;
                row[0] = action.action.0.into();
                row[1..][..action.params.len()].copy_from_slice(&action.params);
            }
        }
        self.members.set(id, member);
    }

    pub(crate) fn set_group(&mut self, id: u32, group: Option<Arc<Group>>) {
        if id < SMALL_ID_LIMIT {
            let at = id as usize;
            if self.handles.len() <= at && group.is_some() {
                self.handles.resize(at + 1, GroupHandle::NONE);
            }
            if let Some(handle) = self.handles.get_mut(at) {
                *handle = group.as_deref().map_or(GroupHandle::NONE, GroupHandle::of);
            }
        }
        self.groups.set(id, group);
    }
}
