// SPDX-License-Identifier: Apache-2.0
//! "ActionProfileMember & ActionProfileGroup", "One Shot Action Selector Programming".

use sluice_p4runtime::proto::v1::action_profile_group::Member;
use sluice_p4runtime::proto::v1::action_profile_group::member::WatchKind;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn member(member_id: u32, port: u8) -> ActionProfileMember {
    let action_profile_id = id("paths");
    ActionProfileMember {
        action_profile_id,
        member_id,
        action: Some(call("forward", &[&[port]])),
    }
}

fn group(group_id: u32, members: &[(u32, i32, Option<u8>)]) -> ActionProfileGroup {
    let member = |(member_id, weight, watch): &(u32, i32, Option<u8>)| Member {
        member_id: *member_id,
        weight: *weight,
        watch_kind: watch.map(|port| WatchKind::WatchPort(vec![port])),
    };
    let members = members.iter().map(member).collect();
    ActionProfileGroup {
        action_profile_id: id("paths"),
        group_id,
        members,
        max_size: 8,
    }
}

fn entry(b: u8, action: table_action::Type) -> TableEntry {
    TableEntry {
        table_id: id("selector_table"),
        r#match: vec![exact(1, &[b])],
        action: Some(TableAction {
            r#type: Some(action),
        }),
        ..TableEntry::default()
    }
}

