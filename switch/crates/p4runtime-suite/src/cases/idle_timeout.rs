// SPDX-License-Identifier: Apache-2.0
//! Tests idle timeouts of entries that no packet hits.

use std::time::{Duration, Instant};

use super::prelude::*;

const TTL: i64 = 400_000_000;

fn timed(b: u128, idle_timeout_ns: i64) -> TableEntry {
    TableEntry {
        idle_timeout_ns,
        ..entry("timeout_table", vec![exact(1, b)], mark(5))
    }
}

fn notice(message: Response) -> Option<IdleTimeoutNotification> {
    match message {
        Response::IdleTimeoutNotification(notification) => Some(notification),
        _ => None,
    }
}

section! { "Idle-timeout";

async fn the_timeout_is_read_as_written(t) {
    let mut c = t.primary().await?;
    c.insert(timed(1, 1_234_567_891), OK).await?;
    c.reads_back(all_of("timeout_table"), timed(1, 1_234_567_891)).await?;
}

async fn an_idle_entry_is_notified(t) {
    let mut c = t.primary().await?;
    let entry = TableEntry { metadata: b"m".to_vec(), controller_metadata: 7, ..timed(1, TTL) };
    c.insert(entry, OK).await?;
    let notification = c.next_of(notice).await?;
    same(notification.table_entry.len(), 1, "entries")?;
    let found = &notification.table_entry[0];
    same((found.table_id, &found.r#match), (id("timeout_table"), &vec![exact(1, 1)]), "the key")?;
    same((found.controller_metadata, found.metadata.clone()), (7, b"m".to_vec()), "metadata")?;
    same(found.idle_timeout_ns, TTL, "the timeout")?;
    holds(notification.timestamp != 0, "there is no timestamp")?;
}

async fn it_is_not_notified_before_its_time(t) {
    let mut c = t.primary().await?;
    let inserted = Instant::now();
    c.insert(timed(1, 1_000_000_000), OK).await?;
    c.next_of(notice).await?;
    let took = inserted.elapsed();
    holds(took >= Duration::from_millis(900), format!("notified after {took:?}"))?;
}

async fn it_is_notified_again_after_each_ttl(t) {
    let mut c = t.primary().await?;
    let inserted = Instant::now();
    c.insert(timed(1, TTL), OK).await?;
    c.next_of(notice).await?;
    // The time is measured from the insertion, not from the first notification. The client may read that
    // notification late, and the time from there would be too short.
    c.next_of(notice).await?;
    let took = inserted.elapsed();
    holds(took >= Duration::from_millis(700), format!("again after {took:?}"))?;
}

async fn a_ttl_of_zero_never_expires(t) {
    let mut c = t.primary().await?;
    c.insert(timed(1, 0), OK).await?;
    c.insert(timed(2, TTL), OK).await?;
    let notification = c.next_of(notice).await?;
    same(notification.table_entry.len(), 1, "entries")?;
    same(notification.table_entry[0].r#match.clone(), vec![exact(1, 2)], "the key")?;
}

async fn a_table_without_timeouts_refuses_one(t) {
    let mut c = t.primary().await?;
    c.insert(TableEntry { idle_timeout_ns: TTL, ..exact_entry(1, 5) }, INVALID).await?;
}

async fn time_since_last_hit_cannot_be_written(t) {
    let mut c = t.primary().await?;
    let since = Some(table_entry::IdleTimeout { elapsed_ns: 1 });
    c.insert(TableEntry { time_since_last_hit: since, ..timed(1, TTL) }, INVALID).await?;
}

async fn time_since_last_hit_is_read_when_asked_for(t) {
    let mut c = t.primary().await?;
    c.insert(timed(1, 0), OK).await?;
    let unasked = c.entries(all_of("timeout_table")).await?;
    same(unasked[0].time_since_last_hit, None, "the time")?;
    let since = Some(table_entry::IdleTimeout::default());
    let asked = c.entries(TableEntry { time_since_last_hit: since, ..all_of("timeout_table") }).await?;
    holds(asked[0].time_since_last_hit.is_some(), "there is no time")?;
}

async fn time_since_last_hit_of_a_table_without_timeouts_is_invalid(t) {
    let mut c = t.primary().await?;
    let since = Some(table_entry::IdleTimeout::default());
    c.read_refused(TableEntry { time_since_last_hit: since, ..all_of("exact_table") }, INVALID).await?;
}

async fn a_hit_postpones_the_notification(t) {
    let mut c = t.primary().await?;
    c.needs_packets()?;
    c.insert(timed(1, 1_500_000_000), OK).await?;
    let inserted = Instant::now();
    let mut last = inserted;
    while inserted.elapsed() < Duration::from_millis(1_000) {
        last = Instant::now();
        c.walk(Walk::Timeout, Frame { b: 1, ..Frame::default() }).await?;
    }
    c.next_of(notice).await?;
    let took = last.elapsed();
    holds(took >= Duration::from_millis(1_400), format!("notified after {took:?}"))?;
}

}
