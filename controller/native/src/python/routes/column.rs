// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `RouteColumn`, which behaves like a dictionary from prefixes to
//! targets.

use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyTuple};

use super::prefix::slot_of;
use super::shared::SharedTable;
use crate::routes::slot::RouteSlot;
use crate::routes::table::Column;

/// Number of prefixes that an iterator fetches at once.
const AHEAD: usize = 256;

#[pyclass(module = "sluice._native", frozen, mapping)]
pub(in crate::python) struct RouteColumn {
    pub(super) shared: Arc<SharedTable>,
    pub(super) column: Column,
}

impl RouteColumn {
    fn found<'py>(&self, key: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let slot = slot_of(key)?;
        let target = self.shared.table().get(&slot, self.column);
        self.shared.target(key.py(), target)
    }

    fn put(&self, key: &Bound<'_, PyAny>, target: u32) -> PyResult<u32> {
        match slot_of(key) {
            Some(slot) => Ok(self.shared.table().set(slot, self.column, target)),
            None if target == 0 => Ok(0),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn walker(&self) -> Walker {
        Walker {
            shared: Arc::clone(&self.shared),
            column: self.column,
            next: 0,
            ahead: VecDeque::new(),
        }
    }
}

#[pymethods]
impl RouteColumn {
    fn __len__(&self) -> usize {
        self.shared.table().count(self.column)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        slot_of(key).is_some_and(|slot| self.shared.table().get(&slot, self.column) != 0)
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.found(key)
            .ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> Option<Bound<'py, PyAny>> {
        self.found(key).or(default)
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key, self.shared.target_number(value)?).map(drop)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.put(key, 0)? {
            0 => Err(PyKeyError::new_err(key.clone().unbind())),
            _ => Ok(()),
        }
    }

    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let before = self.put(key, 0)?;
        match self.shared.target(key.py(), before) {
            Some(value) => Ok(value),
            None if default.is_empty() => Err(PyKeyError::new_err(key.clone().unbind())),
            None => default.get_item(0),
        }
    }

    /// Sets the targets of all given (prefix, target) pairs.
    fn update(&self, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        for pair in pairs.try_iter()? {
            let pair = pair?;
            let pair = pair.cast::<PyTuple>()?;
            self.__setitem__(&pair.get_item(0)?, &pair.get_item(1)?)?;
        }
        Ok(())
    }

    fn clear(&self) {
        self.shared.table().clear(self.column);
    }

    fn __iter__(&self) -> RouteKeys {
        RouteKeys(self.walker())
    }

    fn items(&self) -> RouteItems {
        RouteItems(self.walker())
    }

    fn keys<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let views = slf.py().import("collections.abc")?;
        views.getattr("KeysView")?.call1((slf,))
    }

    fn values<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let views = slf.py().import("collections.abc")?;
        views.getattr("ValuesView")?.call1((slf,))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let ours = PyDict::new(py);
        for pair in Bound::new(py, self.items())?.try_iter()? {
            let pair = pair?;
            let pair = pair.cast::<PyTuple>()?;
            ours.set_item(pair.get_item(0)?, pair.get_item(1)?)?;
        }
        let theirs = py.get_type::<PyDict>().call1((other,))?;
        ours.eq(theirs)
    }
}

/// Iterates over a column, which may change during the iteration. A prefix that is present during
/// the whole iteration is returned once.
struct Walker {
    shared: Arc<SharedTable>,
    column: Column,
    next: u32,
    ahead: VecDeque<(RouteSlot, u32)>,
}

impl Walker {
    fn next(&mut self) -> Option<(RouteSlot, u32)> {
        while self.ahead.is_empty() {
            let table = self.shared.table();
            if table.is_end(self.next) {
                return None;
            }
            let (found, next) = table.items(self.next, self.column, AHEAD);
            self.ahead = found.into();
            self.next = next;
        }
        self.ahead.pop_front()
    }
}

#[pyclass(module = "sluice._native")]
pub(in crate::python) struct RouteKeys(Walker);

#[pymethods]
impl RouteKeys {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.0.next();
        found
            .map(|(slot, _)| self.0.shared.maker.slot(py, &slot))
            .transpose()
    }
}

#[pyclass(module = "sluice._native")]
pub(in crate::python) struct RouteItems(Walker);

#[pymethods]
impl RouteItems {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some((slot, target)) = self.0.next() else {
            return Ok(None);
        };
        let key = self.0.shared.maker.slot(py, &slot)?;
        let value = self.0.shared.target(py, target);
        (key, value).into_pyobject(py).map(Some)
    }
}
