// SPDX-License-Identifier: Apache-2.0
//! Tests ports that go down and come up, as watch ports of groups and one-shot action sets, and as backup replicas.

use sluice_p4runtime::proto::v1::action_profile_group::Member;
use sluice_p4runtime::proto::v1::action_profile_group::member::WatchKind;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn member(member_id: u32, port: u8) -> ActionProfileMember {
    ActionProfileMember {
        action_profile_id: id("paths"),
        member_id,
        action: Some(call("forward", &[&[port]])),
    }
}

/// Returns group 1 of members, each with its weight and watch port.
fn group(members: &[(u32, i32, Option<u8>)]) -> ActionProfileGroup {
    let member = |(member_id, weight, watch): &(u32, i32, Option<u8>)| Member {
        member_id: *member_id,
        weight: *weight,
        watch_kind: watch.map(|port| WatchKind::WatchPort(vec![port])),
    };
    ActionProfileGroup {
        action_profile_id: id("paths"),
        group_id: 1,
        members: members.iter().map(member).collect(),
        max_size: 8,
    }
}

/// Returns a one-shot action set that forwards to ports, each with its weight and watch port.
fn one_shot(actions: &[(u8, i32, Option<u8>)]) -> table_action::Type {
    let action = |(port, weight, watch): &(u8, i32, Option<u8>)| ActionProfileAction {
        action: Some(call("forward", &[&[*port]])),
        weight: *weight,
        watch_kind: watch.map(|port| action_profile_action::WatchKind::WatchPort(vec![port])),
    };
    table_action::Type::ActionProfileActionSet(ActionProfileActionSet {
        action_profile_actions: actions.iter().map(action).collect(),
        ..ActionProfileActionSet::default()
    })
}

fn to_group() -> TableEntry {
    selector_entry(table_action::Type::ActionProfileGroupId(1))
}

/// Sends 200 flows; returns the number of packets that left each port.
fn spread(fixture: &Fixture) -> [usize; 8] {
    let mut seen = [0; 8];
    for flow in 0..200u32 {
        let mut packet = frame([9, 9, 9, 9], 1);
        // Knuth's multiplicative hash, so that the addresses differ in many bits.
        packet[8..12].copy_from_slice(&flow.wrapping_mul(2_654_435_761).to_be_bytes());
        for port in fixture.forward(0, &packet) {
            seen[port] += 1;
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_spreads_flows_by_weight_and_leaves_out_members_whose_watch_port_is_down() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(member(1, 1)).await;
    client.insert(member(2, 2)).await;
    let watched = group(&[(1, 1, Some(5)), (2, 3, Some(6))]);
    assert_eq!(client.insert(watched.clone()).await, Code::Ok);
    assert_eq!(client.insert(to_group()).await, Code::Ok);
    let seen = spread(&fixture);
    assert_eq!(seen[1] + seen[2], 200);
    assert!(seen[1] > 10 && seen[2] > seen[1], "{seen:?}");
    fixture.device.set_port_status(6, false);
    assert_eq!(spread(&fixture)[1], 200);
    fixture.device.set_port_status(6, true);
    assert!(spread(&fixture)[2] > 0);
    let read = client.read(ActionProfileGroup::default()).await;
    assert_eq!(read, [entity::Entity::ActionProfileGroup(watched)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_port_that_was_down_before_the_group_was_inserted_is_down() {
    let (fixture, mut client) = start_loaded().await;
    fixture.device.set_port_status(6, false);
    client.commit().await.unwrap();
    client.insert(member(1, 1)).await;
    client.insert(member(2, 2)).await;
    client.insert(group(&[(1, 1, None), (2, 1, Some(6))])).await;
    assert_eq!(client.insert(to_group()).await, Code::Ok);
    assert_eq!(spread(&fixture)[1], 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_shot_action_set_leaves_out_actions_whose_watch_port_is_down() {
    let (fixture, mut client) = start_loaded().await;
    let set = selector_entry(one_shot(&[(1, 1, None), (2, 2, Some(6))]));
    assert_eq!(client.insert(set.clone()).await, Code::Ok);
    let seen = spread(&fixture);
    assert_eq!(seen[1] + seen[2], 200);
    assert!(seen[1] > 10 && seen[2] > 10, "{seen:?}");
    fixture.device.set_port_status(6, false);
    assert_eq!(spread(&fixture)[1], 200);
    assert_eq!(
        client.read_entries(all_of("selector_table")).await,
        [set],
        "the set is read as it was written"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_replicas_are_used_while_ports_are_down() {
    let (fixture, mut client) = start_loaded().await;
    let to_multicast_group = lpm_entry(0, 0, direct("multicast", &[&[9]]));
    assert_eq!(client.insert(to_multicast_group).await, Code::Ok);
    let replicas = vec![backed(1, 1, &[(2, 1), (3, 1)]), backed(4, 1, &[(5, 1)])];
    assert_eq!(client.insert(multicast(9, replicas)).await, Code::Ok);
    let packet = frame([0, 0, 0, 1], 0);
    assert_eq!(fixture.forward(0, &packet), [1, 4]);
    for (port, up, expected) in [
        (1, false, [2, 4]),
        (2, false, [3, 4]),
        (4, false, [3, 5]),
        (2, true, [2, 5]),
        (1, true, [1, 5]),
    ] {
        fixture.device.set_port_status(port, up);
        assert_eq!(fixture.forward(0, &packet), expected, "port {port}: {up}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_leaves_by_its_port_and_is_truncated() {
    let (fixture, mut client) = start_loaded().await;
    let mirror = lpm_entry(0, 0, direct("mirror", &[&[1]]));
    assert_eq!(client.insert(mirror).await, Code::Ok);
    let to_port_4 = session(7, vec![replica(4, 1)], 20);
    assert_eq!(client.insert(to_port_4).await, Code::Ok);
    let packet = frame([0, 0, 0, 1], 0);
    assert!(fixture.wires[0].send(&packet));
    assert_eq!(fixture.wires[1].receive(DEADLINE).unwrap(), packet);
    assert_eq!(fixture.wires[4].receive(DEADLINE).unwrap().len(), 20);
}
