// SPDX-License-Identifier: Apache-2.0
//! Translates members and groups of action profiles (P4Runtime specification, "ActionProfileMember &
//! ActionProfileGroup").

use sluice_tables::{GroupMember, GroupSpec, MemberSpec, Transaction};

use super::{Context, Operation, action};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::action_profile_group::{Member, member};
use crate::proto::v1::{ActionProfileGroup, ActionProfileMember};
use crate::schema::ProfileSchema;

/// Applies an update of a member.
pub(crate) fn apply_member(
    context: &Context<'_>,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    member: &ActionProfileMember,
) -> UpdateResult {
    let profile = context.schema.profile(member.action_profile_id)?;
    if member.member_id == 0 {
        return Err(UpdateError::invalid("member id 0 is not valid"));
    }
    if operation == Operation::Delete {
        return Ok(transaction.member_delete(profile.id, member.member_id)?);
    }
    let Some(call) = &member.action else {
        return Err(UpdateError::invalid("a member needs an action"));
    };
    let table = context.schema.table(profile.table)?;
    let call = action::decode_call(context, table, call, false)?;
    let spec = MemberSpec {
        id: member.member_id,
        call,
    };
    match operation {
        Operation::Insert => transaction.member_insert(profile.id, &spec)?,
        _ => transaction.member_modify(profile.id, &spec)?,
    }
    Ok(())
}

/// Encodes a member.
pub(crate) fn encode_member(
    context: &Context<'_>,
    profile_id: u32,
    profile: &ProfileSchema,
    spec: &MemberSpec,
) -> Option<ActionProfileMember> {
    let table = context.schema.tables.get(&profile.table)?;
    Some(ActionProfileMember {
        action_profile_id: profile_id,
        member_id: spec.id,
        action: Some(action::encode_call(context, table, &spec.call)?),
    })
}

/// Applies an update of a group.
pub(crate) fn apply_group(
    context: &Context<'_>,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    group: &ActionProfileGroup,
) -> UpdateResult {
    let profile = context.schema.profile(group.action_profile_id)?;
    if !profile.with_selector {
        let message = format!(
            "action profile {:?} has no selector, so it cannot have groups",
            profile.name
        );
        return Err(UpdateError::invalid(message));
    }
    if group.group_id == 0 {
        return Err(UpdateError::invalid("group id 0 is not valid"));
    }
    if operation == Operation::Delete {
        return Ok(transaction.group_delete(profile.id, group.group_id)?);
    }
    let spec = decode_group(context, profile, group)?;
    match operation {
        Operation::Insert => transaction.group_insert(profile.id, &spec)?,
        _ => transaction.group_modify(profile.id, &spec)?,
    }
    Ok(())
}

fn decode_group(
    context: &Context<'_>,
    profile: &ProfileSchema,
    group: &ActionProfileGroup,
) -> UpdateResult<GroupSpec> {
    let most = profile.max_group_size;
    let max_size = match u32::try_from(group.max_size) {
        // Size 0 means that the client leaves the size to the server, although the specification requires a size.
        // The server uses the largest size.
        Ok(0) => 0,
        Ok(size) if most == 0 || size <= most => size,
        _ => {
            let message = format!("max_size is {}; the maximum is {most}", group.max_size);
            return Err(UpdateError::invalid(message));
        }
    };
    let mut members: Vec<GroupMember> = Vec::with_capacity(group.members.len());
    for member in &group.members {
        if members.iter().any(|other| other.member == member.member_id) {
            let message = format!("member {} is in the group twice", member.member_id);
            return Err(UpdateError::invalid(message));
        }
        members.push(GroupMember {
            member: member.member_id,
            weight: action::weight(profile, member.weight)?,
            watch_port: action::watch_port(context, action::group_watch(&member.watch_kind))?,
        });
    }
    let limit = if max_size == 0 { most } else { max_size };
    action::check_size(profile, members.iter().map(|member| member.weight), limit)?;
    Ok(GroupSpec {
        id: group.group_id,
        max_size,
        members,
    })
}

/// Encodes a group.
pub(crate) fn encode_group(
    context: &Context<'_>,
    profile_id: u32,
    profile: &ProfileSchema,
    spec: &GroupSpec,
) -> ActionProfileGroup {
    let member = |group_member: &GroupMember| Member {
        member_id: group_member.member,
        weight: action::encode_weight(profile, group_member.weight),
        watch_kind: group_member
            .watch_port
            .map(|port| member::WatchKind::WatchPort(context.schema.ports.encode(port))),
    };
    ActionProfileGroup {
        action_profile_id: profile_id,
        group_id: spec.id,
        members: spec.members.iter().map(member).collect(),
        max_size: spec.max_size as i32,
    }
}
