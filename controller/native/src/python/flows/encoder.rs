// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `FlowEncoder`.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::types::FlowTypes;
use crate::flows::cache::{Operation, Write};
use crate::flows::key::{FlowKey, FlowVerdict};
use crate::mailbox::lock;
use crate::p4runtime::flow_update::encode;

/// Number of match fields that differ from flow to flow: addresses, protocol and ports.
const FIELDS: usize = 5;

/// Values of the match fields that many flows share: list, fragment class, whether local, and bundle.
type SharedFields = (u32, u8, bool, u16);

/// Cache of encoded parts of updates. Holds at most `limit` parts.
type Parts<K> = Mutex<HashMap<K, Arc<[u8]>>>;

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct FlowEncoder {
    types: Py<FlowTypes>,
    fields: [u8; FIELDS],
    encode_head: Py<PyAny>,
    encode_action: Py<PyAny>,
    limit: usize,
    heads: Parts<SharedFields>,
    actions: Parts<FlowVerdict>,
}

impl FlowEncoder {
    /// Returns the cached part for this key. If there is none, calls `make` and caches the result.
    fn part<K: Eq + Hash>(
        &self,
        parts: &Parts<K>,
        key: K,
        make: impl FnOnce() -> PyResult<Arc<[u8]>>,
    ) -> PyResult<Arc<[u8]>> {
        if let Some(part) = lock(parts).get(&key) {
            return Ok(Arc::clone(part));
        }
        let part = make()?; // without the lock, because `make` may run Python code
        let mut parts = lock(parts);
        if parts.len() >= self.limit {
            parts.clear();
        }
        parts.insert(key, Arc::clone(&part));
        Ok(part)
    }

    fn head(&self, py: Python<'_>, list: u32, key: &FlowKey) -> PyResult<Arc<[u8]>> {
        let shared = (list, key.fragment(), key.is_local(), key.bundle);
        self.part(&self.heads, shared, || {
            octets(&self.encode_head.bind(py).call1((shared,))?)
        })
    }

    fn action(&self, py: Python<'_>, verdict: FlowVerdict) -> PyResult<Arc<[u8]>> {
        self.part(&self.actions, verdict, || {
            let made = self.types.get().make_verdict(py, &verdict)?;
            octets(&self.encode_action.bind(py).call1((made,))?)
        })
    }

    /// Encodes a write of one flow. `list` is the flow's list.
    pub(super) fn update<'py>(
        &self,
        py: Python<'py>,
        list: u32,
        write: &Write,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let key = &write.key;
        let head = self.head(py, list, key)?;
        let action = write.verdict.map(|verdict| self.action(py, verdict));
        let (from, to) = (
            key.source_port.to_be_bytes(),
            key.destination_port.to_be_bytes(),
        );
        let values: [&[u8]; FIELDS] =
            [key.source(), key.destination(), &[key.protocol], &from, &to];
        let mut matches = [(0, &[][..]); FIELDS];
        for (place, pair) in matches.iter_mut().zip(self.fields.iter().zip(values)) {
            *place = (*pair.0, pair.1);
        }
        let action = action.transpose()?;
        let action = action.as_deref().unwrap_or_default();
        let encoded = encode(kind_of(write.operation), &head, &matches, action);
        let message = encoded.ok_or_else(|| PyValueError::new_err("a field id is too large"))?;
        Ok(PyBytes::new(py, &message))
    }
}

/// Returns the value of `Update.Type`.
fn kind_of(operation: Operation) -> u8 {
    match operation {
        Operation::Insert => 1,
        Operation::Modify => 2,
        Operation::Delete => 3,
    }
}

fn octets(encoded: &Bound<'_, PyAny>) -> PyResult<Arc<[u8]>> {
    Ok(encoded.cast::<PyBytes>()?.as_bytes().into())
}

#[pymethods]
impl FlowEncoder {
    #[new]
    fn new(
        types: Py<FlowTypes>,
        fields: [u8; FIELDS],
        encode_head: Py<PyAny>,
        encode_action: Py<PyAny>,
        limit: usize,
    ) -> Self {
        Self {
            types,
            fields,
            encode_head,
            encode_action,
            limit,
            heads: Mutex::default(),
            actions: Mutex::default(),
        }
    }

    fn encode<'py>(
        &self,
        list_id: u32,
        write: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let read = self.types.get().read_write(write)?;
        self.update(write.py(), list_id, &read)
    }
}
