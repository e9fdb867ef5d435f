// SPDX-License-Identifier: Apache-2.0
//! Translates the actions of entries, members and one-shot action sets (P4Runtime specification, "Action
//! Specification").

use sluice_tables::{ActionCall, EntryAction, OneShotMember};

use super::Context;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::action::Param;
use crate::proto::v1::action_profile_action_set::{ActionSelectionMode, SizeSemantics};
use crate::proto::v1::{
    Action, ActionProfileAction, ActionProfileActionSet, TableAction, action_profile_action,
    action_profile_group::member, table_action,
};
use crate::schema::names;
use crate::schema::{ParamSchema, ProfileSchema, TableSchema};

/// Decodes an action call of a table, with its parameters.
pub(crate) fn decode_call(
    context: &Context<'_>,
    table: &TableSchema,
    action: &Action,
    as_default: bool,
) -> UpdateResult<ActionCall> {
    let id = table.action(action.action_id, as_default)?;
    let schema = context.schema.action(action.action_id)?;
    if let Some(extra) = action
        .params
        .iter()
        .find(|p| schema.params.iter().all(|param| param.id != p.param_id))
    {
        let message = format!(
            "action {:?} has no parameter with id {}",
            schema.name, extra.param_id
        );
        return Err(UpdateError::invalid(message));
    }
    let mut params = Vec::with_capacity(schema.params.len());
    for param in &schema.params {
        let mut given = action
            .params
            .iter()
            .filter(|given| given.param_id == param.id);
        let what = || format!("parameter {:?} of action {:?}", param.name, schema.name);
        let (Some(value), None) = (given.next(), given.next()) else {
            return Err(UpdateError::invalid(format!(
                "{} must be given exactly once",
                what()
            )));
        };
        if param.unused {
            continue;
        }
        let value = names::decode(param.names.as_ref(), &value.value, param.width)
            .map_err(|error| error.of(&what()))?;
        params.push(value);
    }
    Ok(ActionCall { action: id, params })
}

/// Encodes an action call of a table.
pub(crate) fn encode_call(
    context: &Context<'_>,
    table: &TableSchema,
    call: &ActionCall,
) -> Option<Action> {
    // Compares names, because the program has a separate copy of an action for each table that uses it.
    let name = &context.program.actions.get(call.action.index())?.name;
    let mut known = table
        .actions
        .keys()
        .filter_map(|id| Some((*id, context.schema.actions.get(id)?)));
    let (action_id, schema) = known.find(|(_, schema)| schema.name == *name)?;
    let mut values = call.params.iter();
    let mut value = |param: &ParamSchema| {
        let number = if param.unused {
            &[0]
        } else {
            values.next()?.as_slice()
        };
        Some(names::encode(param.names.as_ref(), number))
    };
    let params = schema.params.iter().map_while(|param| {
        let value = value(param)?;
        Some(Param {
            param_id: param.id,
            value,
        })
    });
    let params = params.collect();
    Some(Action { action_id, params })
}

/// Decodes a table entry's action.
pub(crate) fn decode(
    context: &Context<'_>,
    table: &TableSchema,
    action: &TableAction,
    as_default: bool,
) -> UpdateResult<EntryAction> {
    use table_action::Type;
    let Some(action) = &action.r#type else {
        return Err(UpdateError::invalid(
            "the field `type` of the action is not set",
        ));
    };
    let Some(profile) = table.implementation else {
        return match action {
            Type::Action(action) => {
                decode_call(context, table, action, as_default).map(EntryAction::Direct)
            }
            _ => Err(UpdateError::invalid(
                "the table has no action profile: write an action, not a member or a group",
            )),
        };
    };
    let profile = context.schema.profile(profile)?;
    match action {
        Type::Action(_) => Err(UpdateError::invalid(
            "the table has an action profile: write a member, a group or a one-shot action set, not an action",
        )),
        Type::ActionProfileMemberId(id) => Ok(EntryAction::Member(*id)),
        _ if !profile.with_selector => Err(UpdateError::invalid(
            "the table's action profile has no selector, so an entry needs a member",
        )),
        Type::ActionProfileGroupId(id) => Ok(EntryAction::Group(*id)),
        Type::ActionProfileActionSet(set) => decode_set(context, table, profile, set),
    }
}

