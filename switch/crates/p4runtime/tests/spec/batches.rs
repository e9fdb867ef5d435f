// SPDX-License-Identifier: Apache-2.0
//! "Write RPC", "Batch Atomicity", "Error Reporting".

use sluice_p4runtime::error::batch_errors;
use sluice_p4runtime::proto::v1::write_request::Atomicity;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

/// A valid update, a duplicate, one for an absent entry, a valid one.
fn mixed() -> Vec<Update> {
    vec![
        insert(exact_entry(&[1], 1)),
        insert(exact_entry(&[1], 2)),
        delete(exact_entry(&[3], 1)),
        insert(exact_entry(&[2], 1)),
    ]
}

const MIXED: [Code; 4] = [Code::Ok, Code::AlreadyExists, Code::NotFound, Code::Ok];

fn all() -> TableEntry {
    TableEntry {
        table_id: id("exact_table"),
        ..TableEntry::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn continue_on_error_attempts_every_update_and_reports_them_in_order() {
    let (_fixture, mut client) = start_loaded().await;
    assert_eq!(client.write_codes(mixed()).await, MIXED);
    assert_eq!(client.read_entries(all()).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_was_wrong() {
    let (_fixture, mut client) = start_loaded().await;
    let status = client.write(mixed()).await.unwrap_err();
    let errors = batch_errors(&status);
    assert_eq!(errors[0], Error::default(), "a success says nothing else");
    assert!(
        errors[1].message.contains("exact_table"),
        "{}",
        errors[1].message
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_on_error_and_dataplane_atomic_leave_nothing_of_a_failed_batch() {
    for atomicity in [Atomicity::RollbackOnError, Atomicity::DataplaneAtomic] {
        let (_fixture, mut client) = start_loaded().await;
        client.insert(exact_entry(&[9], 1)).await;
        let expected = [
            Code::Aborted,
            Code::AlreadyExists,
            Code::NotFound,
            Code::Aborted,
        ];
        assert_eq!(client.write_codes_with(atomicity, mixed()).await, expected);
        assert_eq!(client.read_entries(all()).await.len(), 1);
        let good = vec![insert(exact_entry(&[1], 1)), delete(exact_entry(&[9], 1))];
        assert_eq!(
            client.write_codes_with(atomicity, good).await,
            [Code::Ok, Code::Ok]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_are_part_of_an_atomic_batch_and_of_its_failure() {
    let (_fixture, mut client) = start_loaded().await;
    let counter = |packet_count| CounterEntry {
        counter_id: id("port_counter"),
        index: Some(Index { index: 3 }),
        data: Some(CounterData {
            packet_count,
            byte_count: 0,
        }),
    };
    let batch = |packet_count| {
        let counter = modify(counter(packet_count));
        vec![counter, insert(exact_entry(&[1], 1))]
    };
    let codes = client
        .write_codes_with(Atomicity::DataplaneAtomic, batch(5))
        .await;
    assert_eq!(codes, [Code::Ok, Code::Ok]);
    let codes = client
        .write_codes_with(Atomicity::DataplaneAtomic, batch(6))
        .await;
    assert_eq!(codes, [Code::Aborted, Code::AlreadyExists]);
    let read = client.read(counter(0)).await;
    assert_eq!(read, [entity::Entity::CounterEntry(counter(5))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_a_batch_may_build_on_each_other() {
    let (_fixture, mut client) = start_loaded().await;
    let member = ActionProfileMember {
        action_profile_id: id("profile"),
        member_id: 1,
        action: Some(call("forward", &[&[1]])),
    };
    let action = table_action::Type::ActionProfileMemberId(1);
    let entry = TableEntry {
        table_id: id("profile_table"),
        r#match: vec![exact(1, &[1])],
        action: Some(TableAction {
            r#type: Some(action),
        }),
        ..TableEntry::default()
    };
    let batch = vec![insert(member), insert(entry)];
    assert_eq!(client.write_codes(batch).await, [Code::Ok, Code::Ok]);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_without_type_or_entity_are_invalid() {
    let (_fixture, mut client) = start_loaded().await;
    let untyped = update(update::Type::Unspecified, exact_entry(&[1], 1));
    let empty = Update {
        r#type: update::Type::Insert.into(),
        entity: None,
    };
    let hollow = Update {
        entity: Some(Entity { entity: None }),
        ..empty.clone()
    };
    let unknown = Update {
        r#type: 17,
        ..untyped.clone()
    };
    let codes = client
        .write_codes(vec![untyped, empty, hollow, unknown])
        .await;
    assert_eq!(codes, [Code::InvalidArgument; 4]);
    assert_eq!(
        client.insert(ExternEntry::default()).await,
        Code::Unimplemented
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_batch_succeeds() {
    let (_fixture, mut client) = start_loaded().await;
    client.write(vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_as_a_whole_are_refused_without_details() {
    let (_fixture, mut client) = start_loaded().await;
    let request = WriteRequest {
        device_id: 99,
        updates: mixed(),
        ..Default::default()
    };
    let status = client.rpc.write(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.details().is_empty());
    let request = WriteRequest {
        device_id: DEVICE,
        election_id: client.election_id,
        atomicity: 9,
        ..Default::default()
    };
    let status = client.rpc.write(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_more_than_four_megabytes_is_accepted() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = |n: u32| TableEntry {
        metadata: vec![7; 1 << 20],
        ..exact_entry(&n.to_be_bytes(), 1)
    };
    let codes = client
        .write_codes((1..=6).map(|n| insert(entry(n))).collect())
        .await;
    assert_eq!(codes, [Code::Ok; 6]);
    let read = client.read_entries(all()).await;
    assert_eq!(read.len(), 6);
    assert_eq!(read[0].metadata.len(), 1 << 20);
}
