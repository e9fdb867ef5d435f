// SPDX-License-Identifier: Apache-2.0
//! Tests batches in which some updates fail, for each value of the field
//! `atomicity`.

use super::prelude::*;

fn batch() -> Vec<Update> {
    vec![
        insert(exact_entry(1, 1)),
        modify(exact_entry(9, 1)),
        insert(exact_entry(2, 1)),
    ]
}

section! { "Batch Atomicity";

async fn continue_on_error_attempts_every_update(t) {
    let mut c = t.primary().await?;
    same(c.codes(batch()).await?, vec![OK, NOT_FOUND, OK], "codes")?;
    same(c.entries(all_of("exact_table")).await?.len(), 2, "entries")?;
}

async fn rollback_on_error_leaves_nothing_of_a_failed_batch(t) {
    let mut c = t.primary().await?;
    let codes = c.codes_with(Atomicity::RollbackOnError, batch()).await?;
    same(codes[1], NOT_FOUND, "the failed update's code")?;
    holds(codes[0] != OK && codes[2] != OK, format!("undone updates are not OK: {codes:?}"))?;
    same(c.entries(all_of("exact_table")).await?, vec![], "entries")?;
}

async fn rollback_on_error_restores_what_was_modified_and_deleted(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    c.insert(exact_entry(2, 2), OK).await?;
    let updates = vec![modify(exact_entry(1, 7)), delete(exact_entry(2, 2)), modify(exact_entry(9, 1))];
    c.codes_with(Atomicity::RollbackOnError, updates).await?;
    let expected = vec![exact_entry(1, 1).into_entity(), exact_entry(2, 2).into_entity()];
    c.reads(all_of("exact_table"), expected).await?;
}

async fn rollback_on_error_of_a_good_batch_is_done(t) {
    let mut c = t.primary().await?;
    let updates = vec![insert(exact_entry(1, 1)), insert(exact_entry(2, 1))];
    same(c.codes_with(Atomicity::RollbackOnError, updates).await?, vec![OK, OK], "codes")?;
    same(c.entries(all_of("exact_table")).await?.len(), 2, "entries")?;
}

async fn dataplane_atomic_leaves_nothing_of_a_failed_batch(t) {
    let mut c = t.primary().await?;
    let codes = c.codes_with(Atomicity::DataplaneAtomic, batch()).await?;
    same(codes[1], NOT_FOUND, "the failed update's code")?;
    same(c.entries(all_of("exact_table")).await?, vec![], "entries")?;
}

async fn dataplane_atomic_of_a_good_batch_is_done(t) {
    let mut c = t.primary().await?;
    let updates = vec![insert(exact_entry(1, 1)), insert(exact_entry(2, 1))];
    same(c.codes_with(Atomicity::DataplaneAtomic, updates).await?, vec![OK, OK], "codes")?;
    same(c.entries(all_of("exact_table")).await?.len(), 2, "entries")?;
}

async fn dataplane_atomic_takes_cells_too(t) {
    let mut c = t.primary().await?;
    let updates = vec![
        insert(exact_entry(1, 1)),
        modify(counter("cells_counter", Some(1), Some(counted(5, 6)))),
        modify(meter("two_rates", Some(1), Some(rates(1, 1, 1, 1)))),
    ];
    let codes = c.codes_with(Atomicity::DataplaneAtomic, updates).await?;
    if codes.contains(&UNIMPLEMENTED) {
        return Err(Failure::Skipped("optional, and UNIMPLEMENTED here".into()));
    }
    same(codes, vec![OK; 3], "codes")?;
    let set = counter("cells_counter", Some(1), Some(counted(5, 6)));
    c.reads_back(counter("cells_counter", Some(1), None), set).await?;
}

async fn dataplane_atomic_undoes_cells_too(t) {
    let mut c = t.primary().await?;
    let updates = vec![
        modify(counter("cells_counter", Some(1), Some(counted(5, 6)))),
        modify(exact_entry(9, 1)),
    ];
    c.codes_with(Atomicity::DataplaneAtomic, updates).await?;
    let zero = counter("cells_counter", Some(1), Some(counted(0, 0)));
    c.reads_back(counter("cells_counter", Some(1), None), zero).await?;
}

async fn an_atomic_change_of_two_tables_is_seen_whole(t) {
    let mut c = t.primary().await?;
    c.needs_packets()?;
    let change = |value| vec![modify(default_of("keyless_table", mark(value))), modify(default_of("lpm_table", mark(value)))];
    for value in 1..=10 {
        same(c.codes_with(Atomicity::DataplaneAtomic, change(value)).await?, vec![OK, OK], "codes")?;
        c.marks(Walk::Keyless, Frame::default(), value).await?;
    }
}

async fn an_unknown_atomicity_is_refused(t) {
    let c = t.primary().await?;
    let request = WriteRequest {
        device_id: c.device_id,
        election_id: c.election_id,
        updates: vec![insert(exact_entry(1, 1))],
        atomicity: 99,
        ..Default::default()
    };
    let code = c.rpc.clone().write(request).await.err().map(|status| status.code());
    holds(matches!(code, Some(INVALID | UNIMPLEMENTED)), format!("{code:?}"))?;
}

}
