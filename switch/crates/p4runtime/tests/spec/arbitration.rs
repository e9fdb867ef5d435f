// SPDX-License-Identifier: Apache-2.0
//! "Client Arbitration and Controller Replication", over real streams. The rules themselves are tested with the state
//! machine; these tests cover what clients see of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::Code;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_with_an_election_id_is_primary_and_a_lower_one_is_backup() {
    let fixture = start().await;
    let mut first = fixture.client().await;
    assert_eq!(first.arbitrate(10).await.unwrap().code(), Code::Ok);
    let mut second = fixture.client().await;
    let told = second.arbitrate(5).await.unwrap();
    assert_eq!(
        (told.code(), told.election_id()),
        (Code::AlreadyExists, Some(10))
    );
    assert!(
        first.is_quiet().await,
        "a new backup is no news to the primary"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_is_told_to_both_and_refuses_the_old_primary() {
    let (fixture, mut old) = start_loaded().await;
    let mut new = fixture.client().await;
    assert_eq!(new.arbitrate(2).await.unwrap().code(), Code::Ok);
    assert_eq!(old.told().await.unwrap().code(), Code::AlreadyExists);
    let status = old
        .write(vec![insert(exact_entry(&[1], 1))])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(new.insert(exact_entry(&[1], 1)).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_primary_leaves_nobody_is_primary_until_its_id_is_reached() {
    let (fixture, primary) = start_loaded().await;
    let mut backup = fixture.client().await;
    assert_eq!(
        backup.arbitrate(0).await.unwrap().code(),
        Code::AlreadyExists
    );
    drop(primary);
    let told = backup.told().await.unwrap();
    assert_eq!((told.code(), told.election_id()), (Code::NotFound, Some(1)));
    let status = backup
        .write(vec![insert(exact_entry(&[1], 1))])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(backup.arbitrate(1).await.unwrap().code(), Code::Ok);
    assert_eq!(backup.insert(exact_entry(&[1], 1)).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_election_id_a_client_never_writes() {
    let fixture = start().await;
    let mut client = fixture.client().await;
    assert_eq!(client.arbitrate(None).await.unwrap().code(), Code::NotFound);
    assert_eq!(
        client.commit().await.unwrap_err().code(),
        Code::PermissionDenied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_a_stream_ends_it_with_its_code() {
    let fixture = start().await;
    let _primary = fixture.primary().await;
    let mut stranger = fixture.client().await;
    stranger.send_arbitration(DEVICE + 1, Some(9)).await;
    assert_eq!(stranger.told().await.unwrap_err().code(), Code::NotFound);
    let mut twin = fixture.client().await;
    assert_eq!(
        twin.arbitrate(1).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    let mut backup = fixture.client().await;
    backup.arbitrate(0).await.unwrap();
    backup.role = "another".into();
    assert_eq!(
        backup.arbitrate(0).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_by_an_error_gives_its_primacy_up() {
    let fixture = start().await;
    let mut primary = fixture.primary().await;
    let mut backup = fixture.client().await;
    backup.arbitrate(0).await.unwrap();
    primary.send_arbitration(DEVICE + 1, Some(1)).await;
    assert_eq!(
        primary.told().await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    assert_eq!(backup.told().await.unwrap().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_has_a_primary() {
    let (fixture, _primary) = start_loaded().await;
    let mut other = fixture.client().await;
    other.role = "routes".into();
    let told = other.arbitrate(1).await.unwrap();
    assert_eq!(told.code(), Code::Ok);
    assert_eq!(told.0.role.as_ref().unwrap().name, "routes");
    assert_eq!(other.insert(exact_entry(&[1], 1)).await, Code::Ok);
    other.role = "nobody".into();
    let status = other
        .write(vec![insert(exact_entry(&[2], 1))])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

const CLIENTS: u64 = 32;
const ATTEMPTS: u64 = 1_024;
const HIGHEST: u64 = 1 + ATTEMPTS + CLIENTS - 1;

/// Requests each id in turn; returns the last arbitration message. Writes whenever it is told to be primary.
async fn fight(mut client: Client, ids: Vec<u64>, writing: Arc<AtomicUsize>) -> Option<Told> {
    let mut last = None;
    for &id in &ids {
        client.send_arbitration(DEVICE, Some(id)).await;
        // Reads all messages up to the answer: a primary has the id that it requested.
        loop {
            let told = told_in_the_end(&mut client, id).await;
            let mine = told.election_id() == Some(id) && told.code() == Code::Ok;
            let lost = told.election_id() > Some(id);
            last = Some(told);
            if mine {
                let before = writing.fetch_max(id as usize, Ordering::SeqCst);
                let accepted = client.write(vec![]).await.is_ok();
                // A client that took over before this write started has a higher id, and this write is refused.
                assert!(!accepted || before <= id as usize, "two primaries");
            }
            if mine || lost {
                break;
            }
        }
    }
    // At the end, every client is told the highest id.
    let id = *ids.last()?;
    while last.as_ref().and_then(Told::election_id) != Some(HIGHEST) {
        last = Some(told_in_the_end(&mut client, id).await);
    }
    last
}

/// Returns the next message. A client that does not read its messages in time is disconnected; it then reconnects with
/// its id.
async fn told_in_the_end(client: &mut Client, id: u64) -> Told {
    loop {
        match client.told().await {
            Ok(told) => return told,
            Err(status) if status.code() == Code::ResourceExhausted => {
                client.reopen().await;
                client.send_arbitration(DEVICE, Some(id)).await;
            }
            Err(status) => panic!("{status}"),
        }
    }
}

/// Runs 32 clients with 1,000 attempts, in an order that the scheduler determines.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_fight_for_primacy_are_never_two() {
    let fixture = start().await;
    let mut primary = fixture.primary().await;
    primary.commit().await.unwrap();
    drop(primary);
    let writing = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        // Each client has increasing ids of its own.
        let ids = (1..=ATTEMPTS / CLIENTS).map(|round| 1 + round * CLIENTS + client);
        let fighting = fight(fixture.client().await, ids.collect(), writing.clone());
        tasks.push(tokio::spawn(fighting));
    }
    let mut primaries = 0;
    for task in tasks {
        let last = task.await.unwrap().expect("it was told something");
        primaries += usize::from(last.code() == Code::Ok);
    }
    assert_eq!(primaries, 1, "the highest id, and nobody else");
}
