// SPDX-License-Identifier: Apache-2.0
//! Tests SetForwardingPipelineConfig: verify, save, commit and reconcile.

use sluice_p4runtime::proto::v1::get_forwarding_pipeline_config_request::ResponseType;

use super::prelude::*;

/// Returns a config that no server can load.
fn broken() -> ForwardingPipelineConfig {
    ForwardingPipelineConfig {
        p4_device_config: b"{ nonsense".to_vec().into(),
        ..program::config()
    }
}

section! { "SetForwardingPipelineConfig RPC";

async fn an_unknown_device_is_not_found(t) {
    let mut c = t.primary().await?;
    c.device_id += 1;
    c.sets(Set::VerifyAndCommit, Some(program::config()), NOT_FOUND).await?;
}

async fn an_unknown_device_is_not_found_before_permission_is_denied(t) {
    let mut c = t.primary().await?;
    c.device_id += 1;
    c.election_id = None;
    c.sets(Set::VerifyAndCommit, Some(program::config()), NOT_FOUND).await?;
}

async fn an_unknown_role_is_not_found(t) {
    let mut c = t.primary().await?;
    c.role = t.role("nobody");
    c.sets(Set::VerifyAndCommit, Some(program::config()), NOT_FOUND).await?;
}

async fn without_an_election_id_it_is_denied(t) {
    let mut c = t.primary().await?;
    c.election_id = None;
    c.sets(Set::VerifyAndCommit, Some(program::config()), DENIED).await?;
}

async fn a_backup_is_denied(t) {
    let _primary = t.primary().await?;
    let mut c = t.client().await?;
    c.is_told(99, EXISTS).await?;
    c.sets(Set::VerifyAndCommit, Some(program::config()), DENIED).await?;
}

async fn a_client_without_stream_is_denied(t) {
    let _primary = t.primary().await?;
    let mut c = t.client().await?;
    c.election_id = Some(t.id(500));
    c.sets(Set::Verify, Some(program::config()), DENIED).await?;
}

async fn an_unspecified_action_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::Unspecified, Some(program::config()), INVALID).await?;
}

async fn verify_without_config_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::Verify, None, INVALID).await?;
}

async fn verify_and_save_without_config_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::VerifyAndSave, None, INVALID).await?;
}

async fn verify_and_commit_without_config_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::VerifyAndCommit, None, INVALID).await?;
}

async fn verify_of_what_cannot_be_realized_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::Verify, Some(broken()), INVALID).await?;
}

async fn verify_and_save_of_what_cannot_be_realized_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::VerifyAndSave, Some(broken()), INVALID).await?;
}

async fn verify_and_commit_of_what_cannot_be_realized_is_invalid_and_changes_nothing(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.sets(Set::VerifyAndCommit, Some(broken()), INVALID).await?;
    same(c.entries(all_of("exact_table")).await?.len(), 1, "entries")?;
}

async fn a_p4info_that_does_not_fit_the_device_config_is_invalid(t) {
    let mut c = t.primary().await?;
    let mut config = program::config();
    let table = config.p4info.as_mut().and_then(|info| info.tables.first_mut());
    if let Some(preamble) = table.and_then(|table| table.preamble.as_mut()) {
        preamble.name = "ingress.no_such_table".into();
    }
    c.sets(Set::Verify, Some(config), INVALID).await?;
}

async fn an_empty_p4info_beside_a_program_names_nothing(t) {
    let mut c = t.primary().await?;
    let config = ForwardingPipelineConfig { p4info: Some(Default::default()), ..program::config() };
    // The server may accept or refuse an empty P4Info, but must stay usable.
    c.sets(Set::VerifyAndCommit, Some(config), [OK, INVALID]).await?;
    c.commit().await?;
}

async fn a_config_without_p4info_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::VerifyAndCommit, Some(ForwardingPipelineConfig { p4info: None, ..program::config() }), INVALID).await?;
}

async fn verify_changes_neither_config_nor_state(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    let other = ForwardingPipelineConfig { cookie: None, ..program::config() };
    c.sets(Set::Verify, Some(other), OK).await?;
    same(c.entries(all_of("exact_table")).await?.len(), 1, "entries")?;
    let found = c.pipeline(ResponseType::CookieOnly).await?.unwrap_or_default();
    same(found.cookie, program::config().cookie, "cookie")?;
}

async fn verify_and_commit_clears_the_forwarding_state(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.insert(multicast(1, vec![replica(1, 1)]), OK).await?;
    c.insert(member("profile", 1, 1), OK).await?;
    c.commit().await?;
    same(c.entries(all_of("exact_table")).await?, vec![], "entries")?;
    c.reads(multicast(0, vec![]), vec![]).await?;
    c.reads(ActionProfileMember::default(), vec![]).await?;
}

