// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `FlowCache`.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use super::sequences::{FlowItems, FlowKeys};
use super::types::{FlowTypes, read_key, read_optional_verdict, read_verdict};
use crate::flows::cache::{Cache, Write};
use crate::flows::key::FlowKey;
use crate::mailbox::lock;

type Writes<'py> = Vec<Bound<'py, PyAny>>;

#[pyclass(module = "sluice._native", frozen, subclass)]
pub(in crate::python) struct FlowCache {
    pub(super) cache: Arc<Mutex<Cache>>,
    types: Py<FlowTypes>,
}

impl FlowCache {
    fn keys_of(&self, py: Python<'_>, keys: Vec<FlowKey>) -> FlowKeys {
        let types = self.types.clone_ref(py);
        FlowKeys { keys, types }
    }

    fn writes_of<'py>(&self, py: Python<'py>, write: Option<Write>) -> PyResult<Writes<'py>> {
        self.types.get().make_writes(py, write.as_slice())
    }
}

#[pymethods]
impl FlowCache {
    #[new]
    fn new(types: Py<FlowTypes>, capacity: usize, epoch: u32, enabled: bool) -> Self {
        let cache = Arc::new(Mutex::new(Cache::new(capacity, epoch, enabled)));
        Self { cache, types }
    }

    #[getter]
    fn capacity(&self) -> usize {
        lock(&self.cache).capacity()
    }

    #[getter]
    fn epoch(&self) -> u32 {
        lock(&self.cache).epoch()
    }

    #[getter]
    fn enabled(&self) -> bool {
        lock(&self.cache).enabled
    }

    #[setter]
    fn set_enabled(&self, enabled: bool) {
        lock(&self.cache).enabled = enabled;
    }

    #[getter]
    fn is_exact(&self) -> bool {
        lock(&self.cache).is_exact()
    }

    fn __len__(&self) -> usize {
        lock(&self.cache).len()
    }

    fn eviction_order(&self, py: Python<'_>, limit: usize) -> FlowKeys {
        let keys = lock(&self.cache).eviction_order(limit);
        self.keys_of(py, keys)
    }

    fn ranked<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let ranks = lock(&self.cache).ranks();
        let mut found = Vec::new();
        for key in keys.try_iter()? {
            let key = key?;
            let flow = lock(&self.cache).ranked(&ranks, &read_key(&key)?);
            if let Some(flow) = flow {
                found.push(self.types.get().make_ranked(&key, flow)?);
            }
        }
        Ok(found)
    }

    fn flows(&self, py: Python<'_>) -> FlowItems {
        FlowItems {
            flows: lock(&self.cache).flows(),
            types: self.types.clone_ref(py),
        }
    }

    fn live_flows(&self, py: Python<'_>) -> FlowItems {
        FlowItems {
            flows: lock(&self.cache).live_flows(),
            types: self.types.clone_ref(py),
        }
    }

    fn count_live(&self) -> usize {
        lock(&self.cache).count_live()
    }

    fn count_stale(&self) -> usize {
        let cache = lock(&self.cache);
        cache.len() - cache.count_live()
    }

    fn verdict_of<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let verdict = lock(&self.cache).verdict_of(&read_key(key)?);
        let made = verdict.map(|verdict| self.types.get().make_verdict(key.py(), &verdict));
        made.transpose()
    }

    fn offer<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        verdict: &Bound<'py, PyAny>,
        now: f64,
    ) -> PyResult<(Bound<'py, PyAny>, Writes<'py>)> {
        let (py, types) = (key.py(), self.types.get());
        let (key, verdict) = (read_key(key)?, read_verdict(verdict)?);
        let mut writes = Vec::new();
        let outcome = lock(&self.cache).offer(key, verdict, now, &mut writes);
        let outcome = types.offer(py, outcome).clone();
        Ok((outcome, types.make_writes(py, &writes)?))
    }

    fn retire(&self, epoch: u32) {
        lock(&self.cache).retire(epoch);
    }

    fn written<'py>(
        &self,
        write: &Bound<'py, PyAny>,
        result: &Bound<'py, PyAny>,
        now: f64,
    ) -> PyResult<Writes<'py>> {
        let types = self.types.get();
        let answer = types.read_answer(result)?;
        let mut writes = Vec::new();
        let done = types.read_write(write)?;
        lock(&self.cache).written(&done, answer, now, &mut writes);
        types.make_writes(write.py(), &writes)
    }

    fn found(&self, key: &Bound<'_, PyAny>, verdict: &Bound<'_, PyAny>, now: f64) -> PyResult<()> {
        let (key, verdict) = (read_key(key)?, read_verdict(verdict)?);
        lock(&self.cache).found(key, verdict, now);
        Ok(())
    }

    fn agrees(&self, key: &Bound<'_, PyAny>, found: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let (key, found) = (read_key(key)?, read_optional_verdict(found)?);
        Ok(lock(&self.cache).agrees(&key, found))
    }

    fn correct<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        found: Option<&Bound<'py, PyAny>>,
        now: f64,
    ) -> PyResult<Writes<'py>> {
        let py = key.py();
        let (key, found) = (read_key(key)?, read_optional_verdict(found)?);
        let write = lock(&self.cache).correct(&key, found, now);
        self.writes_of(py, write)
    }

    fn discard<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Writes<'py>> {
        let write = lock(&self.cache).discard(&read_key(key)?);
        self.writes_of(key.py(), write)
    }

    fn keys(&self, py: Python<'_>) -> FlowKeys {
        let keys = lock(&self.cache).keys();
        self.keys_of(py, keys)
    }

    fn keys_unused_since(&self, py: Python<'_>, before: f64) -> FlowKeys {
        let keys = lock(&self.cache).keys_unused_since(before);
        self.keys_of(py, keys)
    }

    fn used(&self, key: &Bound<'_, PyAny>, now: f64) -> PyResult<()> {
        lock(&self.cache).used(&read_key(key)?, now);
        Ok(())
    }

    fn counted(&self, key: &Bound<'_, PyAny>, packets: u64, now: f64) -> PyResult<bool> {
        let key = read_key(key)?;
        Ok(lock(&self.cache).counted(&key, packets, now))
    }

    fn expire<'py>(&self, key: &Bound<'py, PyAny>, before: f64) -> PyResult<Writes<'py>> {
        let write = lock(&self.cache).expire(&read_key(key)?, before);
        self.writes_of(key.py(), write)
    }

    fn idle_since(&self, py: Python<'_>, before: f64) -> FlowKeys {
        let keys = lock(&self.cache).idle_since(before);
        self.keys_of(py, keys)
    }

    fn coldest_live(&self, py: Python<'_>, before: f64, limit: usize) -> FlowKeys {
        let keys = lock(&self.cache).coldest_live(before, limit);
        self.keys_of(py, keys)
    }

    fn is_nearly_full(&self) -> bool {
        lock(&self.cache).is_nearly_full()
    }
}
