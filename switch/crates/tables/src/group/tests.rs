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

#[test]
fn removing_a_member_moves_only_its_flows() {
    let ports = PortStatus::default();
    for count in [2, 3, 8, 33, 64] {
        let before = flows(&plain(1..=count), &ports);
        for gone in [1, count / 2 + 1, count] {
            let after = flows(&plain((1..=count).filter(|id| *id != gone)), &ports);
            for (before, after) in before.iter().zip(&after) {
                assert_ne!(*after, Some(gone));
                assert!(*before == Some(gone) || before == after);
            }
        }
    }
}

#[test]
fn a_new_member_takes_its_share_from_all_alike() {
    let ports = PortStatus::default();
    for count in [1, 2, 7, 15] {
        let before = flows(&plain(1..=count), &ports);
        let after = flows(&plain(1..=count + 1), &ports);
        let moved = before
            .iter()
            .zip(&after)
            .filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(_, after)| *after == Some(count + 1)));
        let due = 1.0 / f64::from(count + 1);
        let taken = share(&after, count + 1);
        assert!((taken / due - 1.0).abs() < 0.2, "{taken} of {due}");
        for id in 1..=count {
            let lost = 1.0 - share(&after, id) / share(&before, id);
            assert!(
                (lost / due - 1.0).abs() < 0.75,
                "{id} of {count}: {lost} of {due}"
            );
        }
    }
}

#[test]
fn another_weight_moves_flows_only_to_or_from_that_member() {
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
    let mut moved = light
        .iter()
        .zip(&heavy)
        .filter(|(light, heavy)| light != heavy);
    assert!(moved.all(|(_, heavy)| *heavy == Some(2)));
    assert!((share(&light, 2) - 1.0 / 9.0).abs() < 0.02);
    assert!((share(&heavy, 2) - 8.0 / 16.0).abs() < 0.03);
}

#[test]
fn a_port_that_goes_down_moves_the_flows_of_its_members_until_it_is_up() {
    let ports = PortStatus::default();
    let all = [
        member(7, 2, Some(3)),
        member(8, 1, Some(4)),
        member(9, 4, None),
    ];
    let whole = group(all.to_vec());
    let before = flows(&whole, &ports);
    ports.set(3, false);
    let down = flows(&whole, &ports);
    assert_eq!(down, flows(&group(all[1..].to_vec()), &ports));
    let mut both = before.iter().zip(&down);
    assert!(both.all(|(before, down)| *before == Some(7) || before == down));
    ports.set(4, false);
    assert_eq!(
        flows(&whole, &ports),
        flows(&group(all[2..].to_vec()), &ports)
    );
    ports.set(3, true);
    ports.set(4, true);
    assert_eq!(flows(&whole, &ports), before);
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
    assert!((share(&before, 2) - 0.5).abs() < 0.05);
    let mut both = before.iter().zip(&after);
    assert!(both.all(|(before, after)| *before == Some(1) || before == after));
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
