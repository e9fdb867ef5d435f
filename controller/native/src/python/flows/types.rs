// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `FlowTypes`, and converts flows between Rust and Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::flows::cache::{Operation, Outcome, Write, WriteAnswer};
use crate::flows::key::{FlowKey, FlowVerdict};

const FRAGMENT_CLASSES: usize = 3;

/// The Python types of flows, and the members of their enumerations.
#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct FlowTypes {
    new: Py<PyAny>,
    key: Py<PyType>,
    verdict: Py<PyType>,
    write: Py<PyType>,
    ranked: Py<PyType>,
    fragments: [Py<PyAny>; FRAGMENT_CLASSES],
    actions: Vec<Py<PyAny>>,
    operations: [Py<PyAny>; Operation::ALL.len()],
    offers: [Py<PyAny>; Outcome::COUNT],
    results: [Py<PyAny>; WriteAnswer::ALL.len()],
}

#[pymethods]
impl FlowTypes {
    #[new]
    #[pyo3(signature = (*, key, verdict, write, ranked, fragments, actions, operations, offers,
        results))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the names of Python's keyword arguments"
    )]
    fn new(
        py: Python<'_>,
        key: Py<PyType>,
        verdict: Py<PyType>,
        write: Py<PyType>,
        ranked: Py<PyType>,
        fragments: [Py<PyAny>; FRAGMENT_CLASSES],
        actions: Vec<Py<PyAny>>,
        operations: [Py<PyAny>; Operation::ALL.len()],
        offers: [Py<PyAny>; Outcome::COUNT],
        results: [Py<PyAny>; WriteAnswer::ALL.len()],
    ) -> PyResult<Self> {
        Ok(Self {
            new: py.get_type::<PyTuple>().getattr("__new__")?.unbind(),
            key,
            verdict,
            write,
            ranked,
            fragments,
            actions,
            operations,
            offers,
            results,
        })
    }
}

impl FlowTypes {
    /// Creates a named tuple of these values.
    fn make<'py>(
        &self,
        class: &Py<PyType>,
        values: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = values.py();
        self.new.bind(py).call1((class.bind(py), values))
    }

    pub(super) fn make_key<'py>(
        &self,
        py: Python<'py>,
        key: &FlowKey,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fragment = self.fragments.get(usize::from(key.fragment()));
        let fragment = fragment.ok_or_else(|| PyValueError::new_err("no fragment class"))?;
        let values = key_parts(py, key, fragment.bind(py))?;
        self.make(&self.key, values)
    }

    pub(super) fn make_verdict<'py>(
        &self,
        py: Python<'py>,
        verdict: &FlowVerdict,
    ) -> PyResult<Bound<'py, PyAny>> {
        let index = usize::from(verdict.action).checked_sub(1);
        let action = index.and_then(|index| self.actions.get(index));
        let action = action.ok_or_else(|| PyValueError::new_err("no action"))?;
        let values = (verdict.epoch, verdict.rule, action, verdict.bundle);
        self.make(&self.verdict, values.into_pyobject(py)?)
    }

    pub(super) fn make_write<'py>(
        &self,
        py: Python<'py>,
        write: &Write,
    ) -> PyResult<Bound<'py, PyAny>> {
        let operation = &self.operations[write.operation as usize];
        let verdict = write.verdict.as_ref();
        let verdict = verdict.map(|verdict| self.make_verdict(py, verdict));
        let values = (
            operation,
            self.make_key(py, &write.key)?,
            verdict.transpose()?,
        );
        self.make(&self.write, values.into_pyobject(py)?)
    }

    pub(super) fn make_writes<'py>(
        &self,
        py: Python<'py>,
        writes: &[Write],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        writes
            .iter()
            .map(|write| self.make_write(py, write))
            .collect()
    }

    pub(super) fn make_ranked<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        (pool, used, verdict): (usize, f64, FlowVerdict),
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        let values = ((pool, used), key, self.make_verdict(py, &verdict)?);
        self.make(&self.ranked, values.into_pyobject(py)?)
    }

    pub(super) fn operation<'py>(
        &self,
        py: Python<'py>,
        operation: Operation,
    ) -> &Bound<'py, PyAny> {
        self.operations[operation as usize].bind(py)
    }

    pub(super) fn offer<'py>(&self, py: Python<'py>, outcome: Outcome) -> &Bound<'py, PyAny> {
        self.offers[outcome as usize].bind(py)
    }

    pub(super) fn result<'py>(&self, py: Python<'py>, answer: WriteAnswer) -> &Bound<'py, PyAny> {
        self.results[answer as usize].bind(py)
    }

    pub(super) fn read_answer(&self, result: &Bound<'_, PyAny>) -> PyResult<WriteAnswer> {
        let found = self.results.iter().position(|one| result.is(one));
        found
            .map(|index| WriteAnswer::ALL[index])
            .ok_or_else(|| PyValueError::new_err("no result of a write"))
    }

    pub(super) fn read_write(&self, write: &Bound<'_, PyAny>) -> PyResult<Write> {
        let write = write.cast::<PyTuple>()?;
        let operation = write.get_item(0)?;
        let found = self.operations.iter().position(|one| operation.is(one));
        let index = found.ok_or_else(|| PyValueError::new_err("no operation of a write"))?;
        let operation = Operation::ALL[index];
        let verdict = match operation {
            Operation::Delete => None,
            _ => Some(read_verdict(&write.get_item(2)?)?),
        };
        Ok(Write {
            operation,
            key: read_key(&write.get_item(1)?)?,
            verdict,
        })
    }
}

