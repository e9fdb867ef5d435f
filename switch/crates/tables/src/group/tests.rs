// SPDX-License-Identifier: Apache-2.0
//! Counts exactly the flows that move when a group changes.

use super::*;

const FLOWS: u64 = 1 << 16;

fn member(member: u32, weight: u32, watch_port: Option<u32>) -> GroupMember {
    GroupMember {
        member,
        weight,
        watch_port,
    }
}

fn group(members: Vec<GroupMember>) -> Group {
    Group::new(&spec(members), None)
}

fn spec(members: Vec<GroupMember>) -> GroupSpec {
    GroupSpec {
        id: 1,
        max_size: 64,
        members,
    }
}

/// Returns a group with these members, all of equal weight.
fn plain(ids: impl IntoIterator<Item = u32>) -> Group {
    group(ids.into_iter().map(|id| member(id, 1, None)).collect())
}

/// Returns the member that each flow selects.
fn flows(group: &Group, ports: &PortStatus) -> Vec<Option<u32>> {
    let choose = |hash| match group.choose(|| hash, ports) {
        Some(Chosen::Member(id)) => Some(id),
        Some(Chosen::Action(action)) => Some(action.params[0] as u32),
        None => None,
    };
    (0..FLOWS).map(choose).collect()
}

fn share(flows: &[Option<u32>], id: u32) -> f64 {
    flows.iter().filter(|flow| **flow == Some(id)).count() as f64 / FLOWS as f64
}

/// Returns the fraction of all flows that moved although `changed` had them neither before nor after the change.
fn moved_besides(before: &[Option<u32>], after: &[Option<u32>], changed: u32) -> f64 {
    let both = before.iter().zip(after);
    let moved = both.filter(|(before, after)| {
        before != after && **before != Some(changed) && **after != Some(changed)
    });
    moved.count() as f64 / FLOWS as f64
}

/// Generates pseudo-random numbers, the same ones in each run.
struct Random(sluice_random::Random);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        (self.0.next_u64() % u64::from(end)) as u32
    }

    /// Returns members with these weights and random ids, small and large.
    fn members(
        &mut self,
        count: u32,
        mut weight: impl FnMut(&mut Self) -> u32,
    ) -> Vec<GroupMember> {
        (0..count)
            .map(|at| member(at * 1000 + self.below(1000), weight(self), None))
            .collect()
    }
}

/// Returns the group after it is written with other members.
fn written(before: &Group, members: Vec<GroupMember>) -> Group {
    Group::new(&spec(members), Some(before))
}

/// Checks that only the flows of a removed member move, and that they all return with the member. Some of the groups
/// watch ports, so they do not store owners by id.
#[test]
fn a_member_that_leaves_moves_its_own_flows_and_gets_them_back() {
    let ports = PortStatus::default();
    let mut random = Random(sluice_random::Random::new(1));
    for count in [2, 3, 4, 8, 16, 33, 64] {
        for round in 0..8 {
            let mut members = random.members(count, |random| match round % 2 {
                0 => 1,
                _ => 1 + random.below(255),
            });
            if round % 4 > 1 {
                members[0].watch_port = Some(1);
            }
            let whole = group(members.clone());
            let before = flows(&whole, &ports);
            let at = random.below(count) as usize;
            let gone = members[at].member;
            let mut left = members.clone();
            left.remove(at);
            let without = written(&whole, left.clone());
            let after = flows(&without, &ports);
            assert!(after.iter().all(|flow| *flow != Some(gone)));
            assert_eq!(moved_besides(&before, &after, gone), 0.0);
            let total: u32 = left.iter().map(|member| member.weight).sum();
            for member in &left {
                let due = f64::from(member.weight) / f64::from(total);
                let has = share(&after, member.member);
                assert!((has - due).abs() < 0.002, "{has} of {due}");
            }
            assert_eq!(without.spec(), spec(left));
            assert_eq!(flows(&written(&without, members), &ports), before);
        }
    }
}

