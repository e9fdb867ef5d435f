// SPDX-License-Identifier: Apache-2.0
//! The authoritative copy of one action profile.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::binding::Binding;
use crate::change::Swap;
use crate::group::Group;
use crate::profile::Member;
use crate::slab::{Record, Target};

/// An object with the number of references to it.
#[derive(Debug)]
pub(crate) struct RefCounted<T> {
    pub(crate) value: Arc<T>,
    pub(crate) references: usize,
}

/// The members and groups of one action profile, with the references to them.
#[derive(Debug, Default)]
pub(crate) struct AuthoritativeProfile {
    pub(crate) members: BTreeMap<u32, RefCounted<Member>>,
    pub(crate) groups: BTreeMap<u32, RefCounted<Group>>,
    /// Number of entries that have a one-shot group.
    pub(crate) one_shots: usize,
}

/// A reference from an entry to its target in the table's profile.
pub(super) enum Reference {
    None,
    Member(u32),
    Group(u32),
    OneShot,
}

impl Reference {
    pub(super) fn to(binding: &Binding) -> Self {
        match binding {
            Binding::Direct(_) => Self::None,
            Binding::Member(id) => Self::Member(*id),
            Binding::Group(id) => Self::Group(*id),
            Binding::OneShot(_) => Self::OneShot,
        }
    }

    pub(super) fn of(record: Record<'_>) -> Self {
        match record.target() {
            Target::Direct(_) => Self::None,
            Target::Member(id) => Self::Member(id),
            Target::Group(id) => Self::Group(id),
            Target::OneShot => Self::OneShot,
        }
    }
}

impl AuthoritativeProfile {
    /// Adds `by` to the number of references to an object.
    pub(super) fn refer(&mut self, to: Reference, by: isize) {
        let references = match to {
            Reference::Member(id) => self.members.get_mut(&id).map(|m| &mut m.references),
            Reference::Group(id) => self.groups.get_mut(&id).map(|g| &mut g.references),
            Reference::OneShot => Some(&mut self.one_shots),
            Reference::None => None,
        };
        if let Some(references) = references {
            *references = references.saturating_add_signed(by);
        }
    }

    /// Adds `by` to the number of references to each member of a group.
    pub(super) fn refer_members(&mut self, group: &Group, by: isize) {
        for id in group.member_ids() {
            self.refer(Reference::Member(id), by);
        }
    }
}

/// Replaces an object, and keeps the number of references to it.
pub(super) fn put<T>(map: &mut BTreeMap<u32, RefCounted<T>>, id: u32, swap: &Swap<T>) {
    let Some(after) = &swap.after else {
        map.remove(&id);
        return;
    };
    let references = map.get(&id).map_or(0, |known| known.references);
    map.insert(
        id,
        RefCounted {
            value: Arc::clone(after),
            references,
        },
    );
}
