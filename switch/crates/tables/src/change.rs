// SPDX-License-Identifier: Apache-2.0
//! A change of one object. A change holds the object before and after, so one value serves four uses: apply the
//! change to the authoritative copy and to each replica, or roll it back.

use std::sync::Arc;

use sluice_program::{ProfileId, TableId, ValueSetId};

use crate::default_entry::DefaultEntry;
use crate::group::Group;
use crate::model::{CloneSession, MulticastGroup};
use crate::profile::Member;
use crate::value_set::ValueSetMembers;

/// An object before and after a change. `None` if the object does not exist.
#[derive(Debug)]
pub(crate) struct Swap<T: ?Sized> {
    pub(crate) before: Option<Arc<T>>,
    pub(crate) after: Option<Arc<T>>,
}

impl<T: ?Sized> Swap<T> {
    fn inverse(self) -> Self {
        Self {
            before: self.after,
            after: self.before,
        }
    }
}

/// The slots of an entry's old version and of its new version. The old slot is missing for a new entry, the new slot
/// for a deleted one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntrySwap {
    pub(crate) before: Option<u32>,
    pub(crate) after: Option<u32>,
}

#[derive(Debug)]
pub(crate) enum Change {
    Entry(TableId, EntrySwap),
    Default(TableId, Arc<DefaultEntry>, Arc<DefaultEntry>),
    Member(ProfileId, u32, Swap<Member>),
    Group(ProfileId, u32, Swap<Group>),
    Multicast(u32, Swap<MulticastGroup>),
    Clone(u32, Swap<CloneSession>),
    ValueSet(ValueSetId, Arc<ValueSetMembers>, Arc<ValueSetMembers>),
}

impl Change {
    /// Returns the inverse change.
    pub(crate) fn inverse(self) -> Self {
        match self {
            Self::Entry(table, swap) => {
                let (before, after) = (swap.after, swap.before);
                Self::Entry(table, EntrySwap { before, after })
            }
            Self::Default(table, before, after) => Self::Default(table, after, before),
            Self::Member(profile, id, swap) => Self::Member(profile, id, swap.inverse()),
            Self::Group(profile, id, swap) => Self::Group(profile, id, swap.inverse()),
            Self::Multicast(id, swap) => Self::Multicast(id, swap.inverse()),
            Self::Clone(id, swap) => Self::Clone(id, swap.inverse()),
            Self::ValueSet(id, before, after) => Self::ValueSet(id, after, before),
        }
    }
}
