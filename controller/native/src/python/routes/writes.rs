// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `RouteBatch`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};

use super::prefix::Pairs;
use super::shared::SharedTable;
use crate::mailbox::lock;
use crate::routes::slot::RouteSlot;
use crate::routes::table::WriteQueue;
use crate::routes::writes::{RouteUpdate, Taken, UpdateBatch};

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct RouteBatch {
    shared: Arc<SharedTable>,
    waiting: WriteQueue,
    batch: Mutex<UpdateBatch>,
    items: Vec<(RouteSlot, RouteUpdate)>,
    unready: Vec<(RouteSlot, u32)>,
    absent: Vec<RouteSlot>,
}

impl RouteBatch {
    pub(super) fn next(
        py: Python<'_>,
        shared: &Arc<SharedTable>,
        waiting: WriteQueue,
        limit: usize,
        missing: Option<&Bound<'_, PyAny>>,
        encoding: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let taken = {
            let postponed = &mut lock(&shared.postponed)[waiting as usize];
            shared.table().take(waiting, limit, postponed)
        };
        let ready = match prepare(py, shared, &taken, missing, encoding) {
            Ok(ready) => ready,
            Err(error) => {
                shared.table().give_back(taken, waiting);
                return Err(error);
            }
        };
        let mut table = shared.table();
        let sorted = table.sort(taken, waiting, &ready);
        let items = sorted.batch.items().iter();
        let items = items.map(|item| (table.slot_of(item), *item)).collect();
        Ok(Self {
            shared: Arc::clone(shared),
            waiting,
            batch: Mutex::new(sorted.batch),
            items,
            unready: sorted.unready,
            absent: sorted.absent,
        })
    }

    fn land(&self, applied: bool, again: Option<WriteQueue>) {
        let mut batch = lock(&self.batch);
        self.shared.table().land(&mut batch, applied, again);
    }

    fn slot<'py>(&self, py: Python<'py>, slot: &RouteSlot) -> PyResult<Bound<'py, PyAny>> {
        self.shared.maker.slot(py, slot)
    }
}

/// Asks Python which targets may be written. Lets Python encode the heads and tails (see
/// `routes::writes`) that are not cached yet.
fn prepare(
    py: Python<'_>,
    shared: &SharedTable,
    taken: &Taken,
    missing: Option<&Bound<'_, PyAny>>,
    encoding: &Bound<'_, PyAny>,
) -> PyResult<HashSet<u32>> {
    let mut ready = HashSet::new();
    for &head in &taken.heads {
        let is_known = lock(&shared.encoding).heads.contains_key(&head);
        if !is_known {
            let found: (Vec<u8>, Vec<u8>) = encoding.call_method1("route_head", head)?.extract()?;
            let found = (found.0.into(), found.1.into());
            lock(&shared.encoding).heads.insert(head, found);
        }
    }
    let Some(missing) = missing else {
        return Ok(ready);
    };
    for &number in &taken.targets {
        if lock(&shared.ready).contains(&number) {
            ready.insert(number);
            continue;
        }
        let target = shared.target(py, number);
        if !missing.call1((&target,))?.is_truthy()? {
            let is_known = lock(&shared.encoding).tails.contains_key(&number);
            if !is_known {
                let tail: Vec<u8> = encoding.call_method1("route_tail", (&target,))?.extract()?;
                lock(&shared.encoding).tails.insert(number, tail.into());
            }
            lock(&shared.ready).insert(number);
            ready.insert(number);
        }
    }
    Ok(ready)
}

#[pymethods]
impl RouteBatch {
    fn __len__(&self) -> usize {
        self.items.len()
    }

    /// Returns the encoded updates.
    fn updates<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let (mut whole, mut ends) = (Vec::new(), Vec::with_capacity(self.items.len()));
        {
            let encoding = lock(&self.shared.encoding);
            for (slot, item) in &self.items {
                let known = encoding.update(slot, item.target, item.operation, &mut whole);
                known.ok_or_else(|| PyValueError::new_err("a route cannot be encoded"))?;
                ends.push(whole.len());
            }
        }
        let mut start = 0;
        let cut = ends.into_iter().map(|end| {
            let update = PyBytes::new(py, &whole[start..end]);
            start = end;
            update
        });
        Ok(cut.collect())
    }

    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Pairs<'py>> {
        self.items
            .iter()
            .map(|(slot, item)| {
                let value = self.shared.target(py, item.target);
                Ok((self.slot(py, slot)?, value))
            })
            .collect()
    }

    fn operations(&self) -> Vec<u32> {
        let items = self.items.iter();
        items.map(|(_, item)| u32::from(item.operation)).collect()
    }

    /// Returns the routes that cannot be written yet, because their target is not ready, with
    /// these targets.
    fn unready<'py>(&self, py: Python<'py>) -> PyResult<Pairs<'py>> {
        self.unready
            .iter()
            .map(|(slot, target)| Ok((self.slot(py, slot)?, self.shared.target(py, *target))))
            .collect()
    }

    /// Returns the prefixes that were queued for deletion but are not installed.
    fn absent<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.absent.iter().map(|slot| self.slot(py, slot)).collect()
    }

    /// Ends the batch after the switch's answer. `applied` is true if the switch has applied all
    /// updates.
    fn landed(&self, applied: bool) {
        self.land(applied, None);
    }

    /// Ends the batch without an answer from the switch. All routes of the batch are queued again.
    fn requeue(&self) {
        self.land(false, Some(self.waiting));
    }
}

impl Drop for RouteBatch {
    fn drop(&mut self) {
        self.land(false, None);
    }
}
