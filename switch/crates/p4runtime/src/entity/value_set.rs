// SPDX-License-Identifier: Apache-2.0
//! Translates parser value sets (P4Runtime specification, "ValueSetEntry"). A value set always exists, so the only
//! update is to replace all its members.

use sluice_tables::{KeyField, Transaction};

use super::{Context, Operation, key};
use crate::error::UpdateResult;
use crate::proto::v1::{ValueSetEntry, ValueSetMember};
use crate::schema::{ValueSetSchema, unknown};

/// Applies an update of a value set.
pub(crate) fn apply(
    context: &Context<'_>,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    entry: &ValueSetEntry,
) -> UpdateResult {
    operation.modify_only("value set")?;
    let id = entry.value_set_id;
    let set = context
        .schema
        .value_sets
        .get(&id)
        .ok_or_else(|| unknown("value set", id))?;
    let members = entry
        .members
        .iter()
        .map(|member| key::decode(&set.fields, &member.r#match));
    Ok(transaction.value_set_modify(set.id, members.collect::<UpdateResult<_>>()?)?)
}

/// Encodes a value set.
pub(crate) fn encode(id: u32, set: &ValueSetSchema, members: &[Vec<KeyField>]) -> ValueSetEntry {
    let member = |member: &Vec<KeyField>| ValueSetMember {
        r#match: key::encode(&set.fields, member),
    };
    ValueSetEntry {
        value_set_id: id,
        members: members.iter().map(member).collect(),
    }
}
