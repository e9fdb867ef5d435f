// SPDX-License-Identifier: Apache-2.0
//! Groups of an action selector. A hash selects one of the members whose watched port is up. The shares of the members
//! are exactly proportional to their weights. The selection is resilient: a change of the group moves few flows (see
//! [`buckets`] and [`succession`]).

mod bids;
mod buckets;
mod piece;
mod succession;

use std::sync::Arc;

use sluice_program::Program;
use sluice_random::mix;

use self::bids::Bidder;
pub(crate) use self::buckets::SPREAD;
use self::succession::Assignment;
use crate::action::ActionEntry;
use crate::by_id::SMALL_ID_LIMIT;
use crate::model::{GroupMember, GroupSpec, OneShotMember};
use crate::ports::PortStatus;

/// Marks, in place of a member's id, a bucket that is divided among several members.
pub(crate) const DIVIDED: u16 = u16::MAX;

/// What a selection chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen<'a> {
    /// A member of the profile.
    Member(u32),
    /// An action of a one-shot group.
    Action(&'a ActionEntry),
}

/// What a member of a group runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    /// A member of the profile.
    Member(u32),
    /// An action of a one-shot group.
    Action(ActionEntry),
}

impl Choice {
    fn chosen(&self) -> Chosen<'_> {
        match self {
            Self::Member(id) => Chosen::Member(*id),
            Self::Action(action) => Chosen::Action(action),
        }
    }

    /// Returns a hash of this target. The order of the group's members does not affect it.
    fn key(&self) -> u64 {
        match self {
            Self::Member(id) => mix(u64::from(*id) + 1),
            Self::Action(action) => {
                let words = action.params.iter();
                let start = mix(u64::from(action.action.0) + 1);
                words.fold(start, |key, word| mix(key.rotate_left(1) ^ word))
            }
        }
    }
}

/// A member of a group, with its weight and the port that it watches.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WeightedMember {
    choice: Choice,
    weight: u32,
    watch_port: Option<u32>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    id: u32,
    max_size: u32,
    members: Vec<WeightedMember>,
    watched: bool,
    /// Assignment of the buckets to the members. Its bidders are the members, in the same order. If the field `owners`
    /// is not empty, the buckets' owners are stored only in `owners`.
    assignment: Assignment,
    /// For each bucket, the id of the member that owns it, or [`DIVIDED`]. Empty if an id is not small, or if a member
    /// watches a port.
    owners: Box<[u16]>,
}

impl Group {
    /// Creates a group. If it replaces the group `before`, as many flows as possible keep their members.
    pub(crate) fn new(spec: &GroupSpec, before: Option<&Self>) -> Self {
        let members = spec.members.iter().map(|member| {
            (
                Choice::Member(member.member),
                member.weight,
                member.watch_port,
            )
        });
        let count = buckets::count(spec.max_size);
        Self::build(spec.id, spec.max_size, members, count, before)
    }

    /// Creates a one-shot group. If it replaces the group `before`, as many flows as possible keep their members.
    pub(crate) fn one_shot_group(
        members: impl Iterator<Item = (ActionEntry, u32, Option<u32>)>,
        before: Option<&Self>,
    ) -> Self {
        let members = members.map(|(action, weight, port)| (Choice::Action(action), weight, port));
        Self::build(0, 0, members, buckets::OF_ENTRY, before)
    }

    fn build(
        id: u32,
        max_size: u32,
        members: impl Iterator<Item = (Choice, u32, Option<u32>)>,
        count: usize,
        before: Option<&Self>,
    ) -> Self {
        let members = members.map(|(choice, weight, watch_port)| WeightedMember {
            choice,
            weight,
            watch_port,
        });
        let members: Vec<WeightedMember> = members.collect();
        let bidders = bidders(&members);
        let before = before.filter(|before| before.assignment.count == count);
        let mut assignment = match before {
            Some(before) => before.whole_assignment().next(bidders),
            None => Assignment::new(bidders, count),
        };
        let watched = members.iter().any(|member| member.watch_port.is_some());
        let mut owners = Box::default();
        if !watched && let Some(ids) = small_ids(&members) {
            let id = |owner: Option<usize>| owner.map_or(DIVIDED, |at| ids[at]);
            owners = assignment.buckets.owners().into_iter().map(id).collect();
        }
        if !owners.is_empty() {
            assignment.buckets.drop_owners();
        }
        Self {
            id,
            max_size,
            watched,
            assignment,
            owners,
            members,
        }
    }

    /// Returns the assignment, including the owners of its buckets.
    fn whole_assignment(&self) -> Arc<Assignment> {
        let mut assignment = self.assignment.clone();
        if !self.owners.is_empty()
            && let Some(ids) = small_ids(&self.members)
        {
            let mut by_id: Vec<(u16, usize)> = ids.into_iter().zip(0..).collect();
            by_id.sort_unstable();
            let index_of = |id: &u16| {
                let at = by_id.binary_search_by_key(id, |(id, _)| *id).ok()?;
                Some(by_id[at].1)
            };
            let owners: Vec<Option<usize>> = self.owners.iter().map(index_of).collect();
            assignment.buckets = assignment.buckets.with_owners(&owners, self.members.len());
        }
        Arc::new(assignment)
    }

