// SPDX-License-Identifier: Apache-2.0
//! Operator access to the FIBs of longest-prefix tables. These functions can change the speed of lookups, but never
//! their results.

use std::time::Instant;

use sluice_fib::{PinError, Trial};
use sluice_program::{Table, TableId};

use crate::error::{Result, TableError, invalid};
use crate::key::KeyShape;
use crate::lookup::FibDetail;
use crate::store::Store;
use crate::table_replica::TableReplica;

/// A FIB and its status.
#[derive(Clone, Debug)]
pub struct FibInfo {
    /// The table.
    pub table: TableId,
    /// Values of the key's exact fields that select this FIB, in the key's order.
    pub exact: Vec<u128>,
    /// The FIB's algorithm, its sizes, and the builds of its lookup structure.
    pub status: sluice_fib::Status,
}

impl Store {
    /// Rebuilds the FIBs whose rebuild is due. A FIB's rebuild can become due when no transaction runs, so this must be
    /// called periodically. The results of lookups do not change.
    pub fn settle(&self) {
        let now = Instant::now();
        let mut control = self.control.lock();
        let tables = || self.program().tables.iter().enumerate();
        let waits = control.replicas.change(|replica| {
            let mut lpms = tables().filter_map(|(index, _)| {
                replica.lpm(TableId(index as u32)).map(|t| t.is_pending())
            });
            lpms.any(|pending| pending)
        });
        if waits {
            control.replicas.change(|replica| replica.settle(now));
            control.replicas.flip();
            control.replicas.change(|replica| replica.settle(now));
        }
    }

    /// Returns all FIBs, in order of table and exact fields. Transactions wait until this returns.
    pub fn fibs(&self, detail: FibDetail) -> Vec<FibInfo> {
        let mut found = Vec::new();
        let mut control = self.control.lock();
        control.replicas.change(|replica| {
            for (index, table) in self.program().tables.iter().enumerate() {
                let id = TableId(index as u32);
                let fibs = replica.lpm(id).map(|lpm| lpm.status(detail));
                for (exact, status) in fibs.into_iter().flatten() {
                    let exact = numbers(table, &exact);
                    found.push(FibInfo {
                        table: id,
                        exact,
                        status,
                    });
                }
            }
        });
        found.sort_by(|one, other| (one.table, &one.exact).cmp(&(other.table, &other.exact)));
        found
    }

    /// Pins an algorithm for the FIB with these values of the exact fields. If `exact` is `None`, pins it for all
    /// present and future FIBs of the table. If `name` is `None`, returns to automatic choice.
    ///
    /// # Errors
    /// `InvalidArgument` if the table has no FIB, or no algorithm has this name. `NotFound` if there are no routes with
    /// these values. `FailedPrecondition` if the algorithm cannot hold the routes of a FIB; this FIB then keeps its
    /// present algorithm.
    pub fn pin_fib(
        &self,
        table: TableId,
        exact: Option<&[u128]>,
        algorithm: Option<&str>,
    ) -> Result<()> {
        let declared = self.lpm_table(table)?;
        let exact = exact.map(|exact| bytes(declared, exact)).transpose()?;
        let mut control = self.control.lock();
        let pin = |replica: &mut TableReplica| match replica.lpm(table) {
            Some(lpm) => lpm.pin(exact.as_deref(), algorithm),
            None => Ok(false),
        };
        let found = control.replicas.change(pin);
        control.replicas.flip();
        // Both replicas have the same routes, so the result is the same in both replicas.
        let _ = control.replicas.change(pin);
        match found {
            Ok(true) => Ok(()),
            Ok(false) => Err(no_routes(declared)),
            Err(error @ PinError::Unknown { .. }) => invalid(error.to_string()),
            Err(error @ PinError::Build(_)) => {
                Err(TableError::FailedPrecondition(error.to_string()))
            }
        }
    }

    /// Runs every algorithm on a copy of one FIB's routes, and returns the measurements. `exact` holds the values of
    /// the exact fields that select the FIB. Transactions wait only while the copy is made.
    ///
    /// # Errors
    /// `InvalidArgument` and `NotFound`, as for [`pin_fib`](Self::pin_fib).
    pub fn try_fib(&self, table: TableId, exact: &[u128]) -> Result<Vec<Trial>> {
        let declared = self.lpm_table(table)?;
        let exact = bytes(declared, exact)?;
        let copy = {
            let mut control = self.control.lock();
            control.replicas.change(|replica| {
                replica
                    .lpm(table)
                    .and_then(|lpm| lpm.routes().read().copy(&exact))
            })
        };
        let routes = copy.ok_or_else(|| no_routes(declared))?;
        Ok(routes.try_algorithms())
    }

    fn lpm_table(&self, table: TableId) -> Result<&Table> {
        match self.program().tables.get(table.index()) {
            None => invalid("there is no such table"),
            Some(table) if !matches!(KeyShape::of(table), KeyShape::Lpm(_)) => invalid(format!(
                "table {} is not a longest-prefix table",
                table.name
            )),
            Some(table) => Ok(table),
        }
    }
}

fn no_routes(table: &Table) -> TableError {
    TableError::NotFound(format!(
        "a route of table {} with these exact fields",
        table.name
    ))
}

/// Returns the sizes of a key's exact fields in bytes.
fn sizes(table: &Table) -> impl Iterator<Item = usize> {
    let prefix = match KeyShape::of(table) {
        KeyShape::Lpm(field) => field,
        _ => usize::MAX,
    };
    let fields = table.key.iter().enumerate();
    let exact = fields.filter(move |(index, _)| *index != prefix);
    exact.map(|(_, key)| key.bytes())
}

/// Converts the bytes of the exact fields to numbers. Of a field longer than 16 bytes, only the last 16 bytes count.
fn numbers(table: &Table, mut bytes: &[u8]) -> Vec<u128> {
    let number = |size: usize| {
        let (field, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        field
            .iter()
            .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
    };
    sizes(table).map(number).collect()
}

fn bytes(table: &Table, numbers: &[u128]) -> Result<Vec<u8>> {
    let sizes: Vec<_> = sizes(table).collect();
    if sizes.len() != numbers.len() {
        let (wanted, given) = (sizes.len(), numbers.len());
        return invalid(format!(
            "the key of table {} has {wanted} exact fields, not {given}",
            table.name
        ));
    }
    let mut bytes = Vec::new();
    for (size, number) in sizes.into_iter().zip(numbers) {
        let all = number.to_be_bytes();
        bytes.extend(std::iter::repeat_n(0, size.saturating_sub(all.len())));
        let (zeros, rest) = all.split_at(all.len().saturating_sub(size));
        if zeros.iter().any(|byte| *byte != 0) {
            return Err(TableError::OutOfRange(format!(
                "{number} is too large for its field"
            )));
        }
        bytes.extend_from_slice(rest);
    }
    Ok(bytes)
}
