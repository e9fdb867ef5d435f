// SPDX-License-Identifier: Apache-2.0
//! Transaction operations on members and groups of action profiles.

use std::sync::Arc;

use sluice_program::ProfileId;

use super::Transaction;
use crate::action::ActionEntry;
use crate::authoritative::AuthoritativeProfile;
use crate::change::{Change, Swap};
use crate::error::{Result, TableError, invalid};
use crate::group::Group;
use crate::model::{GroupSpec, MemberSpec};
use crate::profile::Member;

impl<'a> Transaction<'a> {
    fn profile(&self, id: ProfileId) -> Result<&'a sluice_program::Profile> {
        let profile = self.program.profiles.get(id.index());
        profile.map_or_else(|| invalid("there is no such action profile"), Ok)
    }

    fn member(&self, profile: ProfileId, spec: &MemberSpec) -> Result<Arc<Member>> {
        let tables = self.program.tables.iter();
        let action = tables
            .filter(|table| table.profile == Some(profile))
            .find_map(|table| self.program.action_for(table, spec.call.action));
        let Some(action) = action else {
            return invalid("the action belongs to no table of this action profile");
        };
        let action = ActionEntry::compile(self.program, action, &spec.call.params)?;
        Ok(Arc::new(Member {
            id: spec.id,
            action,
        }))
    }

    /// Adds a member to an action profile.
    ///
    /// # Errors
    /// `AlreadyExists`, `ResourceExhausted`, `InvalidArgument`, `OutOfRange`.
    pub fn member_insert(&mut self, id: ProfileId, spec: &MemberSpec) -> Result<()> {
        let profile = self.profile(id)?;
        let state = &self.control.authoritative.profiles[id.index()];
        if state.members.contains_key(&spec.id) {
            return Err(TableError::AlreadyExists(format!("member {}", spec.id)));
        }
        check_not_one_shot(profile, state)?;
        if state.members.len() >= profile.max_size {
            let message = format!("{} is full with {} members", profile.name, profile.max_size);
            return Err(TableError::ResourceExhausted(message));
        }
        let after = Some(self.member(id, spec)?);
        self.apply(Change::Member(
            id,
            spec.id,
            Swap {
                before: None,
                after,
            },
        ));
        Ok(())
    }

    /// Replaces a member's action, for all entries and groups that refer to the member.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`, `OutOfRange`.
    pub fn member_modify(&mut self, id: ProfileId, spec: &MemberSpec) -> Result<()> {
        self.profile(id)?;
        let state = &self.control.authoritative.profiles[id.index()];
        let before = state
            .members
            .get(&spec.id)
            .map(|member| Arc::clone(&member.value));
        let before =
            Some(before.ok_or_else(|| TableError::NotFound(format!("member {}", spec.id)))?);
        let after = Some(self.member(id, spec)?);
        self.apply(Change::Member(id, spec.id, Swap { before, after }));
        Ok(())
    }

    /// Removes a member.
    ///
    /// # Errors
    /// `NotFound`; `FailedPrecondition` while an entry or group refers to the member.
    pub fn member_delete(&mut self, id: ProfileId, member: u32) -> Result<()> {
        self.profile(id)?;
        let state = &self.control.authoritative.profiles[id.index()];
        let Some(known) = state.members.get(&member) else {
            return Err(TableError::NotFound(format!("member {member}")));
        };
        if known.references > 0 {
            let message = format!("member {member} is in use");
            return Err(TableError::FailedPrecondition(message));
        }
        let before = Some(Arc::clone(&known.value));
        self.apply(Change::Member(
            id,
            member,
            Swap {
                before,
                after: None,
            },
        ));
        Ok(())
    }

    /// Checks a specification and builds the group. If the group replaces the group `before`, as many flows as possible
    /// keep their members.
    fn group(&self, id: ProfileId, spec: &GroupSpec, before: Option<&Group>) -> Result<Arc<Group>> {
        let profile = self.profile(id)?;
        if profile.selector.is_none() {
            return invalid(format!("{} has no selector, so no groups", profile.name));
        }
        let state = &self.control.authoritative.profiles[id.index()];
        for (index, member) in spec.members.iter().enumerate() {
            check_weight(member.weight)?;
            if !state.members.contains_key(&member.member) {
                return Err(TableError::NotFound(format!("member {}", member.member)));
            }
            if spec.members[..index]
                .iter()
                .any(|other| other.member == member.member)
            {
                return invalid(format!("member {} is twice in the group", member.member));
            }
        }
        let limit = if spec.max_size == 0 {
            profile.max_size as u64
        } else {
            spec.max_size.into()
        };
        check_total_weight(spec.members.iter().map(|member| member.weight), limit)?;
        Ok(Arc::new(Group::new(spec, before)))
    }

    /// Returns the maximum number of groups of a selector. The program does not declare this number. It is the
    /// profile's size, or the number of entries that could refer to a group if that is greater.
    fn group_limit(&self, id: ProfileId) -> usize {
        let tables = self.program.tables.iter();
        let users = tables.filter(|table| table.profile == Some(id));
        let entries: usize = users.map(|table| table.max_size).sum();
        entries.max(self.program.profile(id).max_size)
    }

    /// Adds a group to an action selector.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` (unknown member), `ResourceExhausted`, `InvalidArgument`.
    pub fn group_insert(&mut self, id: ProfileId, spec: &GroupSpec) -> Result<()> {
        let after = Some(self.group(id, spec, None)?);
        if self.control.authoritative.profiles[id.index()]
            .groups
            .contains_key(&spec.id)
        {
            return Err(TableError::AlreadyExists(format!("group {}", spec.id)));
        }
        check_not_one_shot(
            self.profile(id)?,
            &self.control.authoritative.profiles[id.index()],
        )?;
        let limit = self.group_limit(id);
        if self.control.authoritative.profiles[id.index()].groups.len() >= limit {
            let name = &self.program.profile(id).name;
            let message = format!("{name} is full with {limit} groups");
            return Err(TableError::ResourceExhausted(message));
        }
        self.apply(Change::Group(
            id,
            spec.id,
            Swap {
                before: None,
                after,
            },
        ));
        Ok(())
    }

    /// Replaces a group's members. Moves no more flows than exact shares require.
    ///
    /// # Errors
    /// `NotFound`, and the errors of [`group_insert`](Self::group_insert). `InvalidArgument` if the maximum size
    /// changes.
    pub fn group_modify(&mut self, id: ProfileId, spec: &GroupSpec) -> Result<()> {
        self.profile(id)?;
        let known = self.control.authoritative.profiles[id.index()]
            .groups
            .get(&spec.id);
        let before = known.map(|group| Arc::clone(&group.value));
        let before = before.ok_or_else(|| TableError::NotFound(format!("group {}", spec.id)))?;
        if before.spec().max_size != spec.max_size {
            return invalid("a group's maximum size cannot be changed");
        }
        let after = Some(self.group(id, spec, Some(&before))?);
        self.apply(Change::Group(
            id,
            spec.id,
            Swap {
                before: Some(before),
                after,
            },
        ));
        Ok(())
    }

    /// Removes a group.
    ///
    /// # Errors
    /// `NotFound`; `FailedPrecondition` while an entry refers to the group.
    pub fn group_delete(&mut self, id: ProfileId, group: u32) -> Result<()> {
        self.profile(id)?;
        let state = &self.control.authoritative.profiles[id.index()];
        let Some(known) = state.groups.get(&group) else {
            return Err(TableError::NotFound(format!("group {group}")));
        };
        if known.references > 0 {
            return Err(TableError::FailedPrecondition(format!(
                "group {group} is in use"
            )));
        }
        let before = Some(Arc::clone(&known.value));
        self.apply(Change::Group(
            id,
            group,
            Swap {
                before,
                after: None,
            },
        ));
        Ok(())
    }
}

/// Checks that no entry uses one-shot programming. A selector can hold either members and groups, or one-shot action
/// sets, but not both at a time.
fn check_not_one_shot(
    profile: &sluice_program::Profile,
    state: &AuthoritativeProfile,
) -> Result<()> {
    if state.one_shots == 0 {
        return Ok(());
    }
    invalid(format!(
        "entries with sets of actions use {}, so it takes no members or groups",
        profile.name
    ))
}

pub(super) fn check_weight(weight: u32) -> Result<()> {
    if weight == 0 {
        invalid("a member's weight must be at least 1")
    } else {
        Ok(())
    }
}

pub(super) fn check_total_weight(weights: impl Iterator<Item = u32>, limit: u64) -> Result<()> {
    let total: u64 = weights.map(u64::from).sum();
    if total > limit {
        let message = format!("the weights of the members add up to {total}; the limit is {limit}");
        return Err(TableError::ResourceExhausted(message));
    }
    Ok(())
}
