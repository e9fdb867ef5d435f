// SPDX-License-Identifier: Apache-2.0
//! The target of an entry, in the form that the control plane reads. A target
//! is what a hit runs: an action, a member of a profile, or a group.

use std::sync::Arc;

use sluice_program::Program;

use crate::action::{ActionEntry, ActionRef};
use crate::group::Group;
use crate::model::EntryAction;

/// Target of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// An action.
    Direct(ActionEntry),
    /// A member of the table's profile.
    Member(u32),
    /// A group of the table's profile.
    Group(u32),
    /// A group that belongs to this entry only.
    OneShot(Arc<Group>),
}

/// A borrowed [`Binding`]: the target that is written to an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BindingRef<'a> {
    Direct(ActionRef<'a>),
    Member(u32),
    Group(u32),
    OneShot(&'a Arc<Group>),
}

impl Binding {
    pub(crate) fn as_ref(&self) -> BindingRef<'_> {
        match self {
            Self::Direct(action) => BindingRef::Direct(action.as_ref()),
            Self::Member(id) => BindingRef::Member(*id),
            Self::Group(id) => BindingRef::Group(*id),
            Self::OneShot(group) => BindingRef::OneShot(group),
        }
    }

    pub(crate) fn action(&self, program: &Program) -> EntryAction {
        match self {
            Self::Direct(action) => EntryAction::Direct(action.call(program)),
            Self::Member(id) => EntryAction::Member(*id),
            Self::Group(id) => EntryAction::Group(*id),
            Self::OneShot(group) => EntryAction::OneShot(group.one_shot(program)),
        }
    }
}
