// SPDX-License-Identifier: Apache-2.0
//! Decodes which optional fields of a table entry a read request asks for.

use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::TableEntry;
use crate::schema::TableSchema;

/// Optional fields of a table entry. A read request asks for a field by including it in the entry that it
/// sends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestedFields {
    pub(crate) counter: bool,
    pub(crate) meter_config: bool,
    pub(crate) meter_counters: bool,
    pub(crate) last_hit: bool,
}

impl RequestedFields {
    /// Decodes the requested fields, for a request that names one table. Refuses fields that this table
    /// does not have.
    pub(crate) fn decode(table: &TableSchema, entry: &TableEntry) -> UpdateResult<Self> {
        let wanted = Self::of(entry);
        let has_meter = table.direct_meter.is_some();
        if wanted.counter && !table.direct_counter {
            return Err(UpdateError::invalid("the table has no direct counter"));
        }
        if (wanted.meter_config || wanted.meter_counters) && !has_meter {
            return Err(UpdateError::invalid("the table has no direct meter"));
        }
        if wanted.last_hit && entry.is_default_action {
            return Err(UpdateError::invalid(
                "Default table entries do not support entry ageing, do not set 'time_since_last_hit' in your \
                 ReadRequest",
            ));
        }
        if wanted.last_hit && !table.idle_timeout {
            return Err(UpdateError::invalid(
                "Do not set time_since_last_hit for a ReadRequest if the table does not support idle timeout; yes, \
                 that includes wildcard reads",
            ));
        }
        Ok(wanted)
    }

    /// Decodes the requested fields, for a request for all tables. Each table returns those of the fields
    /// that it has.
    pub(crate) fn of(entry: &TableEntry) -> Self {
        Self {
            counter: entry.counter_data.is_some(),
            meter_config: entry.meter_config.is_some(),
            meter_counters: entry.meter_counter_data.is_some(),
            last_hit: entry.time_since_last_hit.is_some(),
        }
    }
}