/// Sends many flows; returns the number of packets that left each port.
fn spread(fixture: &Fixture) -> [usize; 8] {
    let mut seen = [0; 8];
    for flow in 0..200u32 {
        let mut packet = frame([9, 9, 9, 9], 1);
        // Knuth's multiplicative hash: addresses that differ in many bits.
        packet[8..12].copy_from_slice(&flow.wrapping_mul(2_654_435_761).to_be_bytes());
        for port in fixture.forward(0, &packet) {
            seen[port] += 1;
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_inserted_modified_and_deleted() {
    let (fixture, mut client) = start_loaded().await;
    assert_eq!(client.modify(member(1, 1)).await, Code::NotFound);
    assert_eq!(client.insert(member(1, 1)).await, Code::Ok);
    assert_eq!(client.insert(member(1, 2)).await, Code::AlreadyExists);
    assert_eq!(client.insert(member(0, 1)).await, Code::InvalidArgument);
    let no_action = ActionProfileMember {
        action: None,
        ..member(2, 1)
    };
    assert_eq!(client.insert(no_action).await, Code::InvalidArgument);
    client
        .insert(entry(1, table_action::Type::ActionProfileMemberId(1)))
        .await;
    assert_eq!(fixture.forward(0, &frame([9, 9, 9, 9], 1)), [1]);
    assert_eq!(client.modify(member(1, 4)).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame([9, 9, 9, 9], 1)), [4]);
    assert_eq!(
        client.delete(member(1, 0)).await,
        Code::FailedPrecondition,
        "in use"
    );
    client
        .delete(entry(1, table_action::Type::ActionProfileMemberId(1)))
        .await;
    assert_eq!(client.delete(member(1, 0)).await, Code::Ok);
    assert_eq!(client.delete(member(1, 0)).await, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_refer_to_members_that_exist() {
    let (_fixture, mut client) = start_loaded().await;
    assert_eq!(
        client.insert(group(1, &[(1, 1, None)])).await,
        Code::NotFound
    );
    client.insert(member(1, 1)).await;
    assert_eq!(client.insert(group(1, &[(1, 1, None)])).await, Code::Ok);
    assert_eq!(
        client.insert(group(1, &[(1, 1, None)])).await,
        Code::AlreadyExists
    );
    assert_eq!(
        client.modify(group(2, &[(1, 1, None)])).await,
        Code::NotFound
    );
    assert_eq!(
        client.delete(member(1, 1)).await,
        Code::FailedPrecondition,
        "in a group"
    );
    let use_group = entry(1, table_action::Type::ActionProfileGroupId(1));
    assert_eq!(client.insert(use_group.clone()).await, Code::Ok);
    assert_eq!(
        client.delete(group(1, &[])).await,
        Code::FailedPrecondition,
        "in use"
    );
    let other = entry(2, table_action::Type::ActionProfileGroupId(2));
    assert_eq!(client.insert(other).await, Code::NotFound);
    client.delete(use_group).await;
    assert_eq!(client.delete(group(1, &[])).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_sizes_and_duplicates_are_checked() {
    let (_fixture, mut client) = start_loaded().await;
    client.insert(member(1, 1)).await;
    for wrong in [
        group(1, &[(1, 0, None)]),
        group(1, &[(1, -1, None)]),
        group(1, &[(1, 1, None), (1, 1, None)]),
        group(1, &[(1, 9, None)]),
        group(1, &[(1, 1, Some(99))]),
        ActionProfileGroup {
            max_size: 9,
            ..group(1, &[])
        },
        ActionProfileGroup {
            max_size: -1,
            ..group(1, &[])
        },
        group(0, &[]),
    ] {
        let told = format!("{wrong:?}");
        assert_eq!(client.insert(wrong).await, Code::InvalidArgument, "{told}");
    }
    assert_eq!(client.insert(group(1, &[(1, 1, None)])).await, Code::Ok);
    let resized = ActionProfileGroup {
        max_size: 4,
        ..group(1, &[(1, 1, None)])
    };
    assert_eq!(
        client.modify(resized).await,
        Code::InvalidArgument,
        "max_size is fixed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_without_selector_has_members_only() {
    let (_fixture, mut client) = start_loaded().await;
    let wrong = ActionProfileGroup {
        action_profile_id: id("profile"),
        ..group(1, &[])
    };
    assert_eq!(client.insert(wrong).await, Code::InvalidArgument);
    let action = Some(TableAction {
        r#type: Some(table_action::Type::ActionProfileGroupId(1)),
    });
    let wrong = TableEntry {
        table_id: id("profile_table"),
        r#match: vec![exact(1, &[1])],
        action,
        ..TableEntry::default()
    };
    assert_eq!(client.insert(wrong).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indirect_table_takes_no_direct_action() {
    let (_fixture, mut client) = start_loaded().await;
    let action = table_action::Type::Action(call("forward", &[&[1]]));
    assert_eq!(client.insert(entry(1, action)).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_spreads_flows_by_weight_and_leaves_out_members_whose_watch_port_is_down() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(member(1, 1)).await;
    client.insert(member(2, 2)).await;
    let watched = group(1, &[(1, 1, Some(5)), (2, 3, Some(6))]);
    assert_eq!(client.insert(watched.clone()).await, Code::Ok);
    client
        .insert(entry(1, table_action::Type::ActionProfileGroupId(1)))
        .await;
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
async fn a_port_that_was_down_before_the_group_came_is_down() {
    let (fixture, mut client) = start_loaded().await;
    fixture.device.set_port_status(6, false);
    client.commit().await.unwrap();
    client.insert(member(1, 1)).await;
    client.insert(member(2, 2)).await;
    client
        .insert(group(1, &[(1, 1, None), (2, 1, Some(6))]))
        .await;
    client
        .insert(entry(1, table_action::Type::ActionProfileGroupId(1)))
        .await;
    assert_eq!(spread(&fixture)[1], 200);
}

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

#[tokio::test(flavor = "multi_thread")]
async fn one_shot_programs_a_group_and_reads_back_as_it_was_written() {
    let (fixture, mut client) = start_loaded().await;
    let set = entry(1, one_shot(&[(1, 1, None), (2, 2, Some(6))]));
    assert_eq!(client.insert(set.clone()).await, Code::Ok);
    let seen = spread(&fixture);
    assert!(
        seen[1] > 10 && seen[2] > 10 && seen[1] + seen[2] == 200,
        "{seen:?}"
    );
    fixture.device.set_port_status(6, false);
    assert_eq!(spread(&fixture)[1], 200);
    let filter = TableEntry {
        table_id: set.table_id,
        ..TableEntry::default()
    };
    assert_eq!(
        client.read_entries(filter).await,
        std::slice::from_ref(&set)
    );
    assert_eq!(client.read(ActionProfileMember::default()).await, []);
    assert_eq!(
        client.modify(entry(1, one_shot(&[(3, 1, None)]))).await,
        Code::Ok
    );
    assert_eq!(spread(&fixture)[3], 200);
    assert_eq!(client.delete(set).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_shot_sets_are_checked_as_groups_are() {
    let (_fixture, mut client) = start_loaded().await;
    for wrong in [
        one_shot(&[(1, 0, None)]),
        one_shot(&[(1, 9, None)]),
        one_shot(&[(1, 1, Some(99))]),
    ] {
        assert_eq!(client.insert(entry(1, wrong)).await, Code::InvalidArgument);
    }
    let mut random = one_shot(&[(1, 1, None)]);
    if let table_action::Type::ActionProfileActionSet(set) = &mut random {
        set.action_selection_mode = action_profile_action_set::ActionSelectionMode::Random.into();
    }
    assert_eq!(client.insert(entry(1, random)).await, Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_entry_of_an_indirect_table_is_no_action() {
    let (_fixture, mut client) = start_loaded().await;
    let default = TableEntry {
        table_id: id("selector_table"),
        is_default_action: true,
        action: forward_to(1),
        ..TableEntry::default()
    };
    assert_eq!(client.modify(default).await, Code::Unimplemented);
}
