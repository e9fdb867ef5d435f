// SPDX-License-Identifier: Apache-2.0
//! Tests arbitration when many clients compete.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::Code;

use crate::support::*;

const CLIENTS: u64 = 32;
const ATTEMPTS: u64 = 1_024;
const HIGHEST: u64 = 1 + ATTEMPTS + CLIENTS - 1;

/// Requests each id in turn. Writes whenever the server says that this client is primary. Returns the last arbitration
/// message.
async fn compete(
    mut client: Client,
    ids: Vec<u64>,
    writing: Arc<AtomicUsize>,
) -> Option<Arbitration> {
    let mut last = None;
    for &id in &ids {
        client.send_arbitration(DEVICE, Some(id)).await;
        // Reads messages until this client is primary with `id`, or another client has a higher id.
        loop {
            let told = told_or_reconnected(&mut client, id).await;
            let mine = told.election_id() == Some(id) && told.code() == Code::Ok;
            let lost = told.election_id() > Some(id);
            last = Some(told);
            if mine {
                let before = writing.fetch_max(id as usize, Ordering::SeqCst);
                let accepted = client.write(vec![]).await.is_ok();
                // If a client with a higher id took over before this write started, the server must refuse this write.
                assert!(
                    !accepted || before <= id as usize,
                    "there are two primaries"
                );
            }
            if mine || lost {
                break;
            }
        }
    }
    // In the end, the server tells every client the highest id.
    let id = *ids.last()?;
    while last.as_ref().and_then(Arbitration::election_id) != Some(HIGHEST) {
        last = Some(told_or_reconnected(&mut client, id).await);
    }
    last
}

/// Returns the next message. A client that does not read its messages in time is disconnected, and then reconnects with
/// its id.
async fn told_or_reconnected(client: &mut Client, id: u64) -> Arbitration {
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

/// Lets 32 clients compete for being primary, with 1,024 election ids in all. The scheduler determines the order.
/// Checks that two clients never write at the same time, and that one client is primary in the end.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_compete_for_primacy_are_never_two() {
    let fixture = start().await;
    let mut primary = fixture.primary().await;
    primary.commit().await.unwrap();
    drop(primary);
    let writing = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        // No two clients share an id, and the ids of each client increase.
        let ids = (1..=ATTEMPTS / CLIENTS).map(|round| 1 + round * CLIENTS + client);
        let competing = compete(fixture.client().await, ids.collect(), writing.clone());
        tasks.push(tokio::spawn(competing));
    }
    let mut primaries = 0;
    for task in tasks {
        let last = task.await.unwrap().expect("the client got a message");
        primaries += usize::from(last.code() == Code::Ok);
    }
    assert_eq!(primaries, 1, "only the highest election id is primary");
}