    /// Returns, for each bucket, the id of its owner, or [`DIVIDED`]. Returns an empty slice if ids of 16 bits are not
    /// enough for a selection: an id is not small, or a member watches a port.
    pub(crate) fn owners(&self) -> &[u16] {
        &self.owners
    }

    /// Selects a member by a hash. `hash` is called only if there is more than one member. Returns `None` if no member
    /// is usable.
    #[inline]
    pub(crate) fn choose(
        &self,
        hash: impl FnOnce() -> u64,
        ports: &PortStatus,
    ) -> Option<Chosen<'_>> {
        let hash = if self.members.len() > 1 { hash() } else { 0 };
        if !self.owners.is_empty() {
            let location = buckets::locate(hash, self.owners.len());
            let owner = self.owners[location.bucket];
            if owner == DIVIDED {
                let member = self
                    .members
                    .get(self.assignment.buckets.part_owner(location)?)?;
                return Some(member.choice.chosen());
            }
            return Some(Chosen::Member(owner.into()));
        }
        let (bucket, member) = self.assignment.buckets.choose(hash)?;
        let member = self.members.get(member)?;
        if self.watched && !member.is_live(ports) {
            return self.choose_live(bucket, ports);
        }
        Some(member.choice.chosen())
    }

    /// Selects a member for a bucket whose owner's watched port is down: the highest bidder whose port is up.
    #[cold]
    fn choose_live(&self, bucket: usize, ports: &PortStatus) -> Option<Chosen<'_>> {
        let bidders = self.assignment.bidders.iter().enumerate();
        let live = bidders.filter(|(index, _)| self.members[*index].is_live(ports));
        let winner = bids::winner(bucket, live)?;
        self.members
            .get(winner)
            .map(|member| member.choice.chosen())
    }

    /// Returns the ids of the group's members that are members of the profile.
    pub(crate) fn member_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().filter_map(WeightedMember::profile_id)
    }

    /// Converts the group to the control plane's form.
    pub(crate) fn spec(&self) -> GroupSpec {
        let members = self
            .members
            .iter()
            .filter_map(|member| match &member.choice {
                Choice::Member(id) => Some(GroupMember {
                    member: *id,
                    weight: member.weight,
                    watch_port: member.watch_port,
                }),
                Choice::Action(_) => None,
            })
            .collect();
        GroupSpec {
            id: self.id,
            max_size: self.max_size,
            members,
        }
    }

    /// Converts a one-shot group to the control plane's form.
    pub(crate) fn one_shot(&self, program: &Program) -> Vec<OneShotMember> {
        self.members
            .iter()
            .filter_map(|member| match &member.choice {
                Choice::Action(action) => Some(OneShotMember {
                    call: action.call(program),
                    weight: member.weight,
                    watch_port: member.watch_port,
                }),
                Choice::Member(_) => None,
            })
            .collect()
    }
}

impl WeightedMember {
    /// Returns the id in the profile, or `None` for an action of a one-shot group.
    fn profile_id(&self) -> Option<u32> {
        match &self.choice {
            Choice::Member(id) => Some(*id),
            Choice::Action(_) => None,
        }
    }

    /// Returns the member's id, if the id is small.
    fn small(&self) -> Option<u16> {
        let id = self.profile_id().filter(|id| *id < SMALL_ID_LIMIT)?;
        id.try_into().ok().filter(|id| *id != DIVIDED)
    }

    #[inline]
    fn is_live(&self, ports: &PortStatus) -> bool {
        self.watch_port.is_none_or(|port| ports.is_up(port))
    }
}

/// Returns the ids of members of the profile, if all ids are small.
fn small_ids(members: &[WeightedMember]) -> Option<Vec<u16>> {
    members.iter().map(WeightedMember::small).collect()
}

/// Returns one bidder for each member. If a one-shot group contains the same action several times, gives each
/// occurrence its own key.
fn bidders(members: &[WeightedMember]) -> Vec<Bidder> {
    let bidder = |member: &WeightedMember| Bidder {
        key: member.choice.key(),
        weight: member.weight,
    };
    let mut bidders: Vec<Bidder> = members.iter().map(bidder).collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|index| bidders[*index].key);
    for equal in order
        .chunk_by(|a, b| bidders[*a].key == bidders[*b].key)
        .map(<[usize]>::to_vec)
        .collect::<Vec<_>>()
    {
        for (nth, index) in equal.into_iter().enumerate().skip(1) {
            bidders[index].key = mix(bidders[index].key ^ nth as u64);
        }
    }
    bidders
}

#[cfg(test)]
mod tests;
