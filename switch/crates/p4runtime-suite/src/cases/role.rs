// SPDX-License-Identifier: Apache-2.0
//! Tests roles: the arbitration and the rights of each role. The specification leaves the format of a role's
//! configuration to server and client. Servers that do not know this project's format
//! (sluice.p4runtime.v1.RoleConfig) answer INVALID_ARGUMENT.

use prost::Message;
use sluice_p4runtime::ROLE_CONFIG_TYPE;
use sluice_p4runtime::proto::role::{PacketFilter, RoleConfig};

use super::prelude::*;
use crate::bench::{Bench, Client};
use crate::outcome::Outcome;

fn packed(config: &RoleConfig) -> prost_types::Any {
    prost_types::Any {
        type_url: format!("type.googleapis.com/{ROLE_CONFIG_TYPE}"),
        value: config.encode_to_vec(),
    }
}

/// Returns the primary of a role with this configuration. Skips the case if the server does not know the format.
async fn configured(t: &Bench, config: &RoleConfig) -> Outcome<Client> {
    let mut c = t.client().await?;
    c.role = t.role("configured");
    c.role_config = Some(packed(config));
    c.send_arbitration(1).await?;
    match c.told().await {
        Ok(told) if told.code() == OK => Ok(c),
        _ => Err(Failure::Skipped(
            "the server has another scheme of role configurations, or none".into(),
        )),
    }
}

