// SPDX-License-Identifier: Apache-2.0
//! Tests the choice of the primary, the notifications about this choice, and the errors that end a stream.

use super::prelude::*;

section! { "Client Arbitration";

async fn the_first_client_with_an_election_id_is_primary(t) {
    let mut c = t.client().await?;
    let told = c.is_told(1, OK).await?;
    same(told.election_id(), Some(t.id(1)), "the election id")?;
    same(told.0.device_id, t.device_id(), "the device id")?;
}

async fn the_default_role_is_unset_in_notifications(t) {
    let mut c = t.client().await?;
    let told = c.is_told(1, OK).await?;
    holds(told.0.role.is_none_or(|role| role.name.is_empty()), "there is a role")?;
}

async fn a_lower_id_is_a_backup_and_hears_the_highest(t) {
    let _primary = t.elected(5).await?;
    let mut c = t.client().await?;
    let told = c.is_told(4, EXISTS).await?;
    same(told.election_id(), Some(t.id(5)), "the election id")?;
}

async fn a_backup_that_joins_is_told_to_nobody_else(t) {
    let mut primary = t.elected(5).await?;
    let mut first = t.client().await?;
    first.is_told(4, EXISTS).await?;
    let mut second = t.client().await?;
    second.is_told(3, EXISTS).await?;
    primary.is_quiet().await?;
    first.is_quiet().await?;
}

async fn a_higher_id_takes_over_and_all_hear_of_it(t) {
    let mut old = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    let mut new = t.client().await?;
    new.is_told(6, OK).await?;
    same(old.hears(EXISTS).await?.election_id(), Some(t.id(6)), "the old primary's notice")?;
    same(backup.hears(EXISTS).await?.election_id(), Some(t.id(6)), "the backup's notice")?;
}

async fn after_a_takeover_the_old_primary_is_denied(t) {
    let mut old = t.primary().await?;
    let mut new = t.client().await?;
    new.is_told(101, OK).await?;
    old.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
    new.insert(exact_entry(1, 1), OK).await?;
}

async fn a_client_without_election_id_is_a_backup(t) {
    let mut primary = t.primary().await?;
    let mut c = t.client().await?;
    c.is_told(None, EXISTS).await?;
    c.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
    primary.is_quiet().await?;
}

async fn several_clients_without_election_id_may_connect(t) {
    let _primary = t.elected(5).await?;
    let mut first = t.client().await?;
    first.is_told(None, EXISTS).await?;
    let mut second = t.client().await?;
    second.is_told(None, EXISTS).await?;
}

async fn without_any_primary_a_client_without_id_hears_not_found(t) {
    let role = t.role("empty");
    let mut c = t.client().await?;
    c.role = role;
    c.send_arbitration(None).await?;
    let told = c.hears(NOT_FOUND).await?;
    same(told.election_id(), None, "the election id where there has been no primary")?;
}

async fn an_election_id_of_zero_is_set_and_can_be_primary(t) {
    let mut c = t.client().await?;
    c.role = t.role("zero");
    c.election_id = Some(Uint128 { high: 0, low: 0 });
    c.send_election_id().await?;
    let told = c.hears(OK).await?;
    same(told.election_id(), Some(Uint128 { high: 0, low: 0 }), "the election id")?;
}

async fn the_high_half_of_an_election_id_counts_more(t) {
    let role = t.role("wide");
    let mut low = t.client().await?;
    low.role = role.clone();
    low.election_id = Some(Uint128 { high: 0, low: u64::MAX });
    low.send_election_id().await?;
    low.hears(OK).await?;
    let mut high = t.client().await?;
    high.role = role;
    high.election_id = Some(Uint128 { high: 1, low: 0 });
    high.send_election_id().await?;
    high.hears(OK).await?;
    low.hears(EXISTS).await?;
}

async fn a_duplicate_election_id_ends_the_stream(t) {
    let mut primary = t.elected(5).await?;
    let mut c = t.client().await?;
    c.send_arbitration(5).await?;
    same(c.ended().await?, INVALID, "the stream's end")?;
    primary.is_quiet().await?;
}

async fn a_backups_election_id_is_not_to_be_used_twice_either(t) {
    let _primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    let mut c = t.client().await?;
    c.send_arbitration(4).await?;
    same(c.ended().await?, INVALID, "the stream's end")?;
}

async fn changing_to_a_used_election_id_ends_the_stream(t) {
    let _primary = t.elected(5).await?;
    let mut c = t.client().await?;
    c.is_told(4, EXISTS).await?;
    c.send_arbitration(5).await?;
    same(c.ended().await?, INVALID, "the stream's end")?;
}

async fn an_election_id_is_free_when_its_client_has_gone(t) {
    let mut first = t.elected(5).await?;
    first.close();
    first.ended().await?;
    let mut second = t.client().await?;
    second.is_told(5, OK).await?;
}

async fn an_unknown_device_ends_the_stream_with_not_found(t) {
    let mut c = t.client().await?;
    c.device_id += 1;
    c.send_arbitration(5).await?;
    same(c.ended().await?, NOT_FOUND, "the stream's end")?;
}

async fn a_device_id_of_zero_ends_the_stream_with_not_found(t) {
    let mut c = t.client().await?;
    c.device_id = 0;
    c.send_arbitration(5).await?;
    same(c.ended().await?, NOT_FOUND, "the stream's end")?;
}

async fn changing_the_device_ends_the_stream_with_failed_precondition(t) {
    let mut c = t.elected(5).await?;
    c.device_id += 1;
    c.send_arbitration(5).await?;
    same(c.ended().await?, PRECONDITION, "the stream's end")?;
}

async fn when_the_primary_leaves_nobody_takes_its_place(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    primary.close();
    let told = backup.hears(NOT_FOUND).await?;
    same(told.election_id(), Some(t.id(5)), "the highest election id")?;
}

async fn a_primary_whose_stream_ends_by_an_error_has_left(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    primary.device_id += 1;
    primary.send_arbitration(5).await?;
    same(primary.ended().await?, PRECONDITION, "the stream's end")?;
    backup.hears(NOT_FOUND).await?;
}

async fn a_backup_does_not_write_when_the_primary_has_left(t) {
    let mut primary = t.primary().await?;
    let mut backup = t.client().await?;
    backup.is_told(99, EXISTS).await?;
    primary.close();
    backup.hears(NOT_FOUND).await?;
    backup.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
}

async fn the_highest_election_id_ever_seen_is_remembered(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    primary.close();
    backup.hears(NOT_FOUND).await?;
    let mut late = t.client().await?;
    let told = late.is_told(3, NOT_FOUND).await?;
    same(told.election_id(), Some(t.id(5)), "the highest election id")?;
}

async fn a_backup_that_repeats_its_id_does_not_become_primary(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    primary.close();
    backup.hears(NOT_FOUND).await?;
    backup.is_told(4, NOT_FOUND).await?;
}

async fn after_the_primary_left_its_id_is_high_enough(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    primary.close();
    backup.hears(NOT_FOUND).await?;
    backup.is_told(5, OK).await?;
}

async fn when_a_backup_leaves_nobody_hears(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    let mut other = t.client().await?;
    other.is_told(3, EXISTS).await?;
    backup.close();
    backup.ended().await?;
    primary.is_quiet().await?;
    other.is_quiet().await?;
}

async fn a_primary_that_repeats_its_id_stays_and_all_hear(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    primary.is_told(5, OK).await?;
    backup.hears(EXISTS).await?;
}

async fn a_primary_may_raise_its_id(t) {
    let mut c = t.primary().await?;
    let told = c.is_told(200, OK).await?;
    same(told.election_id(), Some(t.id(200)), "the election id")?;
    c.insert(exact_entry(1, 1), OK).await?;
    c.election_id = Some(t.id(100));
    c.write_refused(vec![insert(exact_entry(2, 1))], DENIED).await?;
}

async fn a_primary_that_lowers_its_id_becomes_a_backup(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    let told = primary.is_told(3, NOT_FOUND).await?;
    same(told.election_id(), Some(t.id(5)), "the highest election id")?;
    backup.hears(NOT_FOUND).await?;
}

async fn a_primary_that_unsets_its_id_becomes_a_backup(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    primary.is_told(None, NOT_FOUND).await?;
    backup.hears(NOT_FOUND).await?;
}

async fn a_primary_that_stepped_down_can_come_back(t) {
    let mut c = t.elected(5).await?;
    c.is_told(3, NOT_FOUND).await?;
    c.is_told(5, OK).await?;
}

async fn a_backup_may_lower_its_id_and_nobody_else_hears(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    backup.is_told(2, EXISTS).await?;
    primary.is_quiet().await?;
}

async fn a_backup_may_raise_its_id_above_the_primarys(t) {
    let mut primary = t.elected(5).await?;
    let mut backup = t.client().await?;
    backup.is_told(4, EXISTS).await?;
    backup.is_told(6, OK).await?;
    primary.hears(EXISTS).await?;
}

async fn a_client_with_the_primarys_id_writes_without_a_stream_of_its_own(t) {
    // A request names device, role and election id. The server may trust them, and need not check on which
    // connection the request came.
    let _primary = t.primary().await?;
    let mut c = t.client().await?;
    c.election_id = Some(t.id(100));
    c.insert(exact_entry(1, 1), OK).await?;
}

async fn a_higher_id_that_never_arbitrated_is_denied(t) {
    let mut c = t.primary().await?;
    c.election_id = Some(t.id(500));
    c.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
}

async fn a_client_that_never_arbitrated_is_not_told_anything(t) {
    let mut silent = t.client().await?;
    let _primary = t.elected(5).await?;
    silent.is_quiet().await?;
}

async fn many_clients_fight_and_one_is_primary(t) {
    let mut clients = Vec::new();
    for n in 1..=16 {
        let mut c = t.client().await?;
        c.is_told(n, OK).await?;
        clients.push(c);
    }
    for (index, c) in clients.iter_mut().enumerate() {
        let later = 15 - index;
        for _ in 0..later {
            c.hears(EXISTS).await?;
        }
        c.is_quiet().await?;
    }
}

}
