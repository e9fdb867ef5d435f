// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `FpmServer`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::errors::io_error;
use crate::fpm::server::{ConnectionEvent, EventKind, Server};

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct FpmServer(Server);

#[pymethods]
impl FpmServer {
    #[new]
    #[pyo3(signature = (listen, *, queue_bytes=8_388_608))]
    fn new(listen: &str, queue_bytes: u32) -> PyResult<Self> {
        if queue_bytes == 0 {
            return Err(PyValueError::new_err(
                "a queue of 0 bytes holds nothing: use 1 or more",
            ));
        }
        Server::listen(listen, queue_bytes)
            .map(Self)
            .map_err(|error| io_error(&error, &format!("listening for FPM on {listen}")))
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    fn fileno(&self) -> i32 {
        self.0.descriptor()
    }

    fn poll<'py>(&self, py: Python<'py>, max_events: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.0
            .poll(max_events)
            .into_iter()
            .map(|event| event_tuple(py, event))
            .collect()
    }

    fn disconnect(&self, connection: u64, reason: String) {
        self.0.disconnect(connection, reason);
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.0.counters();
        let dict = PyDict::new(py);
        let set = |name: &str, counter: &AtomicU64| dict.set_item(name, counter.load(Relaxed));
        set("connections", &counters.connections)?;
        set("connections_refused", &counters.connections_refused)?;
        set("frames", &counters.frames)?;
        set("bytes", &counters.bytes)?;
        set("framing_errors", &counters.framing_errors)?;
        set("reads_paused", &counters.reads_paused)?;
        Ok(dict)
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Converts an event to a tuple, and releases the event's permit.
fn event_tuple(py: Python<'_>, event: ConnectionEvent) -> PyResult<Bound<'_, PyTuple>> {
    let connection = event.connection;
    match &event.kind {
        EventKind::Open(peer) => ("open", connection, peer.to_string()).into_pyobject(py),
        EventKind::Frames(frames) => {
            let frames = PyList::new(py, frames.iter().map(|frame| PyBytes::new(py, frame)))?;
            ("frames", connection, frames).into_pyobject(py)
        }
        EventKind::Error(message) => ("error", connection, message).into_pyobject(py),
        EventKind::Closed(reason) => ("closed", connection, reason).into_pyobject(py),
    }
}
