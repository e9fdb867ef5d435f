// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `RouteQueue`, a queue of prefixes. It behaves like a dictionary that
//! has keys but no values.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};

use super::prefix::slot_of;
use super::shared::SharedTable;
use crate::routes::table::WriteQueue;

/// Number of prefixes that an iterator fetches at once.
const AHEAD: usize = 256;

#[pyclass(module = "sluice._native", frozen, mapping)]
pub(in crate::python) struct RouteQueue {
    pub(super) shared: Arc<SharedTable>,
    pub(super) waiting: WriteQueue,
}

#[pymethods]
impl RouteQueue {
    fn __len__(&self) -> usize {
        self.shared.table().waiting(self.waiting)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        slot_of(key).is_some_and(|slot| self.shared.table().waits(&slot, self.waiting))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        let slot = slot_of(key).ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))?;
        self.shared.table().wait(slot, self.waiting);
        Ok(())
    }

    #[pyo3(signature = (key, *_default))]
    fn pop(&self, key: &Bound<'_, PyAny>, _default: &Bound<'_, PyTuple>) {
        if let Some(slot) = slot_of(key) {
            self.shared.table().stop_waiting(&slot, self.waiting);
        }
    }

    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Option<bool>)> {
        let slot = self.shared.table().pop(self.waiting);
        let slot = slot.ok_or_else(|| PyKeyError::new_err("the queue is empty"))?;
        Ok((self.shared.maker.slot(py, &slot)?, None))
    }

    fn update(&self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        for key in keys.try_iter()? {
            let key = key?;
            let slot = slot_of(&key).ok_or_else(|| PyKeyError::new_err(key.unbind()))?;
            self.shared.table().wait(slot, self.waiting);
        }
        Ok(())
    }

    fn clear(&self) {
        self.shared.table().clear_waiting(self.waiting);
    }

    fn __iter__(&self) -> RouteQueueKeys {
        RouteQueueKeys {
            shared: Arc::clone(&self.shared),
            waiting: self.waiting,
            place: 0,
            ahead: Vec::new(),
        }
    }
}

#[pyclass(module = "sluice._native")]
pub(in crate::python) struct RouteQueueKeys {
    shared: Arc<SharedTable>,
    waiting: WriteQueue,
    place: u32,
    ahead: Vec<crate::routes::slot::RouteSlot>,
}

#[pymethods]
impl RouteQueueKeys {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.ahead.is_empty() {
            let table = self.shared.table();
            (self.ahead, self.place) = table.waiting_after(self.place, self.waiting, AHEAD);
            self.ahead.reverse();
        }
        let next = self.ahead.pop();
        next.map(|slot| self.shared.maker.slot(py, &slot))
            .transpose()
    }
}