/// Creates the values of a Python `FlowKey`.
pub(in crate::python) fn key_parts<'py>(
    py: Python<'py>,
    key: &FlowKey,
    fragment: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    (
        PyBytes::new(py, key.source()),
        PyBytes::new(py, key.destination()),
        key.protocol,
        key.source_port,
        key.destination_port,
        fragment,
        key.is_local(),
        key.bundle,
    )
        .into_pyobject(py)
}

pub(super) fn read_key(key: &Bound<'_, PyAny>) -> PyResult<FlowKey> {
    let key = key.cast::<PyTuple>()?;
    let source = key.get_item(0)?;
    let destination = key.get_item(1)?;
    let (source, destination) = (
        source.cast::<PyBytes>()?.as_bytes(),
        destination.cast::<PyBytes>()?.as_bytes(),
    );
    let mut read = FlowKey::new(source, destination)
        .ok_or_else(|| PyValueError::new_err("both addresses have 4 bytes, or both 16"))?;
    read.protocol = key.get_item(2)?.extract()?;
    read.source_port = key.get_item(3)?.extract()?;
    read.destination_port = key.get_item(4)?.extract()?;
    let fragment: u8 = key.get_item(5)?.extract()?;
    if usize::from(fragment) >= FRAGMENT_CLASSES {
        return Err(PyValueError::new_err(format!(
            "no fragment class {fragment}"
        )));
    }
    read.set_fragment(fragment);
    read.set_local(key.get_item(6)?.is_truthy()?);
    read.bundle = key.get_item(7)?.extract()?;
    Ok(read)
}

pub(super) fn read_verdict(verdict: &Bound<'_, PyAny>) -> PyResult<FlowVerdict> {
    let verdict = verdict.cast::<PyTuple>()?;
    Ok(FlowVerdict {
        epoch: verdict.get_item(0)?.extract()?,
        rule: verdict.get_item(1)?.extract()?,
        action: verdict.get_item(2)?.extract()?,
        bundle: verdict.get_item(3)?.extract()?,
    })
}

/// Reads a verdict or None.
pub(super) fn read_optional_verdict(
    verdict: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<FlowVerdict>> {
    verdict.map(read_verdict).transpose()
}
