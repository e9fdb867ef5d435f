// SPDX-License-Identifier: Apache-2.0
//! Groups of an action selector: a member is chosen by a hash, in proportion to the weights, among
//! those whose watched port is up.

use sluice_program::Program;

use crate::entry::ActionEntry;
use crate::model::{GroupMember, GroupSpec, OneShotMember};
use crate::ports::PortStatus;

/// What a choice leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A member of the profile.
    Member(u32),
    /// An action of a one-shot group.
    Action(ActionEntry),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    choice: Choice,
    weight: u32,
    watch_port: Option<u32>,
    /// Sum of the weights up to and including this one.
    upper: u64,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    id: u32,
    max_size: u32,
    slots: Vec<Slot>,
    watched: bool,
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
        Self::build(spec.id, spec.max_size, members)
    }

    pub(crate) fn one_shot_group(
        members: impl Iterator<Item = (ActionEntry, u32, Option<u32>)>,
    ) -> Self {
        let members = members.map(|(action, weight, port)| (Choice::Action(action), weight, port));
        Self::build(0, 0, members)
    }

    fn build(
        id: u32,
        max_size: u32,
        members: impl Iterator<Item = (Choice, u32, Option<u32>)>,
    ) -> Self {
        let mut upper = 0;
        let slots: Vec<Slot> = members
            .map(|(choice, weight, watch_port)| {
                upper += u64::from(weight);
                Slot {
                    choice,
                    weight,
                    watch_port,
                    upper,
                }
            })
            .collect();
        let watched = slots.iter().any(|slot| slot.watch_port.is_some());
        Self {
            id,
            max_size,
            slots,
            watched,
        }
    }

    /// The choice for a hash; `None` when no member is left.
    #[inline]
    pub(crate) fn choose(&self, hash: u64, ports: &PortStatus) -> Option<&Choice> {
        if self.watched {
            return self.choose_live(hash, ports);
        }
        let point = hash.checked_rem(self.slots.last()?.upper)?;
        let index = self.slots.partition_point(|slot| slot.upper <= point);
        self.slots.get(index).map(|slot| &slot.choice)
    }

    fn choose_live(&self, hash: u64, ports: &PortStatus) -> Option<&Choice> {
        let live = || {
            self.slots
                .iter()
                .filter(|slot| slot.watch_port.is_none_or(|port| ports.is_up(port)))
        };
        let total: u64 = live().map(|slot| u64::from(slot.weight)).sum();
        let mut point = hash.checked_rem(total)?;
        for slot in live() {
            match point.checked_sub(u64::from(slot.weight)) {
                Some(rest) => point = rest,
                None => return Some(&slot.choice),
            }
        }
        None
    }

    /// Ids of the profile's members in it.
    pub(crate) fn member_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().filter_map(|slot| match &slot.choice {
            Choice::Member(id) => Some(*id),
            Choice::Action(_) => None,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &[(u32, u32, Option<u32>)]) -> Group {
        let members = members
            .iter()
            .map(|(member, weight, watch_port)| GroupMember {
                member: *member,
                weight: *weight,
                watch_port: *watch_port,
            })
            .collect();
        Group::new(&GroupSpec {
            id: 1,
            max_size: 0,
            members,
        })
    }

    fn shares(group: &Group, ports: &PortStatus, total: u64) -> Vec<u32> {
        (0..total)
            .filter_map(|hash| match group.choose(hash, ports)? {
                Choice::Member(id) => Some(*id),
                Choice::Action(_) => None,
            })
            .collect()
    }

    #[test]
    fn members_get_shares_in_proportion_to_their_weights() {
        let group = group(&[(7, 1, None), (8, 3, None)]);
        assert_eq!(
            shares(&group, &PortStatus::default(), 8),
            [7, 8, 8, 8, 7, 8, 8, 8]
        );
    }

    #[test]
    fn a_member_whose_port_is_down_is_left_out_until_it_is_up_again() {
        let (group, ports) = (
            group(&[(7, 1, Some(3)), (8, 1, Some(4))]),
            PortStatus::default(),
        );
        assert_eq!(shares(&group, &ports, 2), [7, 8]);
        ports.set(3, false);
        assert_eq!(shares(&group, &ports, 2), [8, 8]);
        ports.set(3, true);
        assert_eq!(shares(&group, &ports, 2), [7, 8]);
    }

    #[test]
    fn without_a_live_member_there_is_no_choice() {
        let ports = PortStatus::default();
        assert_eq!(group(&[]).choose(5, &ports), None);
        ports.set(3, false);
        assert_eq!(group(&[(7, 1, Some(3))]).choose(5, &ports), None);
    }
}
