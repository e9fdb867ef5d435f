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
use crate::by_id::SMALL;
use crate::model::{GroupMember, GroupSpec, OneShotMember};
use crate::ports::PortStatus;

/// Replaces the member's id in a bucket that is divided among several members.
pub(crate) const DIVIDED: u16 = u16::MAX;

/// Result of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen<'a> {
    /// A member of the profile.
    Member(u32),
    /// An action of a one-shot group.
    Action(&'a ActionEntry),
}

/// The target that a group's member stands for.
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

    /// Returns a number that identifies this choice among the members of a group, independently of their order.
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    choice: Choice,
    weight: u32,
    watch_port: Option<u32>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    id: u32,
    max_size: u32,
    slots: Vec<Slot>,
    watched: bool,
    /// Assignment of the buckets to the slots. Its bidders are the slots, in the same order. If the field `owners` is
    /// not empty, the buckets' owners are stored only there.
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
        let slots = members.map(|(choice, weight, watch_port)| Slot {
            choice,
            weight,
            watch_port,
        });
        let slots: Vec<Slot> = slots.collect();
        let bidders = bidders(&slots);
        let before = before.filter(|before| before.assignment.count == count);
        let mut assignment = match before {
            Some(before) => before.whole_assignment().next(bidders),
            None => Assignment::new(bidders, count),
        };
        let watched = slots.iter().any(|slot| slot.watch_port.is_some());
        let mut owners = Box::default();
        if !watched && let Some(ids) = small_ids(&slots) {
            let id = |owner: Option<usize>| owner.map_or(DIVIDED, |at| ids[at]);
            owners = assignment.buckets.owners().into_iter().map(id).collect();
        }
        if !owners.is_empty() {
            assignment.buckets.forget_owners();
        }
        Self {
            id,
            max_size,
            watched,
            assignment,
            owners,
            slots,
        }
    }

    /// Returns the assignment, including the owners of its buckets.
    fn whole_assignment(&self) -> Arc<Assignment> {
        let mut assignment = self.assignment.clone();
        if !self.owners.is_empty()
            && let Some(ids) = small_ids(&self.slots)
        {
            let mut by_id: Vec<(u16, usize)> = ids.into_iter().zip(0..).collect();
            by_id.sort_unstable();
            let slot_of = |id: &u16| {
                let at = by_id.binary_search_by_key(id, |(id, _)| *id).ok()?;
                Some(by_id[at].1)
            };
            let owners: Vec<Option<usize>> = self.owners.iter().map(slot_of).collect();
            assignment.buckets = assignment.buckets.with_owners(&owners, self.slots.len());
        }
        Arc::new(assignment)
    }

    /// Returns, for each bucket, the id of its owner, or [`DIVIDED`]. Returns nothing if these ids do not suffice for a
    /// selection.
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
        let hash = if self.slots.len() > 1 { hash() } else { 0 };
        if !self.owners.is_empty() {
            let location = buckets::locate(hash, self.owners.len());
            let owner = self.owners[location.bucket];
            if owner == DIVIDED {
                let slot = self
                    .slots
                    .get(self.assignment.buckets.part_owner(location)?)?;
                return Some(slot.choice.chosen());
            }
            return Some(Chosen::Member(owner.into()));
        }
        let (bucket, member) = self.assignment.buckets.choose(hash)?;
        let slot = self.slots.get(member)?;
        if self.watched && !slot.is_live(ports) {
            return self.choose_live(bucket, ports);
        }
        Some(slot.choice.chosen())
    }

    /// Selects a member for a bucket whose owner's watched port is down: the highest bidder whose port is up.
    #[cold]
    fn choose_live(&self, bucket: usize, ports: &PortStatus) -> Option<Chosen<'_>> {
        let bidders = self.assignment.bidders.iter().enumerate();
        let live = bidders.filter(|(index, _)| self.slots[*index].is_live(ports));
        let winner = bids::winner(bucket, live)?;
        self.slots.get(winner).map(|slot| slot.choice.chosen())
    }

    /// Returns the ids of the group's members that are members of the profile.
    pub(crate) fn member_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().filter_map(Slot::member)
    }

    /// Converts the group to the control plane's form.
    pub(crate) fn spec(&self) -> GroupSpec {
        let members = self
            .slots
            .iter()
            .filter_map(|slot| match &slot.choice {
                Choice::Member(member) => Some(GroupMember {
                    member: *member,
                    weight: slot.weight,
                    watch_port: slot.watch_port,
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
        self.slots
            .iter()
            .filter_map(|slot| match &slot.choice {
                Choice::Action(action) => Some(OneShotMember {
                    call: action.call(program),
                    weight: slot.weight,
                    watch_port: slot.watch_port,
                }),
                Choice::Member(_) => None,
            })
            .collect()
    }
}

impl Slot {
    fn member(&self) -> Option<u32> {
        match &self.choice {
            Choice::Member(id) => Some(*id),
            Choice::Action(_) => None,
        }
    }

    /// Returns the member's id, if the id is small.
    fn small(&self) -> Option<u16> {
        let id = self.member().filter(|id| *id < SMALL)?;
        id.try_into().ok().filter(|id| *id != DIVIDED)
    }

    #[inline]
    fn is_live(&self, ports: &PortStatus) -> bool {
        self.watch_port.is_none_or(|port| ports.is_up(port))
    }
}

/// Returns the ids of the slots' members, if all ids are small.
fn small_ids(slots: &[Slot]) -> Option<Vec<u16>> {
    slots.iter().map(Slot::small).collect()
}

/// Returns one bidder for each slot. A one-shot group may contain the same action several times; each occurrence gets
/// its own key.
fn bidders(slots: &[Slot]) -> Vec<Bidder> {
    let bidder = |slot: &Slot| Bidder {
        key: slot.choice.key(),
        weight: slot.weight,
    };
    let mut bidders: Vec<Bidder> = slots.iter().map(bidder).collect();
    let mut order: Vec<usize> = (0..slots.len()).collect();
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
