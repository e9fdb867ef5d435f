// SPDX-License-Identifier: Apache-2.0
//! "Table Idle Timeout Notification", "DigestEntry" and digest lists.

use std::time::{Duration, Instant};

use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

async fn idle(client: &mut Client) -> IdleTimeoutNotification {
    match client.next().await.unwrap() {
        Response::IdleTimeoutNotification(notification) => notification,
        other => panic!("not an idle timeout: {other:?}"),
    }
}

const TTL: Duration = Duration::from_millis(300);

fn timed() -> TableEntry {
    TableEntry {
        idle_timeout_ns: TTL.as_nanos() as i64,
        metadata: vec![1, 2],
        ..lpm_entry(&[10, 0, 0, 0], 8, forward_to(1))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_entry_is_reported_after_each_ttl_with_its_key_and_metadata() {
    let (_fixture, mut client) = start_loaded().await;
    let start = Instant::now();
    assert_eq!(client.insert(timed()).await, Code::Ok);
    assert_eq!(
        client
            .insert(lpm_entry(&[11, 0, 0, 0], 8, forward_to(1)))
            .await,
        Code::Ok
    );
    for round in 1..=2 {
        let notification = idle(&mut client).await;
        assert!(start.elapsed() >= TTL * round);
        assert_eq!(notification.table_entry, [timed()]);
        assert!(notification.timestamp > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hit_postpones_the_report_and_shows_in_the_last_hit() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(timed()).await;
    let mut last = Instant::now();
    for _ in 0..8 {
        tokio::time::sleep(TTL / 4).await;
        last = Instant::now();
        assert_eq!(fixture.forward(0, &frame([10, 0, 0, 1], 0)), [1]);
    }
    let filter = TableEntry {
        time_since_last_hit: Some(table_entry::IdleTimeout::default()),
        action: None,
        ..timed()
    };
    let read = client.read_entries(filter).await;
    let elapsed = read[0].time_since_last_hit.unwrap().elapsed_ns;
    assert!(Duration::from_nanos(elapsed as u64) <= last.elapsed() + Duration::from_millis(1));
    idle(&mut client).await;
    assert!(last.elapsed() >= TTL - Duration::from_millis(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_idle_timeout_refuse_it() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = TableEntry {
        idle_timeout_ns: 1,
        ..exact_entry(&[1], 1)
    };
    assert_eq!(client.insert(entry).await, Code::InvalidArgument);
    let since = Some(table_entry::IdleTimeout::default());
    let filter = TableEntry {
        table_id: id("exact_table"),
        time_since_last_hit: since,
        ..TableEntry::default()
    };
    assert_eq!(client.read_code(filter).await, Code::InvalidArgument);
    let default_entry = TableEntry {
        table_id: id("lpm_table"),
        is_default_action: true,
        time_since_last_hit: since,
        ..TableEntry::default()
    };
    assert_eq!(client.read_code(default_entry).await, Code::InvalidArgument);
}

fn digest(config: Option<(i64, i32, i64)>) -> DigestEntry {
    DigestEntry {
        digest_id: id("learned_t"),
        config: config.map(|(max_timeout_ns, max_list_size, ack_timeout_ns)| {
            digest_entry::Config {
                max_timeout_ns,
                max_list_size,
                ack_timeout_ns,
            }
        }),
    }
}

async fn learned(client: &mut Client) -> DigestList {
    match client.next().await.unwrap() {
        Response::Digest(list) => list,
        other => panic!("not a digest list: {other:?}"),
    }
}

const HOUR: i64 = 3_600_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_sent_once_until_it_is_acknowledged() {
    let (fixture, mut client) = start_loaded().await;
    client
        .insert(lpm_entry(&[], 0, direct("learn", &[&[2]])))
        .await;
    let packet = frame([0, 0, 0, 1], 0);
    fixture.forward(3, &packet);
    assert!(client.is_quiet().await, "not enabled yet");
    assert_eq!(client.insert(digest(Some((0, 1, HOUR)))).await, Code::Ok);
    fixture.forward(3, &packet);
    let list = learned(&mut client).await;
    assert_eq!(list.digest_id, id("learned_t"));
    let bits = |value: &[u8]| P4Data {
        data: Some(p4_data::Data::Bitstring(value.into())),
    };
    let members = vec![bits(&[2, 0, 0, 0, 0, 1]), bits(&[3])];
    let data = P4Data {
        data: Some(p4_data::Data::Struct(P4StructLike { members })),
    };
    assert_eq!(list.data, [data]);
    fixture.forward(3, &packet);
    assert!(client.is_quiet().await, "sent and not acknowledged");
    let ack = DigestListAck {
        digest_id: list.digest_id,
        list_id: list.list_id,
    };
    client.send(Request::DigestAck(ack)).await;
    assert!(client.is_quiet().await);
    fixture.forward(3, &packet);
    assert!(learned(&mut client).await.list_id > list.list_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_messages_are_listed_together_until_the_list_is_full_or_old() {
    let (fixture, mut client) = start_loaded().await;
    client
        .insert(lpm_entry(&[], 0, direct("learn", &[&[2]])))
        .await;
    client.insert(digest(Some((300_000_000, 2, 0)))).await;
    let packet = frame([0, 0, 0, 1], 0);
    for port in [1, 1, 3] {
        fixture.forward(port, &packet);
    }
    assert_eq!(learned(&mut client).await.data.len(), 2);
    fixture.forward(1, &packet);
    assert_eq!(
        learned(&mut client).await.data.len(),
        1,
        "after max_timeout_ns"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn digest_settings_are_inserted_modified_deleted_and_read() {
    let (_fixture, mut client) = start_loaded().await;
    assert_eq!(client.modify(digest(Some((1, 1, 1)))).await, Code::NotFound);
    assert_eq!(client.insert(digest(None)).await, Code::InvalidArgument);
    assert_eq!(
        client.insert(digest(Some((-1, 1, 1)))).await,
        Code::InvalidArgument
    );
    assert_eq!(client.insert(digest(Some((1, 1, 1)))).await, Code::Ok);
    assert_eq!(
        client.insert(digest(Some((1, 1, 1)))).await,
        Code::AlreadyExists
    );
    assert_eq!(client.modify(digest(Some((2, 3, 4)))).await, Code::Ok);
    let read = client.read(DigestEntry::default()).await;
    assert_eq!(read, [entity::Entity::DigestEntry(digest(Some((2, 3, 4))))]);
    assert_eq!(client.delete(digest(None)).await, Code::Ok);
    assert_eq!(client.delete(digest(None)).await, Code::NotFound);
    assert_eq!(client.read(DigestEntry::default()).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_of_unknown_digests_are_reported() {
    let (_fixture, mut client) = start_loaded().await;
    client
        .send(Request::DigestAck(DigestListAck {
            digest_id: 1,
            list_id: 1,
        }))
        .await;
    let Response::Error(error) = client.next().await.unwrap() else {
        panic!("no error")
    };
    assert_eq!(Code::from(error.canonical_code), Code::InvalidArgument);
    assert!(matches!(
        error.details,
        Some(stream_error::Details::DigestListAck(_))
    ));
}
