// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `FlowKeys` and `FlowItems`: sequences that create Python's tuples
//! only when an element is read.
//!
//! Creating a list of a million tuples at once would take a second and hundreds of megabytes.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

use super::types::FlowTypes;
use crate::flows::key::{FlowKey, FlowVerdict};

/// Keys of flows, as a Python sequence.
#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct FlowKeys {
    pub(super) keys: Vec<FlowKey>,
    pub(super) types: Py<FlowTypes>,
}

/// Keys and verdicts of flows, as a Python sequence.
#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct FlowItems {
    pub(super) flows: Vec<(FlowKey, FlowVerdict)>,
    pub(super) types: Py<FlowTypes>,
}

impl FlowKeys {
    fn make<'py>(&self, py: Python<'py>, at: usize) -> Option<PyResult<Bound<'py, PyAny>>> {
        let key = self.keys.get(at)?;
        Some(self.types.get().make_key(py, key))
    }
}

impl FlowItems {
    fn make<'py>(&self, py: Python<'py>, at: usize) -> Option<PyResult<Bound<'py, PyAny>>> {
        let (key, verdict) = self.flows.get(at)?;
        let types = self.types.get();
        let pair = || {
            let pair = (types.make_key(py, key)?, types.make_verdict(py, verdict)?);
            Ok(pair.into_pyobject(py)?.into_any())
        };
        Some(pair())
    }
}

#[pymethods]
impl FlowKeys {
    fn __len__(&self) -> usize {
        self.keys.len()
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        get_item(index, self.keys.len(), |at| self.make(index.py(), at))
    }

    fn __iter__(this: Py<Self>) -> FlowSequenceIterator {
        FlowSequenceIterator {
            sequence: FlowSequence::Keys(this),
            next: 0,
        }
    }
}

#[pymethods]
impl FlowItems {
    fn __len__(&self) -> usize {
        self.flows.len()
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        get_item(index, self.flows.len(), |at| self.make(index.py(), at))
    }

    fn __iter__(this: Py<Self>) -> FlowSequenceIterator {
        FlowSequenceIterator {
            sequence: FlowSequence::Items(this),
            next: 0,
        }
    }
}

/// Returns the element at an index. For a slice, returns a list of elements.
fn get_item<'py>(
    index: &Bound<'py, PyAny>,
    length: usize,
    make: impl Fn(usize) -> Option<PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let at = |index: isize| {
        let made = usize::try_from(index).ok().and_then(&make);
        made.unwrap_or_else(|| Err(PyIndexError::new_err("no such flow")))
    };
    if let Ok(slice) = index.cast::<PySlice>() {
        let indices = slice.indices(length as isize)?;
        let steps = 0..indices.slicelength as isize;
        let made: PyResult<Vec<_>> = steps
            .map(|step| at(indices.start + step * indices.step))
            .collect();
        return Ok(PyList::new(index.py(), made?)?.into_any());
    }
    let index: isize = index.extract()?;
    at(if index < 0 {
        index + length as isize
    } else {
        index
    })
}

enum FlowSequence {
    Keys(Py<FlowKeys>),
    Items(Py<FlowItems>),
}

#[pyclass(module = "sluice._native")]
pub(in crate::python) struct FlowSequenceIterator {
    sequence: FlowSequence,
    next: usize,
}

#[pymethods]
impl FlowSequenceIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let at = self.next;
        self.next += 1;
        match &self.sequence {
            FlowSequence::Keys(keys) => keys.get().make(py, at),
            FlowSequence::Items(items) => items.get().make(py, at),
        }
        .transpose()
    }
}
