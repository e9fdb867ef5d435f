// SPDX-License-Identifier: Apache-2.0
//! Handles the admin requests about the FIBs of longest-prefix-match tables: lists the FIBs, pins the algorithm of a
//! FIB, and benchmarks a FIB with each algorithm.

use sluice_program::TableId;
use sluice_tables::{FibDetail, FibInfo, Store, TableError};
use tonic::Status;

use crate::proto::*;

pub(crate) fn list(store: &Store, table: &str) -> Result<ListFibsResponse, Status> {
    let wanted = match table {
        "" => None,
        name => Some(named(store, name)?),
    };
    let mut fibs = store.fibs(FibDetail::Values);
    fibs.retain(|fib| wanted.is_none_or(|wanted| fib.table == wanted));
    let fibs = fibs.iter().map(|info| shown(store, info)).collect();
    Ok(ListFibsResponse { fibs })
}

pub(crate) fn set(store: &Store, request: &SetFibRequest) -> Result<ListFibsResponse, Status> {
    let table = named(store, &request.table)?;
    let exact = numbers(&request.exact)?;
    let exact = (!exact.is_empty()).then_some(&*exact);
    let algorithm = (!request.algorithm.is_empty()).then_some(&*request.algorithm);
    store.pin_fib(table, exact, algorithm).map_err(status)?;
    list(store, &request.table)
}

pub(crate) fn bench(store: &Store, request: &BenchFibRequest) -> Result<BenchFibResponse, Status> {
    let table = named(store, &request.table)?;
    let exact = numbers(&request.exact)?;
    let mut fibs = store.fibs(FibDetail::Values);
    fibs.retain(|fib| fib.table == table && (exact.is_empty() || fib.exact == exact));
    let largest = fibs.into_iter().max_by_key(|fib| fib.status.routes);
    let Some(fib) = largest else {
        // There are two possible errors. The table may have no routes now. Or it can never have routes, because it has
        // no longest-prefix-match key.
        let error = store.try_fib(table, &exact).err();
        let none = || Status::not_found(format!("table {} has no routes", request.table));
        return Err(error.map_or_else(none, status));
    };
    let trials = store.try_fib(table, &fib.exact).map_err(status)?;
    let trial = |trial: sluice_tables::Trial| {
        let shown = FibTrial {
            algorithm: trial.algorithm.to_owned(),
            ..FibTrial::default()
        };
        match trial.outcome {
            Ok(rates) => FibTrial {
                batch: rates.batch,
                dependent: rates.dependent,
                bytes: rates.bytes as u64,
                build_us: rates.build.as_micros() as u64,
                ..shown
            },
            Err(problem) => FibTrial {
                problem: problem.to_string(),
                ..shown
            },
        }
    };
    Ok(BenchFibResponse {
        fib: Some(shown(store, &fib)),
        trials: trials.into_iter().map(trial).collect(),
    })
}

/// Returns the table with this name. If there is none, returns the only table whose name ends with a dot and this name.
fn named(store: &Store, name: &str) -> Result<TableId, Status> {
    let program = store.program();
    if let Some(id) = program.table_by_name(name) {
        return Ok(id);
    }
    let ending = format!(".{name}");
    let tables = program.tables.iter().enumerate();
    let mut found = tables.filter(|(_, table)| table.name.ends_with(&ending));
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Ok(TableId(index as u32)),
        (Some((_, one)), Some((_, other))) => {
            let (one, other) = (&one.name, &other.name);
            let problem = format!(
                "{name} is ambiguous: the names of several tables end with it, such as {one} and {other}"
            );
            Err(Status::invalid_argument(problem))
        }
        _ => Err(Status::not_found(format!("there is no table {name}"))),
    }
}

fn numbers(exact: &[String]) -> Result<Vec<u128>, Status> {
    let number = |text: &String| {
        let none = |_| Status::invalid_argument(format!("{text} is not a number"));
        text.parse().map_err(none)
    };
    exact.iter().map(number).collect()
}

fn shown(store: &Store, info: &FibInfo) -> Fib {
    let status = &info.status;
    Fib {
        table: store.program().table(info.table).name.clone(),
        exact: info.exact.iter().map(u128::to_string).collect(),
        algorithm: status.algorithm.to_owned(),
        pinned: status.pinned.is_some(),
        routes: status.routes as u64,
        values: status.values as u64,
        bytes: status.bytes as u64,
        rib_bytes: status.rib_bytes as u64,
        builds: status.builds,
        last_build_us: status.last_build.as_micros() as u64,
        pending: status.pending,
    }
}

fn status(error: TableError) -> Status {
    let message = error.to_string();
    match error {
        TableError::NotFound(_) => Status::not_found(message),
        TableError::OutOfRange(_) => Status::out_of_range(message),
        TableError::FailedPrecondition(_) => Status::failed_precondition(message),
        _ => Status::invalid_argument(message),
    }
}
