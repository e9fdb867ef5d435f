// SPDX-License-Identifier: Apache-2.0
//! Translates table entries (P4Runtime specification, "TableEntry").

use sluice_tables::{DefaultEntry, DefaultSpec, Entry, EntrySpec, KeyField, Transaction};

use super::direct::{self, DirectWrites};
use super::requested::RequestedFields;
use super::{Context, Operation, action, key};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::{TableEntry, table_entry::IdleTimeout};
use crate::schema::TableSchema;

/// Applies an update of a table entry to a transaction. Adds the writes of the entry's direct resources to `direct`.
pub(crate) fn apply(
    context: &Context<'_>,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    entry: &TableEntry,
    direct: &mut DirectWrites,
) -> UpdateResult {
    let table = context.schema.table(entry.table_id)?;
    let in_table = |error: UpdateError| error.of(&format!("table {:?}", table.name));
    if operation != Operation::Delete {
        check_idle_timeout(table, entry)?;
    }
    let result = if entry.is_default_action {
        apply_default(context, transaction, operation, table, entry, direct)
    } else {
        apply_entry(context, transaction, operation, table, entry, direct)
    };
    result.map_err(in_table)
}

fn apply_entry(
    context: &Context<'_>,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    table: &TableSchema,
    entry: &TableEntry,
    direct: &mut DirectWrites,
) -> UpdateResult {
    if table.fields.is_empty() {
        return Err(UpdateError::invalid(
            "the table has no key, so it can have no entries except the default entry",
        ));
    }
    let (key, priority) = key::decode_with_priority(table, entry)?;
    if operation == Operation::Delete {
        if table.is_const {
            return Err(UpdateError::permission_denied(
                "the table's entries are constant",
            ));
        }
        return Ok(transaction.delete(table.id, &key, priority)?);
    }
    check_fields(entry)?;
    if table.is_const {
        return modify_constant(transaction, operation, table, entry, &key, direct);
    }
    let action = match (&entry.action, operation) {
        (Some(action), _) => action::decode(context, table, action, false)?,
        (None, Operation::Modify) => {
            let stored = transaction.entry(table.id, &key, priority)?;
            stored.spec(context.program, context.table(table)).action
        }
        (None, _) => return Err(UpdateError::invalid("an entry needs an action")),
    };
    let spec = EntrySpec {
        key: key.clone(),
        priority,
        action,
        idle_timeout_ns: entry.idle_timeout_ns as u64,
        controller_metadata: entry.controller_metadata,
        metadata: entry.metadata.clone(),
    };
    match operation {
        Operation::Insert => transaction.insert(table.id, spec)?,
        _ => transaction.modify(table.id, spec)?,
    }
    let stored = transaction.entry(table.id, &key, priority)?;
    direct.of_entry(operation, table, entry, stored.into())
}

/// Updates an entry of a constant table. The client can change only the entry's direct resources.
fn modify_constant(
    transaction: &mut Transaction<'_>,
    operation: Operation,
    table: &TableSchema,
    entry: &TableEntry,
    key: &[KeyField],
    direct: &mut DirectWrites,
) -> UpdateResult {
    if operation != Operation::Modify || entry.action.is_some() {
        return Err(UpdateError::permission_denied(
            "the table's entries are constant",
        ));
    }
    let stored = transaction.entry(table.id, key, entry.priority)?;
    direct.of_entry(operation, table, entry, stored.into())
}