fn decode_set(
    context: &Context<'_>,
    table: &TableSchema,
    profile: &ProfileSchema,
    set: &ActionProfileActionSet,
) -> UpdateResult<EntryAction> {
    let mode = set.action_selection_mode();
    let size = set.size_semantics();
    if mode != ActionSelectionMode::DefaultModeDeterminedByActionSelector
        && mode != ActionSelectionMode::Hash
        || size == SizeSemantics::SumOfMembers && !profile.size_is_members
        || size == SizeSemantics::SumOfWeights && profile.size_is_members
    {
        return Err(UpdateError::unimplemented(
            "action_selection_mode and size_semantics of a group are not implemented",
        ));
    }
    let mut members = Vec::with_capacity(set.action_profile_actions.len());
    for action in &set.action_profile_actions {
        let Some(call) = &action.action else {
            return Err(UpdateError::invalid(
                "a one-shot action set has an element without an action",
            ));
        };
        let watch = action.watch_kind.as_ref().map(|watch| match watch {
            action_profile_action::WatchKind::Watch(_) => None,
            action_profile_action::WatchKind::WatchPort(port) => Some(port.as_slice()),
        });
        members.push(OneShotMember {
            call: decode_call(context, table, call, false)?,
            weight: weight(profile, action.weight)?,
            watch_port: watch_port(context, watch)?,
        });
    }
    let weights = members.iter().map(|member| member.weight);
    check_size(profile, weights, profile.max_group_size)?;
    Ok(EntryAction::OneShot(members))
}

/// Checks a member's weight.
pub(crate) fn weight(profile: &ProfileSchema, weight: i32) -> UpdateResult<u32> {
    match (u32::try_from(weight), profile.weights_disallowed) {
        (Ok(0), true) => Ok(1),
        (Ok(weight), false) if weight > 0 => Ok(weight),
        _ => {
            let name = &profile.name;
            Err(UpdateError::invalid(format!(
                "weight {weight} of a member is not valid in action profile {name:?}"
            )))
        }
    }
}

/// Encodes a member's weight.
pub(crate) fn encode_weight(profile: &ProfileSchema, weight: u32) -> i32 {
    if profile.weights_disallowed {
        0
    } else {
        weight as i32
    }
}

/// Checks a group's size against a limit; limit 0 means no limit. The profile defines whether the size is the
/// number of members or the sum of their weights.
pub(crate) fn check_size(
    profile: &ProfileSchema,
    weights: impl Iterator<Item = u32>,
    limit: u32,
) -> UpdateResult {
    let mut size = 0u64;
    for weight in weights {
        size += if profile.size_is_members {
            1
        } else {
            u64::from(weight)
        };
        if profile.max_member_weight > 0 && weight > profile.max_member_weight {
            let most = profile.max_member_weight;
            return Err(UpdateError::invalid(format!(
                "a member has weight {weight}; the maximum is {most}"
            )));
        }
    }
    if limit > 0 && size > u64::from(limit) {
        return Err(UpdateError::invalid(format!(
            "the group has size {size}; the maximum is {limit}"
        )));
    }
    Ok(())
}

/// Decodes a watch port, which must be a port of the device. `watch` is `None` if the client gave no watch port.
/// `Some(None)` means that the client used the deprecated field `watch`, which is refused.
pub(crate) fn watch_port(
    context: &Context<'_>,
    watch: Option<Option<&[u8]>>,
) -> UpdateResult<Option<u32>> {
    match watch {
        None => Ok(None),
        Some(None) => Err(UpdateError::unimplemented(
            "\"watch\" is deprecated: use \"watch_port\"",
        )),
        Some(Some([])) => Ok(None),
        Some(Some(port)) => {
            let ports = &context.schema.ports;
            let port = ports.decode(port).map_err(|e| e.of("watch port"))?;
            if !(context.port_exists)(port) {
                return Err(UpdateError::invalid(format!(
                    "watch port {port} does not exist"
                )));
            }
            Ok(Some(port))
        }
    }
}

/// Returns the watch port of a group's member, in the form that [`watch_port`] takes.
pub(crate) fn group_watch(watch: &Option<member::WatchKind>) -> Option<Option<&[u8]>> {
    watch.as_ref().map(|watch| match watch {
        member::WatchKind::Watch(_) => None,
        member::WatchKind::WatchPort(port) => Some(port.as_slice()),
    })
}

/// Encodes a table entry's action.
pub(crate) fn encode(
    context: &Context<'_>,
    table: &TableSchema,
    action: &EntryAction,
) -> Option<TableAction> {
    use table_action::Type;
    let kind = match action {
        EntryAction::Direct(call) => Type::Action(encode_call(context, table, call)?),
        EntryAction::Member(id) => Type::ActionProfileMemberId(*id),
        EntryAction::Group(id) => Type::ActionProfileGroupId(*id),
        EntryAction::OneShot(members) => {
            let profile = context.schema.profiles.get(&table.implementation?)?;
            let member = |member: &OneShotMember| {
                Some(ActionProfileAction {
                    action: Some(encode_call(context, table, &member.call)?),
                    weight: encode_weight(profile, member.weight),
                    watch_kind: member.watch_port.map(|port| {
                        let port = context.schema.ports.encode(port);
                        action_profile_action::WatchKind::WatchPort(port)
                    }),
                })
            };
            Type::ActionProfileActionSet(ActionProfileActionSet {
                action_profile_actions: members.iter().map(member).collect::<Option<_>>()?,
                ..Default::default()
            })
        }
    };
    Some(TableAction { r#type: Some(kind) })
}