/// Checks that a port that goes down moves only its own member's flows, even while other members are absent.
#[test]
fn a_port_that_goes_down_while_a_member_is_absent_moves_its_own_flows() {
    let ports = PortStatus::default();
    let mut members =
        Random(sluice_random::Random::new(4)).members(9, |random| 1 + random.below(9));
    for (port, member) in (1..).zip(&mut members) {
        member.watch_port = Some(port);
    }
    let whole = group(members.clone());
    let part = written(&whole, members[2..].to_vec());
    let before = flows(&part, &ports);
    ports.set(5, false);
    let down = flows(&part, &ports);
    let gone = members[4].member;
    assert!(share(&before, gone) > 0.0 && share(&down, gone) == 0.0);
    assert_eq!(moved_besides(&before, &down, gone), 0.0);
    ports.set(5, true);
    assert_eq!(flows(&part, &ports), before);
    assert_eq!(
        flows(&written(&part, members), &ports),
        flows(&whole, &ports)
    );
}

#[test]
fn a_new_member_takes_its_share_from_all_alike() {
    let ports = PortStatus::default();
    for count in [1, 2, 7, 15] {
        let few = plain(1..=count);
        let members = (1..=count + 1).map(|id| member(id, 1, None)).collect();
        let after = flows(&written(&few, members), &ports);
        assert_eq!(moved_besides(&flows(&few, &ports), &after, count + 1), 0.0);
        let due = 1.0 / f64::from(count + 1);
        for id in 1..=count + 1 {
            let has = share(&after, id);
            assert!((has / due - 1.0).abs() < 0.01, "{id}: {has} of {due}");
        }
    }
}

#[test]
fn another_weight_moves_flows_to_or_from_that_member_only() {
    let ports = PortStatus::default();
    let weighted = |weight| {
        let members = [
            member(1, 3, None),
            member(2, weight, None),
            member(3, 5, None),
        ];
        members.to_vec()
    };
    let light = group(weighted(1));
    let heavy = written(&light, weighted(8));
    let (before, after) = (flows(&light, &ports), flows(&heavy, &ports));
    assert_eq!(moved_besides(&before, &after, 2), 0.0);
    let both = || before.iter().zip(&after);
    assert!(both().all(|(before, after)| *before != Some(2) || *after == Some(2)));
    for (flows, of) in [(&before, [3, 1, 5]), (&after, [3, 8, 5])] {
        for (id, weight) in (1..).zip(of) {
            let due = f64::from(weight) / f64::from(of.iter().sum::<u32>());
            assert!(
                (share(flows, id) / due - 1.0).abs() < 0.01,
                "{id} of {of:?}"
            );
        }
    }
    assert_eq!(flows(&written(&heavy, weighted(1)), &ports), before);
}

/// Compares the distribution of 20,000 random flows with the weights by a chi-square test. The bound is exceeded once
/// in a thousand random choices.
#[test]
fn random_flows_are_distributed_by_weight() {
    let ports = PortStatus::default();
    for (weights, bound) in [
        (&[7, 15, 46, 30][..], 16.3),
        (&[1, 255], 10.8),
        (&[1; 16], 37.7),
    ] {
        let members = (1..)
            .zip(weights)
            .map(|(id, weight)| member(id, *weight, None));
        let group = group(members.collect());
        let mut random = Random(sluice_random::Random::new(2));
        let mut hits = vec![0.0; weights.len()];
        for _ in 0..20_000 {
            let hash = u64::from(random.below(u32::MAX));
            match group.choose(|| hash, &ports) {
                Some(Chosen::Member(id)) => hits[id as usize - 1] += 1.0,
                other => panic!("{other:?}"),
            }
        }
        let total: u32 = weights.iter().sum();
        let terms = hits.iter().zip(weights).map(|(hits, weight)| {
            let due = 20_000.0 * f64::from(*weight) / f64::from(total);
            (hits - due).powi(2) / due
        });
        let chi_square: f64 = terms.sum();
        assert!(chi_square < bound, "{weights:?}: {chi_square}, {hits:?}");
    }
}