fn apply_default(
    context: &Context<'_>,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    table: &TableSchema,
    entry: &TableEntry,
    direct: &mut DirectWrites,
) -> UpdateResult {
    operation.modify_only("default entry")?;
    if !entry.r#match.is_empty() || entry.priority != 0 {
        return Err(UpdateError::invalid(
            "the default entry must have neither a match nor a priority",
        ));
    }
    check_fields(entry)?;
    if table.const_default {
        return Err(UpdateError::permission_denied(
            "the table's default entry is constant",
        ));
    }
    let action = match &entry.action {
        Some(_) if table.implementation.is_some() => {
            let message =
                "the table has an action profile, so its default action is always NoAction";
            return Err(UpdateError::unimplemented(message));
        }
        Some(given) => Some(action::decode(context, table, given, true)?),
        None => None,
    };
    // Without an action in the update, the default entry returns to the program's action and metadata.
    let spec = action.map(|action| DefaultSpec {
        action,
        controller_metadata: entry.controller_metadata,
        metadata: entry.metadata.clone(),
    });
    transaction.set_default(table.id, spec)?;
    let stored = transaction.default_entry(table.id)?;
    direct.of_entry(operation, table, entry, stored.into())
}

/// Checks the rules on idle timeouts. The texts and the order of the errors are those of p4lang's PI, because some
/// clients compare error texts. One rule differs: PI accepts a timeout of a default entry if the table supports
/// timeouts. This function refuses it, as the specification ("Idle-timeout") requires.
fn check_idle_timeout(table: &TableSchema, entry: &TableEntry) -> UpdateResult {
    let refused = match entry.idle_timeout_ns {
        _ if entry.time_since_last_hit.is_some() => {
            "has_time_since_last_hit must not be set in WriteRequest"
        }
        0 => return Ok(()),
        ..0 => "idle_timeout_ns must be a positive value",
        _ if !table.idle_timeout => {
            "idle_timeout_ns must be set to 0 for tables which do not support idle timeout"
        }
        _ if entry.is_default_action => "idle_timeout_ns must be set to 0 for default entries",
        _ => return Ok(()),
    };
    Err(UpdateError::invalid(refused))
}

/// Checks the rules on fields that apply to every operation.
fn check_fields(entry: &TableEntry) -> UpdateResult {
    if entry.is_const {
        return Err(UpdateError::invalid("is_const cannot be written"));
    }
    Ok(())
}

/// Encodes an entry as a client would write it, with the requested optional fields. `now_us` is the switch's time.
pub(crate) fn encode(
    context: &Context<'_>,
    table_id: u32,
    table: &TableSchema,
    entry: &Entry,
    requested: RequestedFields,
    now_us: u64,
) -> Option<TableEntry> {
    let spec = entry.spec(context.program, context.table(table));
    let since_hit = || {
        let last_hit_us = entry.state().map_or(now_us, |state| state.last_hit_us());
        now_us.saturating_sub(last_hit_us).saturating_mul(1000)
    };
    Some(TableEntry {
        table_id,
        r#match: key::encode(&table.fields, &spec.key),
        action: Some(action::encode(context, table, &spec.action)?),
        priority: spec.priority,
        controller_metadata: spec.controller_metadata,
        metadata: spec.metadata,
        is_const: entry.is_const(),
        idle_timeout_ns: i64::try_from(spec.idle_timeout_ns).unwrap_or(i64::MAX),
        time_since_last_hit: (requested.last_hit && table.idle_timeout).then(|| IdleTimeout {
            elapsed_ns: i64::try_from(since_hit()).unwrap_or(i64::MAX),
        }),
        ..direct::encode(table, entry.state(), entry.meter(), requested)
    })
}

/// Encodes a table's default entry. If neither the program nor a client has set a default action, it is NoAction.
/// NoAction has no P4Info id, so the encoded entry then has no action.
pub(crate) fn encode_default(
    context: &Context<'_>,
    table_id: u32,
    table: &TableSchema,
    entry: &DefaultEntry,
    requested: RequestedFields,
) -> TableEntry {
    let action = entry.action(context.program);
    TableEntry {
        table_id,
        is_default_action: true,
        action: action.and_then(|action| action::encode(context, table, &action)),
        controller_metadata: entry.controller_metadata(),
        metadata: entry.metadata().to_vec(),
        ..direct::encode(table, Some(entry.state()), entry.meter(), requested)
    }
}

/// Returns whether clients can set the table's default action.
pub(crate) fn may_set_default(table: &TableSchema) -> bool {
    !table.const_default && table.implementation.is_none()
}
