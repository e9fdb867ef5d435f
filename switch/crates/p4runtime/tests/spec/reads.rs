// SPDX-License-Identifier: Apache-2.0
//! "Read RPC", "Wildcard Reads".

use sluice_p4runtime::error::batch_errors;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn reading_needs_neither_stream_nor_election_id() {
    let (fixture, mut primary) = start_loaded().await;
    primary.insert(exact_entry(&[1], 1)).await;
    let mut reader = fixture.client().await;
    assert_eq!(
        reader
            .read_entries(TableEntry {
                table_id: id("exact_table"),
                ..Default::default()
            })
            .await
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn table_id_zero_reads_the_entries_of_all_tables_constant_ones_too() {
    let (_fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 1)).await;
    client
        .insert(lpm_entry(&[10, 0, 0, 0], 8, forward_to(1)))
        .await;
    let all = client.read_entries(TableEntry::default()).await;
    assert_eq!(all.len(), 4, "one, one, and two constant ones");
    assert!(all.iter().all(|entry| !entry.is_default_action));
    let defaults = client
        .read_entries(TableEntry {
            is_default_action: true,
            ..Default::default()
        })
        .await;
    assert_eq!(defaults.len(), 7, "every table has one");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_select_entries() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = |a: u8, priority, port, metadata: &[u8]| TableEntry {
        table_id: id("ternary_table"),
        r#match: vec![ternary(1, &[a], &[0xff])],
        priority,
        action: forward_to(port),
        metadata: metadata.to_vec(),
        controller_metadata: u64::from(a),
        ..TableEntry::default()
    };
    let drop_all = TableEntry {
        table_id: id("ternary_table"),
        priority: 11,
        action: direct("drop", &[]),
        ..TableEntry::default()
    };
    let (first, second) = (entry(1, 11, 1, b"x"), entry(2, 12, 1, b"y"));
    for entry in [&first, &second, &drop_all] {
        assert_eq!(client.insert(entry.clone()).await, Code::Ok);
    }
    let filter = TableEntry {
        table_id: id("ternary_table"),
        ..TableEntry::default()
    };
    let mut count = async |filter: TableEntry| client.read_entries(filter).await.len();
    assert_eq!(count(filter.clone()).await, 3);
    assert_eq!(
        count(TableEntry {
            priority: 11,
            ..filter.clone()
        })
        .await,
        2
    );
    assert_eq!(
        count(TableEntry {
            metadata: b"y".to_vec(),
            ..filter.clone()
        })
        .await,
        1
    );
    assert_eq!(
        count(TableEntry {
            controller_metadata: 1,
            ..filter.clone()
        })
        .await,
        1
    );
    let action = Action {
        params: vec![],
        ..call("forward", &[])
    };
    let action = Some(TableAction {
        r#type: Some(table_action::Type::Action(action)),
    });
    assert_eq!(
        count(TableEntry {
            action,
            ..filter.clone()
        })
        .await,
        2
    );
    let matched = TableEntry {
        r#match: second.r#match.clone(),
        ..filter.clone()
    };
    assert_eq!(count(matched.clone()).await, 1, "whatever the priority");
    assert_eq!(
        count(TableEntry {
            priority: 12,
            ..matched.clone()
        })
        .await,
        1
    );
    assert_eq!(
        count(TableEntry {
            priority: 13,
            ..matched
        })
        .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_of_a_batch_is_answered_and_errors_are_in_order() {
    let (_fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 1)).await;
    let unknown = TableEntry {
        table_id: 0x0200_0001,
        ..TableEntry::default()
    };
    let good = TableEntry {
        table_id: id("exact_table"),
        ..TableEntry::default()
    };
    let requests = vec![wildcard(unknown), wildcard(good), Entity { entity: None }];
    let request = ReadRequest {
        device_id: DEVICE,
        role: String::new(),
        entities: requests,
    };
    let mut stream = client.rpc.read(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().entities.len(), 1);
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let codes: Vec<_> = batch_errors(&status)
        .iter()
        .map(|e| Code::from(e.canonical_code))
        .collect();
    assert_eq!(
        codes,
        [Code::InvalidArgument, Code::Ok, Code::InvalidArgument]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_forwarding_state_can_be_read_at_once() {
    let (_fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 1)).await;
    let everything = vec![
        wildcard(ExternEntry::default()),
        wildcard(TableEntry::default()),
        wildcard(ActionProfileMember::default()),
        wildcard(ActionProfileGroup::default()),
        wildcard(MeterEntry::default()),
        wildcard(DirectMeterEntry::default()),
        wildcard(CounterEntry::default()),
        wildcard(DirectCounterEntry::default()),
        wildcard(PacketReplicationEngineEntry::default()),
        wildcard(ValueSetEntry::default()),
        wildcard(RegisterEntry::default()),
        wildcard(DigestEntry::default()),
    ];
    let read = client.try_read(everything).await.unwrap();
    // Entries 1 + 2 constant, meters 4, direct meter 1, counters 8, direct counter 1, value set 1, registers 4.
    assert_eq!(read.len(), 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_device_is_not_found() {
    let (_fixture, mut client) = start_loaded().await;
    let request = ReadRequest {
        device_id: 99,
        ..ReadRequest::default()
    };
    assert_eq!(
        client.rpc.read(request).await.unwrap_err().code(),
        Code::NotFound
    );
}