async fn verify_and_commit_clears_counters(t) {
    let mut c = t.primary().await?;
    c.modify(counter("cells_counter", Some(1), Some(counted(5, 6))), OK).await?;
    c.commit().await?;
    let zero = counter("cells_counter", Some(1), Some(counted(0, 0)));
    c.reads_back(counter("cells_counter", Some(1), None), zero).await?;
}

async fn commit_without_a_saved_config_is_not_found(t) {
    let mut c = t.primary().await?;
    c.sets(Set::Commit, None, NOT_FOUND).await?;
}

async fn commit_with_a_config_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::VerifyAndSave, Some(program::config()), OK).await?;
    c.sets(Set::Commit, Some(program::config()), INVALID).await?;
    c.commit().await?;
}

async fn a_saved_config_is_committed_once(t) {
    let mut c = t.primary().await?;
    c.sets(Set::VerifyAndSave, Some(program::config()), OK).await?;
    c.sets(Set::Commit, None, OK).await?;
    c.sets(Set::Commit, None, NOT_FOUND).await?;
}

async fn a_saved_config_leaves_packets_alone_until_commit(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("keyless_table", mark(5)), OK).await?;
    c.marks(Walk::Keyless, Frame::default(), 5).await?;
    c.sets(Set::VerifyAndSave, Some(program::config()), OK).await?;
    c.marks(Walk::Keyless, Frame::default(), 5).await?;
    c.sets(Set::Commit, None, OK).await?;
    c.marks(Walk::Keyless, Frame::default(), 0).await?;
}

async fn writes_after_save_are_those_of_the_new_config(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.sets(Set::VerifyAndSave, Some(program::config()), OK).await?;
    c.insert(exact_entry(2, 6), OK).await?;
    c.sets(Set::Commit, None, OK).await?;
    let a = |value| Frame { a: value, ..Frame::default() };
    c.marks(Walk::Exact, a(2), 6).await?;
    c.marks(Walk::Exact, a(1), 0).await?;
}

async fn verify_and_commit_replaces_a_saved_config(t) {
    let mut c = t.primary().await?;
    c.sets(Set::VerifyAndSave, Some(program::config()), OK).await?;
    c.commit().await?;
    c.sets(Set::Commit, None, NOT_FOUND).await?;
}

async fn reconcile_and_commit_keeps_the_forwarding_state(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.insert(member("profile", 3, 7), OK).await?;
    c.insert(multicast(4, vec![replica(1, 1)]), OK).await?;
    c.sets(Set::ReconcileAndCommit, Some(program::config()), Optional(OK)).await?;
    same(c.entries(all_of("exact_table")).await?.len(), 1, "entries")?;
    c.reads_back(ActionProfileMember::default(), member("profile", 3, 7)).await?;
    c.reads_back(multicast(0, vec![]), multicast(4, vec![replica(1, 1)])).await?;
}

async fn reconcile_and_commit_before_any_config_is_a_commit(t) {
    t.before_any_pipeline().await?;
    let mut c = t.elected(100).await?;
    c.sets(Set::ReconcileAndCommit, Some(program::config()), OK).await?;
    c.insert(exact_entry(1, 1), OK).await?;
}

async fn reconcile_and_commit_without_config_is_invalid(t) {
    let mut c = t.primary().await?;
    c.sets(Set::ReconcileAndCommit, None, Optional(INVALID)).await?;
}

async fn reconcile_and_commit_refuses_what_the_state_does_not_fit(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    let mut config = program::config();
    if let Some(info) = &mut config.p4info {
        let table = id("exact_table");
        info.tables.retain(|t| t.preamble.as_ref().is_none_or(|p| p.id != table));
        info.direct_counters.retain(|o| o.direct_table_id != table);
        info.direct_meters.retain(|o| o.direct_table_id != table);
    }
    c.sets(Set::ReconcileAndCommit, Some(config), Optional(INVALID)).await?;
    same(c.entries(all_of("exact_table")).await?.len(), 1, "entries")?;
}

async fn a_config_above_four_megabytes_is_not_refused_for_its_size(t) {
    let mut c = t.primary().await?;
    let mut config = program::config();
    let mut padded = config.p4_device_config.to_vec();
    padded.resize(padded.len() + (4 << 20), b' ');
    config.p4_device_config = padded.into();
    c.sets(Set::VerifyAndCommit, Some(config), OK).await?;
    c.commit().await?;
}

}
