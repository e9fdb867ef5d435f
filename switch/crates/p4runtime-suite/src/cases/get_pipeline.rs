// SPDX-License-Identifier: Apache-2.0
//! Tests GetForwardingPipelineConfig, which returns the pipeline that was set, or a part of it.

use sluice_p4runtime::proto::v1::get_forwarding_pipeline_config_request::ResponseType;

use super::prelude::*;

section! { "GetForwardingPipelineConfig RPC";

async fn before_any_config_it_is_unset(t) {
    t.before_any_pipeline().await?;
}

async fn before_any_config_reads_are_failed_precondition(t) {
    t.before_any_pipeline().await?;
    let mut c = t.client().await?;
    c.read_refused(TableEntry::default(), PRECONDITION).await?;
}

async fn before_any_config_writes_are_failed_precondition(t) {
    t.before_any_pipeline().await?;
    let mut c = t.elected(100).await?;
    c.write_refused(vec![insert(exact_entry(1, 1))], PRECONDITION).await?;
}

async fn before_any_config_permission_is_checked_first(t) {
    t.before_any_pipeline().await?;
    let mut c = t.client().await?;
    c.election_id = Some(t.id(7));
    c.write_refused(vec![insert(exact_entry(1, 1))], DENIED).await?;
}

async fn all_returns_what_was_set(t) {
    let mut c = t.primary().await?;
    let found = c.pipeline(ResponseType::All).await?;
    let found = found.ok_or_else(|| Failure::Failed("no config".into()))?;
    let set = program::config();
    same(found.cookie, set.cookie, "cookie")?;
    holds(found.p4info == set.p4info, "the p4info differs")?;
    // A server need not keep the device config.
    holds(found.p4_device_config.is_empty() || found.p4_device_config == set.p4_device_config,
          "the device config differs")?;
}

async fn cookie_only_returns_the_cookie_alone(t) {
    let mut c = t.primary().await?;
    let found = c.pipeline(ResponseType::CookieOnly).await?.unwrap_or_default();
    let cookie = program::config().cookie;
    same(found, ForwardingPipelineConfig { cookie, ..Default::default() }, "the config")?;
}

async fn p4info_and_cookie_leaves_the_device_config_out(t) {
    let mut c = t.primary().await?;
    let found = c.pipeline(ResponseType::P4infoAndCookie).await?.unwrap_or_default();
    holds(found.p4info == program::config().p4info, "the p4info differs")?;
    same(found.cookie, program::config().cookie, "cookie")?;
    holds(found.p4_device_config.is_empty(), "there is a device config")?;
}

async fn device_config_and_cookie_leaves_the_p4info_out(t) {
    let mut c = t.primary().await?;
    let found = c.pipeline(ResponseType::DeviceConfigAndCookie).await?.unwrap_or_default();
    holds(found.p4info.is_none(), "there is a p4info")?;
    same(found.cookie, program::config().cookie, "cookie")?;
}

async fn a_config_without_cookie_has_none(t) {
    let mut c = t.primary().await?;
    let bare = ForwardingPipelineConfig { cookie: None, ..program::config() };
    c.sets(Set::VerifyAndCommit, Some(bare), OK).await?;
    let found = c.pipeline(ResponseType::CookieOnly).await?.unwrap_or_default();
    same(found.cookie, None, "cookie")?;
}

async fn a_cookie_of_zero_is_a_cookie(t) {
    let mut c = t.primary().await?;
    let cookie = Some(forwarding_pipeline_config::Cookie { cookie: 0 });
    c.sets(Set::VerifyAndCommit, Some(ForwardingPipelineConfig { cookie, ..program::config() }), OK).await?;
    let found = c.pipeline(ResponseType::CookieOnly).await?.unwrap_or_default();
    same(found.cookie, cookie, "cookie")?;
}

async fn it_needs_no_election_id_and_no_stream(t) {
    t.primary().await?;
    let request = GetForwardingPipelineConfigRequest { device_id: t.device_id(), response_type: 0 };
    let found = t.rpc().await?.get_forwarding_pipeline_config(request).await?;
    holds(found.into_inner().config.is_some(), "no config")?;
}

async fn an_unknown_device_is_not_found(t) {
    let request = GetForwardingPipelineConfigRequest { device_id: t.device_id() + 1, response_type: 0 };
    let result = t.rpc().await?.get_forwarding_pipeline_config(request).await;
    same(result.err().map(|status| status.code()), Some(NOT_FOUND), "the status")?;
}

}
