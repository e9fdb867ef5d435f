// SPDX-License-Identifier: Apache-2.0
//! Groups of an action selector: a member is chosen by a hash, in exact proportion to the weights, among
//! those whose watched port is up. Choices are resilient: see [`buckets`].

mod buckets;

use sluice_program::Program;

pub(crate) use self::buckets::SPREAD;
use self::buckets::{Bidder, Buckets, mix};
use crate::by_id::SMALL;
use crate::entry::ActionEntry;
use crate::model::{GroupMember, GroupSpec, OneShotMember};
use crate::ports::PortStatus;

/// Stands for the id of a bucket's member where the bucket is divided among several.
pub(crate) const DIVIDED: u16 = u16::MAX;

/// What is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen<'a> {
    /// A member of the profile.
    Member(u32),
    /// An action of a one-shot group.
    Action(&'a ActionEntry),
}

/// What a choice may lead to.
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

    /// A number that identifies it among the members of a group, whatever their order.
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
    bidder: Bidder,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    id: u32,
    max_size: u32,
    slots: Vec<Slot>,
    watched: bool,
    /// Without owners where `owners` names them.
    buckets: Buckets,
    /// The member of each bucket by its id, [`DIVIDED`] for a divided bucket, if all ids are small and a choice
    /// takes nothing else; else empty.
    owners: Box<[u16]>,
}

impl Group {
    pub(crate) fn new(spec: &GroupSpec) -> Self {
        let members = spec.members.iter().map(|member| {
            (
                Choice::Member(member.member),
                member.weight,
                member.watch_port,
            )
        });
        let count = buckets::count(spec.max_size);
        Self::build(spec.id, spec.max_size, members, count)
    }

    pub(crate) fn one_shot_group(
        members: impl Iterator<Item = (ActionEntry, u32, Option<u32>)>,
    ) -> Self {
        let members = members.map(|(action, weight, port)| (Choice::Action(action), weight, port));
        Self::build(0, 0, members, buckets::OF_ENTRY)
    }

    fn build(
        id: u32,
        max_size: u32,
        members: impl Iterator<Item = (Choice, u32, Option<u32>)>,
        count: usize,
    ) -> Self {
        let slots = members.map(|(choice, weight, watch_port)| {
            let key = choice.key();
            Slot {
                choice,
                weight,
                watch_port,
                bidder: Bidder { key, weight },
            }
        });
        let mut slots: Vec<Slot> = slots.collect();
        tell_equals_apart(&mut slots);
        let bidders: Vec<Bidder> = slots.iter().map(|slot| slot.bidder).collect();
        let watched = slots.iter().any(|slot| slot.watch_port.is_some());
        let mut buckets = Buckets::new(&bidders, count);
        let mut owners = Box::default();
        if !watched && let Some(ids) = slots.iter().map(Slot::small).collect::<Option<Vec<u16>>>() {
            let id = |owner: Option<usize>| owner.map_or(DIVIDED, |at| ids[at]);
            owners = buckets.owners().into_iter().map(id).collect();
        }
        if !owners.is_empty() {
            buckets.forget_owners();
        }
        Self {
            id,
            max_size,
            watched,
            buckets,
            owners,
            slots,
        }
    }

    /// The member of each bucket by its id, or [`DIVIDED`]; empty where a choice takes more than that.
    pub(crate) fn owners(&self) -> &[u16] {
        &self.owners
    }

    /// The choice for a hash, which is asked for where there is a choice; `None` when no member is
    /// left.
    #[inline]
    pub(crate) fn choose(
        &self,
        hash: impl FnOnce() -> u64,
        ports: &PortStatus,
    ) -> Option<Chosen<'_>> {
        let hash = if self.slots.len() > 1 { hash() } else { 0 };
        if !self.owners.is_empty() {
            let place = buckets::place(hash, self.owners.len());
            let owner = self.owners[place.bucket];
            if owner == DIVIDED {
                let slot = self.slots.get(self.buckets.part_owner(place)?)?;
                return Some(slot.choice.chosen());
            }
            return Some(Chosen::Member(owner.into()));
        }
        let (bucket, member) = self.buckets.choose(hash)?;
        let slot = self.slots.get(member)?;
        if self.watched && !slot.is_live(ports) {
            return self.choose_live(bucket, ports);
        }
        Some(slot.choice.chosen())
    }

    /// The member that has a bucket while its own one's port is down: the highest bidder whose port is up.
    #[cold]
    fn choose_live(&self, bucket: usize, ports: &PortStatus) -> Option<Chosen<'_>> {
        let live = self.slots.iter().enumerate();
        let live = live.filter(|(_, slot)| slot.is_live(ports));
        let winner = buckets::winner(bucket, live.map(|(index, slot)| (index, &slot.bidder)))?;
        self.slots.get(winner).map(|slot| slot.choice.chosen())
    }

    /// Ids of the profile's members in it.
    pub(crate) fn member_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().filter_map(Slot::member)
    }

    /// The group as the control plane reads it.
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

    /// A one-shot group as the control plane reads it.
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

    /// The id of a member, if it has few bits.
    fn small(&self) -> Option<u16> {
        let id = self.member().filter(|id| *id < SMALL)?;
        id.try_into().ok().filter(|id| *id != DIVIDED)
    }

    #[inline]
    fn is_live(&self, ports: &PortStatus) -> bool {
        self.watch_port.is_none_or(|port| ports.is_up(port))
    }
}

/// A one-shot group may hold the same action several times: these bid under keys of their own.
fn tell_equals_apart(slots: &mut [Slot]) {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|index| slots[*index].bidder.key);
    for equal in order
        .chunk_by(|a, b| slots[*a].bidder.key == slots[*b].bidder.key)
        .map(<[usize]>::to_vec)
        .collect::<Vec<_>>()
    {
        for (nth, index) in equal.into_iter().enumerate().skip(1) {
            slots[index].bidder.key = mix(slots[index].bidder.key ^ nth as u64);
        }
    }
}

#[cfg(test)]
mod tests;