#[test]
fn a_port_that_goes_down_moves_the_flows_of_its_members_until_it_is_up() {
    let mut random = Random(sluice_random::Random::new(3));
    for count in [2, 3, 4, 8, 33, 64] {
        let ports = PortStatus::default();
        let mut members = random.members(count, |random| 1 + random.below(255));
        for (port, member) in (1..).zip(&mut members) {
            member.watch_port = Some(port);
        }
        let whole = group(members.clone());
        let mut states = vec![flows(&whole, &ports)];
        // Sets all ports except the last down, one by one.
        for (port, member) in (1..count.min(8)).zip(&members) {
            let before = &states[states.len() - 1];
            ports.set(port, false);
            let down = flows(&whole, &ports);
            assert!(share(before, member.member) > 0.0 && share(&down, member.member) == 0.0);
            assert_eq!(moved_besides(before, &down, member.member), 0.0);
            states.push(down);
        }
        // Sets the ports up in the opposite order.
        for port in (1..count.min(8)).rev() {
            assert_eq!(Some(flows(&whole, &ports)), states.pop());
            ports.set(port, true);
        }
        assert_eq!(vec![flows(&whole, &ports)], states);
    }
}

/// Checks that the flows of a member whose port is down go to the other members in proportion to the weights. The
/// tolerance is that of a random selection.
#[test]
fn flows_of_a_port_that_is_down_are_shared_by_weight() {
    let ports = PortStatus::default();
    let members = [
        (1, 40, Some(3)),
        (2, 10, None),
        (3, 20, None),
        (4, 30, None),
    ];
    let members = members.map(|(id, weight, port)| member(id, weight, port));
    ports.set(3, false);
    let down = flows(&group(members.to_vec()), &ports);
    for (id, due) in [(2, 1.0 / 6.0), (3, 2.0 / 6.0), (4, 3.0 / 6.0)] {
        let has = share(&down, id);
        assert!((has / due - 1.0).abs() < 0.05, "{id}: {has} of {due}");
    }
}

/// Checks the share of a member whose id is near [`DIVIDED`]. Machine code reads 16 bits for each bucket, and this
/// value marks a divided bucket.
#[test]
fn the_largest_small_id_is_a_member_like_any_other() {
    let ports = PortStatus::default();
    for id in [
        u32::from(DIVIDED) - 1,
        DIVIDED.into(),
        u32::from(DIVIDED) + 1,
    ] {
        let group = group(vec![member(id, 3, None), member(9, 1, None)]);
        assert_eq!(group.owners().is_empty(), id >= DIVIDED.into());
        assert!((share(&flows(&group, &ports), id) - 0.75).abs() < 0.01);
    }
}

#[test]
fn neither_order_nor_history_nor_the_groups_id_matter() {
    let ports = PortStatus::default();
    let members: Vec<GroupMember> = (1..=9)
        .map(|id| member(id * 77, id % 4 + 1, None))
        .collect();
    let forward = flows(&group(members.clone()), &ports);
    let backward = members.iter().rev().copied().collect();
    assert_eq!(forward, flows(&group(backward), &ports));
    let other = GroupSpec {
        id: 99,
        max_size: 64,
        members,
    };
    assert_eq!(forward, flows(&Group::new(&other, None), &ports));
}

#[test]
fn actions_of_a_one_shot_group_keep_their_flows_too() {
    let ports = PortStatus::default();
    let action = |value: u64| ActionEntry {
        action: sluice_program::ActionId(4),
        params: vec![value].into_boxed_slice(),
    };
    // The second and the third member have the same action here.
    let of = |values: &[u64], before: Option<&Group>| {
        let members = values.iter().map(|value| (action(*value), 1, None));
        Group::one_shot_group(members, before)
    };
    let whole = of(&[1, 2, 2, 3], None);
    let part = of(&[2, 2, 3], Some(&whole));
    let (before, after) = (flows(&whole, &ports), flows(&part, &ports));
    assert!((share(&before, 2) - 0.5).abs() < 0.01);
    assert!((share(&after, 2) - 2.0 / 3.0).abs() < 0.01);
    assert_eq!(moved_besides(&before, &after, 1), 0.0);
    assert_eq!(flows(&of(&[1, 2, 2, 3], Some(&part)), &ports), before);
}

#[test]
fn a_group_without_a_live_member_selects_no_member() {
    let ports = PortStatus::default();
    assert_eq!(group(vec![]).choose(|| 5, &ports), None);
    ports.set(3, false);
    assert_eq!(
        group(vec![member(7, 1, Some(3))]).choose(|| 5, &ports),
        None
    );
}
