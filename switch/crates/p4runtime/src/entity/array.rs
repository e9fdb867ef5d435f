// SPDX-License-Identifier: Apache-2.0
//! Translates indirect counters, meters and registers, which are cells of arrays (P4Runtime specification,
//! "CounterEntry", "MeterEntry", "RegisterEntry").

use std::ops::Range;

use sluice_tables::{Externs, MeterConfig as TableMeterConfig};

use super::cell::{check_colors, decode_config, decode_counter, reset_colors};
use super::{Context, Operation};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::{CounterEntry, Index, MeterEntry, P4Data, RegisterEntry, p4_data};
use crate::schema::names;
use crate::schema::{ArraySchema, RegisterSchema, unknown};

/// A write to cells. It has been checked, and is performed together with the commit of its batch.
pub(crate) enum CellWrite {
    /// Sets counters to (packets, bytes).
    Counter(sluice_program::CounterId, Range<usize>, u64, u64),
    /// Configures meters.
    Meter(
        sluice_program::MeterId,
        Range<usize>,
        Option<TableMeterConfig>,
    ),
    /// Resets per-colour counters of meters to 0.
    Colors(sluice_program::MeterId, Range<usize>),
    /// Sets registers.
    Register(sluice_program::RegisterId, Range<usize>, Vec<u8>),
}

impl CellWrite {
    /// Performs the write.
    pub(crate) fn perform(&self, externs: &Externs) {
        match self {
            Self::Counter(id, cells, packets, bytes) => {
                let counters = cells
                    .clone()
                    .filter_map(|index| externs.counter(*id, index));
                counters.for_each(|counter| counter.set(*packets, *bytes));
            }
            Self::Meter(id, cells, config) => {
                let meters = cells.clone().filter_map(|index| externs.meter(*id, index));
                meters.for_each(|meter| meter.set_config(*config));
            }
            Self::Colors(id, cells) => {
                let meters = cells.clone().filter_map(|index| externs.meter(*id, index));
                meters.for_each(reset_colors);
            }
            Self::Register(id, cells, value) => {
                for index in cells.clone() {
                    // The write cannot fail, because the range and the width have been checked.
                    let _ = externs.register_write(*id, index, value);
                }
            }
        }
    }
}

/// Returns the cells that an index selects: one cell, or the whole array if the index is unset.
pub(crate) fn cells<Id>(
    array: &ArraySchema<Id>,
    index: Option<&Index>,
) -> UpdateResult<Range<usize>> {
    let Some(index) = index else {
        return Ok(0..array.size);
    };
    match usize::try_from(index.index) {
        Err(_) => Err(UpdateError::invalid(format!(
            "index {} is negative",
            index.index
        ))),
        Ok(index) if index < array.size => Ok(index..index + 1),
        Ok(index) => {
            let message = format!(
                "index {index} is beyond the end of {:?}, which has {} cells",
                array.name, array.size
            );
            Err(UpdateError::out_of_range(message))
        }
    }
}

/// Checks a write to an indirect counter. A write without data has no effect.
pub(crate) fn counter(
    context: &Context<'_>,
    operation: Operation,
    entry: &CounterEntry,
) -> UpdateResult<Option<CellWrite>> {
    operation.modify_only("counter")?;
    let id = entry.counter_id;
    let array = context
        .schema
        .counters
        .get(&id)
        .ok_or_else(|| unknown("counter", id))?;
    let cells = cells(array, entry.index.as_ref())?;
    let Some(data) = &entry.data else {
        return Ok(None);
    };
    let (packets, bytes) = decode_counter(data)?;
    Ok(Some(CellWrite::Counter(array.id, cells, packets, bytes)))
}

/// Checks a write to an indirect meter. Without a configuration in the request, the meter returns to its default.
/// With counter data in the request, the per-colour counters of the meter are reset to 0.
pub(crate) fn meter(
    context: &Context<'_>,
    operation: Operation,
    entry: &MeterEntry,
) -> UpdateResult<Vec<CellWrite>> {
    operation.modify_only("meter")?;
    let reset = check_colors(entry.counter_data.as_ref())?;
    let id = entry.meter_id;
    let (array, kind) = context
        .schema
        .meters
        .get(&id)
        .ok_or_else(|| unknown("meter", id))?;
    let cells = cells(array, entry.index.as_ref())?;
    let config = entry
        .config
        .as_ref()
        .map(|config| decode_config(config, *kind))
        .transpose()?;
    let mut writes = vec![CellWrite::Meter(array.id, cells.clone(), config)];
    if reset {
        writes.push(CellWrite::Colors(array.id, cells));
    }
    Ok(writes)
}

/// Checks a write to a register.
pub(crate) fn register(
    context: &Context<'_>,
    operation: Operation,
    entry: &RegisterEntry,
) -> UpdateResult<CellWrite> {
    operation.modify_only("register")?;
    let id = entry.register_id;
    let schema = context
        .schema
        .registers
        .get(&id)
        .ok_or_else(|| unknown("register", id))?;
    let array = &schema.array;
    let cells = cells(array, entry.index.as_ref())?;
    match entry.data.as_ref().and_then(|data| data.data.as_ref()) {
        Some(p4_data::Data::Bitstring(value)) => {
            let value = names::decode(schema.names.as_ref(), value, schema.width)
                .map_err(|error| error.of(&array.name))?;
            Ok(CellWrite::Register(array.id, cells, value))
        }
        Some(_) => {
            let message = format!(
                "register {:?} holds bitstrings: set the field `bitstring` of the data",
                array.name
            );
            Err(UpdateError::invalid(message))
        }
        None => Err(UpdateError::invalid("the field `data` is not set")),
    }
}

/// Encodes a cell's index.
pub(crate) fn encode_index(index: usize) -> Option<Index> {
    Some(Index {
        index: index as i64,
    })
}

/// Encodes a register's value.
pub(crate) fn encode_register(schema: &RegisterSchema, value: &[u8]) -> P4Data {
    let value = names::encode(schema.names.as_ref(), value);
    P4Data {
        data: Some(p4_data::Data::Bitstring(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn indices_are_one_cell_or_all() {
        let array = ArraySchema {
            id: (),
            name: "a".into(),
            size: 4,
        };
        let cells = |index: i64| cells(&array, Some(&Index { index })).map_err(|e| e.code);
        assert_eq!(cells(3), Ok(3..4));
        assert_eq!(cells(4), Err(Code::OutOfRange));
        assert_eq!(cells(-1), Err(Code::InvalidArgument));
        assert_eq!(super::cells(&array, None), Ok(0..4));
    }
}
