// SPDX-License-Identifier: Apache-2.0
//! Which flows move when a group changes, counted exactly.

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
    Group::new(&GroupSpec {
        id: 1,
        max_size: 64,
        members,
    })
}

/// Members of equal weight.
fn plain(ids: impl IntoIterator<Item = u32>) -> Group {
    group(ids.into_iter().map(|id| member(id, 1, None)).collect())
}

/// The member of each flow.
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

/// The share of all flows that moved although the member `changed` neither had nor has them.
fn moved_besides(before: &[Option<u32>], after: &[Option<u32>], changed: u32) -> f64 {
    let both = before.iter().zip(after);
    let moved = both.filter(|(before, after)| {
        before != after && **before != Some(changed) && **after != Some(changed)
    });
    moved.count() as f64 / FLOWS as f64
}

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0) % u64::from(end)) as u32
    }

    /// Members of these weights, with ids of any size.
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

/// A group written anew without one of its members: other members' flows move only as far as exact shares need.
/// The bounds are documented in docs/ARCHITECTURE.md.
#[test]
fn removing_a_member_moves_few_flows_of_others() {
    let ports = PortStatus::default();
    let mut random = Random(1);
    for count in [2, 3, 4, 8, 16, 33, 64] {
        let (mut sum, mut most, mut groups) = (0.0, 0.0f64, 0);
        for round in 0..20 {
            let members = random.members(count, |random| match round % 2 {
                0 => 1,
                _ => 1 + random.below(255),
            });
            let at = random.below(count) as usize;
            let gone = members[at].member;
            let before = flows(&group(members.clone()), &ports);
            let mut left = members;
            left.remove(at);
            let after = flows(&group(left), &ports);
            assert!(after.iter().all(|flow| *flow != Some(gone)));
            let moved = moved_besides(&before, &after, gone);
            sum += moved;
            most = most.max(moved);
            groups += 1;
        }
        let mean = sum / f64::from(groups);
        println!(
            "{count} members: mean {:.2} %, most {:.2} %",
            mean * 100.0,
            most * 100.0
        );
        assert!(mean < 0.02, "{count} members: {mean}");
        assert!(most < 0.03, "{count} members: {most}");
    }
}

#[test]
fn a_new_member_takes_its_share_from_all_alike() {
    let ports = PortStatus::default();
    for count in [1, 2, 7, 15] {
        let before = flows(&plain(1..=count), &ports);
        let after = flows(&plain(1..=count + 1), &ports);
        assert!(moved_besides(&before, &after, count + 1) < 0.02);
        let due = 1.0 / f64::from(count + 1);
        for id in 1..=count + 1 {
            let has = share(&after, id);
            assert!((has / due - 1.0).abs() < 0.01, "{id}: {has} of {due}");
        }
    }
}

#[test]
fn another_weight_moves_few_flows_but_to_or_from_that_member() {
    let ports = PortStatus::default();
    let weighted = |weight| {
        let members = [
            member(1, 3, None),
            member(2, weight, None),
            member(3, 5, None),
        ];
        flows(&group(members.to_vec()), &ports)
    };
    let (light, heavy) = (weighted(1), weighted(8));
    assert!(moved_besides(&light, &heavy, 2) < 0.02);
    assert!(
        light
            .iter()
            .zip(&heavy)
            .all(|(light, heavy)| { *light != Some(2) || *heavy == Some(2) })
    );
    for (flows, of) in [(&light, [3, 1, 5]), (&heavy, [3, 8, 5])] {
        for (id, weight) in (1..).zip(of) {
            let due = f64::from(weight) / f64::from(of.iter().sum::<u32>());
            assert!(
                (share(flows, id) / due - 1.0).abs() < 0.01,
                "{id} of {of:?}"
            );
        }
    }
}

/// Chi-square of 20,000 random flows against the weights, with a bound that is exceeded once in a thousand times.
#[test]
fn random_flows_come_as_the_weights_say() {
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
        let mut random = Random(2);
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
    let mut random = Random(3);
    for count in [2, 3, 4, 8, 33, 64] {
        let ports = PortStatus::default();
        let mut members = random.members(count, |random| 1 + random.below(255));
        for (port, member) in (1..).zip(&mut members) {
            member.watch_port = Some(port);
        }
        let whole = group(members.clone());
        let mut states = vec![flows(&whole, &ports)];
        // One port after the other, down to the last.
        for (port, member) in (1..count.min(8)).zip(&members) {
            let before = &states[states.len() - 1];
            ports.set(port, false);
            let down = flows(&whole, &ports);
            assert!(share(before, member.member) > 0.0 && share(&down, member.member) == 0.0);
            assert_eq!(moved_besides(before, &down, member.member), 0.0);
            states.push(down);
        }
        // And up again in the opposite order.
        for port in (1..count.min(8)).rev() {
            assert_eq!(Some(flows(&whole, &ports)), states.pop());
            ports.set(port, true);
        }
        assert_eq!(vec![flows(&whole, &ports)], states);
    }
}

/// What a member has goes to the others as their weights say, about as well as chance does.
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

/// Machine code reads 16 bits a bucket, one value of which says that the bucket is divided.
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
    let other = Group::new(&GroupSpec {
        id: 99,
        max_size: 64,
        members,
    });
    assert_eq!(forward, flows(&other, &ports));
}

#[test]
fn actions_of_a_one_shot_group_keep_their_flows_too() {
    let ports = PortStatus::default();
    let action = |value: u64| ActionEntry {
        action: sluice_program::ActionId(4),
        params: vec![value].into_boxed_slice(),
    };
    // The second and the third are the same action.
    let of = |values: &[u64]| {
        let members = values.iter().map(|value| (action(*value), 1, None));
        flows(&Group::one_shot_group(members), &ports)
    };
    let (before, after) = (of(&[1, 2, 2, 3]), of(&[2, 2, 3]));
    assert!((share(&before, 2) - 0.5).abs() < 0.01);
    assert!((share(&after, 2) - 2.0 / 3.0).abs() < 0.01);
    assert!(moved_besides(&before, &after, 1) < 0.03);
}

#[test]
fn without_a_live_member_there_is_no_choice() {
    let ports = PortStatus::default();
    assert_eq!(group(vec![]).choose(|| 5, &ports), None);
    ports.set(3, false);
    assert_eq!(
        group(vec![member(7, 1, Some(3))]).choose(|| 5, &ports),
        None
    );
}
