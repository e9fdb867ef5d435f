// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `RouteMemo` and `RouteRun`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::mailbox::lock;
use crate::routes::memo::{Memo, Run};

/// Next text number. Numbers are unique among all memos of the process, and never reused.
static NEXT_TEXT: AtomicU32 = AtomicU32::new(0);

type Texts = Arc<Mutex<HashMap<u32, Py<PyAny>>>>;

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct RouteMemo(Mutex<(Memo, Texts)>);

#[pymethods]
impl RouteMemo {
    #[new]
    fn new(unusual_heads: &[u8]) -> Self {
        Self(Mutex::new((Memo::new(unusual_heads), Texts::default())))
    }

    fn learn(&self, data: &[u8], offset: usize, length: usize, text: Py<PyAny>) -> bool {
        let (memo, texts) = &mut *lock(&self.0);
        if memo.is_full() {
            memo.forget();
            // Runs that were read earlier refer to the old table of texts, which they keep alive.
            *texts = Texts::default();
        }
        let number = NEXT_TEXT.fetch_add(1, Relaxed);
        let learnt = memo.learn(data, offset, length, number);
        if learnt {
            lock(texts).insert(number, text);
        }
        learnt
    }

    /// Reads routes from the frames `payloads`, starting at index `start`. Returns the routes,
    /// and the number of payloads that were read completely.
    fn read(
        &self,
        payloads: &Bound<'_, PyList>,
        start: usize,
        limit: usize,
    ) -> PyResult<(RouteRun, usize)> {
        let (memo, texts) = &mut *lock(&self.0);
        let (mut run, mut read) = (Run::default(), 0);
        for index in start..payloads.len() {
            let payload = payloads.get_item(index)?;
            if run.messages.len() >= limit
                || !memo.read(payload.cast::<PyBytes>()?.as_bytes(), &mut run)
            {
                break;
            }
            read += 1;
        }
        let texts = Arc::clone(texts);
        Ok((RouteRun { run, texts }, read))
    }
}

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct RouteRun {
    pub(super) run: Run,
    texts: Texts,
}

impl RouteRun {
    pub(super) fn text(&self, py: Python<'_>, number: u32) -> Option<Py<PyAny>> {
        lock(&self.texts)
            .get(&number)
            .map(|text| text.clone_ref(py))
    }
}

#[pymethods]
impl RouteRun {
    fn __len__(&self) -> usize {
        self.run.messages.len()
    }

    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let messages = self.run.messages.iter();
        messages
            .map(|message| {
                let (octets, size) = message.slot.address();
                let address = PyBytes::new(py, &octets[..size]);
                let text = self.text(py, message.text);
                (text, address, message.slot.length()).into_pyobject(py)
            })
            .collect()
    }
}