section! { "Role Config";

async fn each_role_has_a_primary_of_its_own(t) {
    let mut first = t.primary().await?;
    let mut second = t.elected_for(&t.role("a"), 1).await?;
    first.is_quiet().await?;
    first.insert(exact_entry(1, 1), OK).await?;
    second.insert(exact_entry(2, 2), OK).await?;
}

async fn notifications_name_the_role(t) {
    let role = t.role("a");
    let mut c = t.elected_for(&role, 1).await?;
    let told = c.is_told(2, OK).await?;
    same(told.0.role.map(|role| role.name), Some(role), "the role")?;
}

async fn the_same_election_id_may_be_used_in_two_roles(t) {
    let _first = t.elected_for(&t.role("a"), 1).await?;
    let _second = t.elected_for(&t.role("b"), 1).await?;
}

async fn a_takeover_in_one_role_is_not_told_to_another(t) {
    let mut other = t.elected_for(&t.role("a"), 1).await?;
    let _first = t.elected_for(&t.role("b"), 1).await?;
    let _second = t.elected_for(&t.role("b"), 2).await?;
    other.is_quiet().await?;
}

async fn changing_the_role_ends_the_stream_with_failed_precondition(t) {
    let mut c = t.elected_for(&t.role("a"), 1).await?;
    c.role = t.role("b");
    c.send_arbitration(2).await?;
    same(c.ended().await?, PRECONDITION, "the stream's end")?;
}

async fn a_write_that_names_an_unknown_role_is_not_found(t) {
    let mut c = t.primary().await?;
    c.role = t.role("nobody");
    c.write_refused(vec![insert(exact_entry(1, 1))], NOT_FOUND).await?;
}

async fn a_write_with_another_roles_election_id_is_denied(t) {
    let _first = t.primary().await?;
    let mut second = t.elected_for(&t.role("a"), 1).await?;
    second.role = String::new();
    second.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
}

async fn a_role_without_configuration_may_do_everything(t) {
    let _primary = t.primary().await?;
    let mut c = t.elected_for(&t.role("a"), 1).await?;
    c.commit().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    c.insert(multicast(1, vec![replica(1, 1)]), OK).await?;
}

async fn a_configuration_of_an_unknown_scheme_is_invalid(t) {
    let mut c = t.client().await?;
    c.role = t.role("a");
    c.role_config = Some(prost_types::Any { type_url: "type.googleapis.com/no.such.Scheme".into(), value: vec![] });
    c.send_arbitration(1).await?;
    same(c.ended().await?, INVALID, "the stream's end")?;
}

async fn an_undecodable_configuration_is_invalid(t) {
    let mut c = t.client().await?;
    c.role = t.role("a");
    c.role_config = Some(prost_types::Any { value: vec![0xff, 0xff], ..packed(&RoleConfig::default()) });
    c.send_arbitration(1).await?;
    same(c.ended().await?, INVALID, "the stream's end")?;
}

async fn the_configuration_comes_with_notifications(t) {
    let config = RoleConfig { p4_ids: vec![id("exact_table")], ..Default::default() };
    let c = configured(t, &config).await?;
    let mut backup = t.client().await?;
    backup.role = c.role.clone();
    backup.send_arbitration(0).await?;
    let told = backup.hears(EXISTS).await?;
    same(told.0.role.and_then(|role| role.config), Some(packed(&config)), "the backup's notice")?;
}

async fn a_new_configuration_is_told_to_all_of_the_role(t) {
    let mut c = configured(t, &RoleConfig::default()).await?;
    let mut backup = t.client().await?;
    backup.role = c.role.clone();
    backup.send_arbitration(0).await?;
    backup.hears(EXISTS).await?;
    let config = packed(&RoleConfig { replication: true, ..Default::default() });
    c.role_config = Some(config.clone());
    c.is_told(1, OK).await?;
    same(backup.hears(EXISTS).await?.0.role.and_then(|role| role.config), Some(config), "the backup's notice")?;
}

async fn an_update_outside_of_the_role_is_denied(t) {
    let _primary = t.primary().await?;
    let config = RoleConfig { p4_ids: vec![id("exact_table"), id("profile")], ..Default::default() };
    let mut c = configured(t, &config).await?;
    let codes = c.codes(vec![
        insert(exact_entry(1, 1)),
        insert(lpm_entry(1 << 24, 8, 1)),
        insert(member("profile", 1, 1)),
        insert(multicast(1, vec![replica(1, 1)])),
        modify(counter("cells_counter", Some(0), Some(counted(0, 0)))),
    ]).await?;
    same(codes, vec![OK, DENIED, OK, DENIED, DENIED], "codes")?;
}

async fn direct_resources_go_with_their_table(t) {
    let _primary = t.primary().await?;
    let mut c = configured(t, &RoleConfig { p4_ids: vec![id("lpm_table")], ..Default::default() }).await?;
    let entry = DirectCounterEntry { table_entry: Some(key_of(&exact_entry(1, 1))), data: None };
    c.modify(entry, DENIED).await?;
}

async fn a_role_without_the_pipeline_cannot_set_it(t) {
    let _primary = t.primary().await?;
    let mut c = configured(t, &RoleConfig::default()).await?;
    c.sets(Set::VerifyAndCommit, Some(program::config()), DENIED).await?;
    let mut c = configured_with_pipeline(t).await?;
    c.commit().await?;
}

async fn packets_out_outside_of_the_role_are_dropped(t) {
    let mut primary = t.primary().await?;
    primary.needs_packets()?;
    let walk = PacketFilter { metadata_id: 2, values: vec![vec![Walk::Exact as u8]] };
    let mut c = configured(t, &RoleConfig { packet_out: Some(walk), ..Default::default() }).await?;
    c.packet_out(Frame::default().out(Walk::Lpm)).await?;
    let code = c.next_of(|message| match message {
        Response::Error(error) => Some(error.canonical_code),
        _ => None,
    }).await?;
    same(Code::from(code), DENIED, "the stream error")?;
    c.packet_out(Frame { src: 7, ..Frame::default() }.out(Walk::Exact)).await?;
    primary.next_of(|message| matches!(message, Response::Packet(_)).then_some(())).await?;
}

async fn packets_in_go_by_the_roles_filter(t) {
    let mut primary = t.primary().await?;
    primary.needs_packets()?;
    primary.insert(exact_entry(1, 5), OK).await?;
    let mark_5 = PacketFilter { metadata_id: 2, values: vec![vec![5]] };
    let mut filtered = configured(t, &RoleConfig { packet_in: Some(mark_5), ..Default::default() }).await?;
    primary.marks(Walk::Exact, Frame::default(), 0).await?;
    primary.marks(Walk::Exact, Frame { a: 1, ..Frame::default() }, 5).await?;
    let packet = filtered.next_of(|message| match message {
        Response::Packet(packet) => Some(packet),
        _ => None,
    }).await?;
    same(&packet.payload[..], &Frame { a: 1, ..Frame::default() }.bytes()[..], "the packet")?;
    filtered.is_quiet().await?;
}

async fn a_role_that_gets_no_packets_gets_none(t) {
    let mut primary = t.primary().await?;
    primary.needs_packets()?;
    let mut c = configured(t, &RoleConfig::default()).await?;
    primary.walk(Walk::Exact, Frame::default()).await?;
    c.is_quiet().await?;
}

async fn digests_go_to_the_roles_that_have_them(t) {
    let primary = t.primary().await?;
    primary.needs_packets()?;
    let mut c = configured(t, &RoleConfig { p4_ids: vec![id("learned_t")], ..Default::default() }).await?;
    let mut other = t.client().await?;
    other.role = t.role("other");
    other.role_config = Some(packed(&RoleConfig::default()));
    other.is_told(1, OK).await?;
    c.insert(digest(0, 1, 0), OK).await?;
    primary.packet_out(Frame::default().out(Walk::Learn)).await?;
    c.next_of(|message| matches!(message, Response::Digest(_)).then_some(())).await?;
    other.is_quiet().await?;
}

async fn a_read_that_names_a_role_gives_what_belongs_to_it(t) {
    let mut primary = t.primary().await?;
    primary.insert(exact_entry(1, 1), OK).await?;
    primary.insert(lpm_entry(1 << 24, 8, 1), OK).await?;
    let mut c = configured(t, &RoleConfig { p4_ids: vec![id("lpm_table")], ..Default::default() }).await?;
    let tables: Vec<_> = c.entries(TableEntry::default()).await?.iter().map(|entry| entry.table_id).collect();
    same(tables, vec![id("lpm_table")], "tables")?;
}

async fn annotations_restrict_only_roles_whose_configuration_says_so(t) {
    let _primary = t.primary().await?;
    let acl = |b| entry("acl_table", vec![exact(1, b)], mark(1));
    let mut free = t.elected_for(&t.role("free"), 1).await?;
    free.insert(acl(1), OK).await?;
    let mut bound = configured(t, &RoleConfig { by_annotation: true, ..Default::default() }).await?;
    bound.insert(acl(2), DENIED).await?;
    bound.insert(exact_entry(1, 1), OK).await?;
}

}

async fn configured_with_pipeline(t: &Bench) -> Outcome<Client> {
    let mut c = t.client().await?;
    c.role = t.role("pipeline");
    c.role_config = Some(packed(&RoleConfig {
        pipeline: true,
        ..Default::default()
    }));
    c.is_told(1, OK).await?;
    Ok(c)
}
