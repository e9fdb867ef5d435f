// SPDX-License-Identifier: Apache-2.0
//! Translates direct counters and meters (P4Runtime specification, "Direct Resources").
//!
//! All versions of an entry share its direct counter and meter, so rolling back to an earlier version does not restore
//! them. A batch that is rolled back must nevertheless leave them unchanged. So writes are collected, and performed
//! after the commit. If the same batch has inserted the entry, a write is performed at once, because no packet can see
//! this entry before the commit.

use sluice_tables::{EntryState, Meter, MeterConfig as TableMeterConfig, Transaction};

use super::cell::{self, check_colors, decode_config, encode_colors, encode_config, reset_colors};
use super::key;
use super::requested::RequestedFields;
use super::stored_entry::StoredEntry;
use super::{Context, Operation};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::{
    CounterData, DirectCounterEntry, DirectMeterEntry, MeterConfig, MeterCounterData, TableEntry,
};
use crate::schema::TableSchema;

/// Writes to be performed after the commit.
#[derive(Default)]
pub(crate) struct DirectWrites(Vec<Write>);

enum Write {
    Counter(StoredEntry, u64, u64),
    Meter(StoredEntry, Option<TableMeterConfig>),
    Colors(StoredEntry),
}

impl Write {
    fn perform(&self) {
        match self {
            Self::Counter(owner, packets, bytes) => {
                if let Some(state) = owner.state() {
                    state.counter().set(*packets, *bytes);
                }
            }
            Self::Meter(owner, config) => {
                if let Some(meter) = owner.meter() {
                    meter.set_config(*config);
                }
            }
            Self::Colors(owner) => {
                owner.meter().into_iter().for_each(reset_colors);
            }
        }
    }
}

impl DirectWrites {
    /// Returns a savepoint for [`Self::rollback`].
    pub(crate) fn savepoint(&self) -> usize {
        self.0.len()
    }

    /// Drops the writes collected since the savepoint.
    pub(crate) fn rollback(&mut self, savepoint: usize) {
        self.0.truncate(savepoint);
    }

    /// Returns whether no write was collected.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Performs the collected writes.
    pub(crate) fn perform(self) {
        self.0.iter().for_each(Write::perform);
    }

    /// Collects the writes to direct resources that a table entry's update contains.
    pub(crate) fn of_entry(
        &mut self,
        operation: Operation,
        table: &TableSchema,
        given: &TableEntry,
        owner: StoredEntry,
    ) -> UpdateResult {
        let mut writes = Vec::with_capacity(3);
        if check_colors(given.meter_counter_data.as_ref())? {
            table.direct_meter.ok_or_else(no_meter)?;
            writes.push(Write::Colors(owner.clone()));
        }
        if let Some(data) = &given.counter_data {
            let (packets, bytes) = decode_counter(table, data)?;
            writes.push(Write::Counter(owner.clone(), packets, bytes));
        }
        match (&given.meter_config, table.direct_meter) {
            (Some(config), Some(kind)) => {
                writes.push(Write::Meter(owner, Some(decode_config(config, kind)?)));
            }
            (Some(_), None) => return Err(no_meter()),
            (None, Some(_)) => writes.push(Write::Meter(owner, None)),
            (None, None) => {}
        }
        if operation == Operation::Insert {
            writes.iter().for_each(Write::perform);
        } else {
            self.0.extend(writes);
        }
        Ok(())
    }

    /// Collects the write of a direct counter that a client sends as an entity of its own (DirectCounterEntry).
    pub(crate) fn counter(
        &mut self,
        context: &Context<'_>,
        transaction: &Transaction<'_>,
        operation: Operation,
        entry: &DirectCounterEntry,
    ) -> UpdateResult {
        operation.modify_only("direct counter")?;
        let (table, owner) = find(context, transaction, entry.table_entry.as_ref())?;
        if !table.direct_counter {
            return Err(no_counter());
        }
        if let Some(data) = &entry.data {
            let (packets, bytes) = decode_counter(table, data)?;
            self.0.push(Write::Counter(owner, packets, bytes));
        }
        Ok(())
    }

    /// Collects the write of a direct meter that a client sends as an entity of its own (DirectMeterEntry). Without a
    /// configuration, the meter returns to the default.
    pub(crate) fn meter(
        &mut self,
        context: &Context<'_>,
        transaction: &Transaction<'_>,
        operation: Operation,
        entry: &DirectMeterEntry,
    ) -> UpdateResult {
        operation.modify_only("direct meter")?;
        let reset = check_colors(entry.counter_data.as_ref())?;
        let (table, owner) = find(context, transaction, entry.table_entry.as_ref())?;
        let kind = table.direct_meter.ok_or_else(no_meter)?;
        let config = entry
            .config
            .as_ref()
            .map(|config| decode_config(config, kind))
            .transpose()?;
        self.0.push(Write::Meter(owner.clone(), config));
        if reset {
            self.0.push(Write::Colors(owner));
        }
        Ok(())
    }
}

fn no_counter() -> UpdateError {
    UpdateError::invalid("the table has no direct counter")
}

fn no_meter() -> UpdateError {
    UpdateError::invalid("the table has no direct meter")
}

fn decode_counter(table: &TableSchema, data: &CounterData) -> UpdateResult<(u64, u64)> {
    if !table.direct_counter {
        return Err(no_counter());
    }
    cell::decode_counter(data)
}

/// Finds the table and the entry to which a direct resource belongs.
fn find<'a>(
    context: &Context<'a>,
    transaction: &Transaction<'_>,
    entry: Option<&TableEntry>,
) -> UpdateResult<(&'a TableSchema, StoredEntry)> {
    let Some(entry) = entry else {
        return Err(UpdateError::invalid("the field `table_entry` is not set"));
    };
    let table = context.schema.table(entry.table_id)?;
    if entry.is_default_action {
        return Ok((table, transaction.default_entry(table.id)?.into()));
    }
    let (key, priority) = key::decode_with_priority(table, entry)?;
    Ok((table, transaction.entry(table.id, &key, priority)?.into()))
}

/// Returns the value of a direct counter. Returns 0 for an entry that keeps no state.
pub(crate) fn counter_data(state: Option<&EntryState>) -> CounterData {
    let (packets, bytes) = state.map_or((0, 0), |state| state.counter().get());
    cell::encode_counter(packets, bytes)
}

/// Returns a direct meter's configuration, unless it is the default one.
pub(crate) fn meter_config(meter: Option<&Meter>) -> Option<MeterConfig> {
    encode_config(meter?.config()?)
}

/// Returns the per-colour counters of a direct meter, if there is one.
pub(crate) fn meter_counters(meter: Option<&Meter>) -> Option<MeterCounterData> {
    meter.map(encode_colors)
}

/// Encodes the direct resources of an entry, as far as the client requested them and the table has them.
pub(crate) fn encode(
    table: &TableSchema,
    state: Option<&EntryState>,
    meter: Option<&Meter>,
    requested: RequestedFields,
) -> TableEntry {
    TableEntry {
        counter_data: (requested.counter && table.direct_counter).then(|| counter_data(state)),
        meter_config: if requested.meter_config {
            meter_config(meter)
        } else {
            None
        },
        meter_counter_data: meter_counters(meter).filter(|_| requested.meter_counters),
        ..TableEntry::default()
    }
}
