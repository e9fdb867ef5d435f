// SPDX-License-Identifier: Apache-2.0
//! Tests the Write RPC as a whole: its checks, their order, batches and errors.

use super::prelude::*;

section! { "Write RPC";

async fn an_unknown_device_is_not_found(t) {
    let mut c = t.primary().await?;
    c.device_id += 1;
    c.write_refused(vec![insert(exact_entry(1, 1))], NOT_FOUND).await?;
}

async fn an_unknown_device_is_not_found_before_permission_is_denied(t) {
    let mut c = t.primary().await?;
    c.device_id += 1;
    c.election_id = None;
    c.write_refused(vec![insert(exact_entry(1, 1))], NOT_FOUND).await?;
}

async fn without_an_election_id_it_is_denied(t) {
    let mut c = t.primary().await?;
    c.election_id = None;
    c.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
}

async fn a_lower_election_id_is_denied(t) {
    let mut c = t.primary().await?;
    c.election_id = Some(t.id(99));
    c.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
}

async fn what_is_denied_changes_nothing(t) {
    let mut c = t.primary().await?;
    c.election_id = Some(t.id(99));
    c.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
    same(t.entries_of("exact_table").await?, 0, "entries")?;
}

async fn an_empty_batch_succeeds(t) {
    let mut c = t.primary().await?;
    same(c.codes(vec![]).await?, vec![], "codes")?;
}

async fn an_update_without_type_is_invalid(t) {
    let mut c = t.primary().await?;
    let mut update = insert(exact_entry(1, 1));
    update.r#type = 0;
    c.updates(update, INVALID).await?;
}

async fn an_update_of_an_unknown_type_is_invalid(t) {
    let mut c = t.primary().await?;
    let mut update = insert(exact_entry(1, 1));
    update.r#type = 99;
    c.updates(update, INVALID).await?;
}

async fn an_update_without_entity_is_invalid(t) {
    let mut c = t.primary().await?;
    let mut update = insert(exact_entry(1, 1));
    update.entity = None;
    c.updates(update, INVALID).await?;
}

async fn one_failure_among_many_is_reported_in_its_place(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(2, 1), OK).await?;
    let updates = (1..=4).map(|a| insert(exact_entry(a, 1))).collect();
    same(c.codes(updates).await?, vec![OK, EXISTS, OK, OK], "codes")?;
}

async fn each_failure_has_its_own_code(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(2, 1), OK).await?;
    let updates = vec![
        insert(exact_entry(2, 1)),
        modify(exact_entry(9, 1)),
        insert(TableEntry { priority: 1, ..exact_entry(3, 1) }),
        insert(exact_entry(4, 1 << 16)),
        insert(entry("const_table", vec![exact(1, 9)], mark(1))),
    ];
    same(c.codes(updates).await?, vec![EXISTS, NOT_FOUND, INVALID, RANGE, DENIED], "codes")?;
}

async fn errors_say_what_was_wrong(t) {
    let mut c = t.primary().await?;
    let errors = c.errors(vec![modify(exact_entry(9, 1))], Atomicity::ContinueOnError).await?;
    holds(!errors[0].message.is_empty(), "the error has no message")?;
}

async fn updates_that_succeed_have_errors_that_are_ok_and_empty(t) {
    let mut c = t.primary().await?;
    let updates = vec![insert(exact_entry(1, 1)), modify(exact_entry(9, 1))];
    let errors = c.errors(updates, Atomicity::ContinueOnError).await?;
    same(errors[0].clone(), Error::default(), "the error of an update that succeeded")?;
}

async fn the_inner_status_repeats_the_outer(t) {
    use prost::Message;
    let mut c = t.primary().await?;
    let Err(status) = c.write(vec![modify(exact_entry(9, 1))], Atomicity::ContinueOnError).await else {
        return Err(Failure::Failed("the write succeeded".into()));
    };
    let inner = sluice_p4runtime::proto::rpc::Status::decode(status.details());
    let inner = inner.map_err(|error| Failure::Failed(error.to_string()))?;
    same((Code::from(inner.code), inner.message.as_str()), (status.code(), status.message()), "the inner status")?;
}

async fn a_hundred_failures_are_reported_one_by_one(t) {
    let mut c = t.primary().await?;
    let updates = (0..100).map(|a| modify(exact_entry(a, 1))).collect();
    same(c.codes(updates).await?, vec![NOT_FOUND; 100], "codes")?;
}

async fn all_kinds_of_entities_may_share_a_batch(t) {
    let mut c = t.primary().await?;
    let updates = vec![
        insert(exact_entry(1, 1)),
        insert(member("profile", 1, 1)),
        insert(multicast(1, vec![replica(1, 1)])),
        insert(session(1, vec![replica(1, 1)], 0)),
        modify(counter("cells_counter", Some(1), Some(counted(1, 1)))),
        modify(meter("two_rates", Some(1), Some(rates(1, 1, 1, 1)))),
        insert(digest(0, 1, 0)),
    ];
    same(c.codes(updates).await?, vec![OK; 7], "codes")?;
}

async fn an_update_may_need_an_earlier_one_of_its_batch(t) {
    let mut c = t.primary().await?;
    let entry = entry("profile_table", vec![exact(1, 1)], to_member(1));
    same(c.codes(vec![insert(member("profile", 1, 5)), insert(entry)]).await?, vec![OK, OK], "codes")?;
}

async fn a_batch_is_done_when_it_returns(t) {
    let mut c = t.primary().await?;
    for value in 1..=20 {
        let update = if value == 1 { insert(exact_entry(1, value)) } else { modify(exact_entry(1, value)) };
        c.updates(update, OK).await?;
        c.marks(Walk::Exact, Frame { a: 1, ..Frame::default() }, value).await?;
    }
}

async fn concurrent_writes_are_serialized(t) {
    let c = t.primary().await?;
    let mut tasks = Vec::new();
    for writer in 0..8u128 {
        let mut rpc = c.rpc.clone();
        let request = WriteRequest {
            device_id: c.device_id,
            election_id: c.election_id,
            // All writers insert the same eight entries; each entry must be inserted by exactly one of them.
            updates: (0..8).map(|a| insert(exact_entry(a, writer + 1))).collect(),
            ..Default::default()
        };
        tasks.push(tokio::spawn(async move { rpc.write(request).await.is_ok() }));
    }
    let mut succeeded = 0;
    for task in tasks {
        succeeded += usize::from(task.await.unwrap_or(false));
    }
    same(succeeded, 1, "writers whose whole batch succeeded")?;
    let mut reader = t.client().await?;
    let entries = reader.entries(all_of("exact_table")).await?;
    same(entries.len(), 8, "entries")?;
    let actions: std::collections::HashSet<_> = entries.iter().map(|e| format!("{:?}", e.action)).collect();
    same(actions.len(), 1, "writers whose entries stand")?;
}

async fn a_batch_of_four_megabytes_is_taken(t) {
    let mut c = t.primary().await?;
    let metadata = vec![0x5a; 128 << 10];
    let update = |a| insert(TableEntry { metadata: metadata.clone(), ..exact_entry(a, 1) });
    same(c.codes((0..31).map(update).collect()).await?, vec![OK; 31], "codes")?;
}

}
