// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `PuntQueue` and `Punt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use super::errors::io_error;
use super::packets::{metadata_values, value_tuple};
use crate::p4runtime::packet::PacketIn;
use crate::punts::{self, Fields, Miss, Origin};

/// Python's types, and the constructor of tuples.
#[derive(Debug)]
struct Types {
    new: Py<PyAny>,
    punted: Py<PyType>,
    miss: Py<PyType>,
    selectors: Py<PyType>,
    key: Py<PyType>,
    whole: Py<PyAny>,
}

impl Types {
    /// Creates a named tuple of these values.
    fn make<'py>(
        &self,
        py: Python<'py>,
        class: &Py<PyType>,
        values: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.new.bind(py).call1((class.bind(py), values))
    }

    fn punted<'py>(&self, py: Python<'py>, packet: &PacketIn) -> PyResult<Bound<'py, PyAny>> {
        let metadata = value_tuple(py, &packet.metadata)?;
        let frame = PyBytes::new(py, &packet.payload).into_any();
        let values = PyTuple::new(
            py,
            std::iter::once(frame)
                .chain(metadata.iter())
                .collect::<Vec<_>>(),
        )?;
        self.make(py, &self.punted, values)
    }

    fn miss<'py>(
        &self,
        py: Python<'py>,
        miss: &Miss<'_>,
        punt: Punt,
    ) -> PyResult<Bound<'py, PyAny>> {
        let source = PyBytes::new(py, miss.plain.source);
        let destination = PyBytes::new(py, miss.plain.destination);
        let (protocol, is_own) = (miss.plain.protocol, miss.is_own);
        let ports = miss.plain.ports;
        let (from, to) = ports.map_or((None, None), |(from, to)| (Some(from), Some(to)));
        let (icmp, mobility_type) = (py.None(), py.None());
        let selectors = (
            &source,
            &destination,
            protocol,
            from,
            to,
            icmp,
            is_own,
            mobility_type,
        )
            .into_pyobject(py)?;
        let bundle = u64::try_from(miss.bundle).unwrap_or(u64::MAX);
        let (from, to) = ports.unwrap_or_default();
        let whole = self.whole.bind(py);
        let key = (
            source,
            destination,
            protocol,
            from,
            to,
            whole,
            is_own,
            bundle,
        )
            .into_pyobject(py)?;
        let selectors = self.make(py, &self.selectors, selectors)?;
        let key = self.make(py, &self.key, key)?;
        let list = u64::try_from(miss.list).unwrap_or(u64::MAX);
        let reason = u64::try_from(miss.reason).unwrap_or(u64::MAX);
        let values = (reason, list, selectors, key, punt).into_pyobject(py)?;
        self.make(py, &self.miss, values)
    }
}

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct PuntQueue {
    pub(super) queue: Arc<punts::PuntQueue>,
    types: Arc<Types>,
}

#[pymethods]
impl PuntQueue {
    #[new]
    #[pyo3(signature = (*, count, share, stage, origin, is_local, bundle, list_id, misses, inbound,
        outbound, own, answer, punted_type, miss_type, selectors_type, key_type, whole, limit,
        limit_each))]
    #[allow(
        clippy::too_many_arguments,
        reason = "the names of Python's keyword arguments"
    )]
    fn new(
        py: Python<'_>,
        count: usize,
        share: (usize, usize, usize),
        stage: usize,
        origin: usize,
        is_local: usize,
        bundle: usize,
        list_id: usize,
        misses: Vec<u128>,
        inbound: u128,
        outbound: u128,
        own: u128,
        answer: Vec<(String, u128)>,
        punted_type: Py<PyType>,
        miss_type: Py<PyType>,
        selectors_type: Py<PyType>,
        key_type: Py<PyType>,
        whole: Py<PyAny>,
        limit: usize,
        limit_each: usize,
    ) -> PyResult<Self> {
        let fields = Fields {
            count,
            port: share.0,
            interface: share.1,
            reason: share.2,
            stage,
            origin,
            is_local,
            bundle,
            list: list_id,
            misses,
            inbound,
            outbound,
            own,
            answer: answer.into_iter().map(origin_of).collect::<PyResult<_>>()?,
        };
        if !fields.are_valid() {
            let problem = "a position is not less than the number of values";
            return Err(PyValueError::new_err(problem));
        }
        let queue = punts::PuntQueue::new(fields, limit, limit_each)
            .map_err(|error| io_error(&error, "making a queue of punted packets"))?;
        let types = Types {
            new: py.get_type::<PyTuple>().getattr("__new__")?.unbind(),
            punted: punted_type,
            miss: miss_type,
            selectors: selectors_type,
            key: key_type,
            whole,
        };
        Ok(Self {
            queue: Arc::new(queue),
            types: Arc::new(types),
        })
    }

    fn fileno(&self) -> i32 {
        self.queue.descriptor()
    }

    fn set_limit(&self, limit: usize, limit_each: usize) {
        self.queue
            .update(|queue| queue.set_limit(limit, limit_each));
    }

    fn __len__(&self) -> usize {
        self.queue.update(|queue| queue.len())
    }

    fn dropped(&self) -> BTreeMap<u128, u64> {
        self.queue.update(|queue| queue.dropped().clone())
    }

    fn put(&self, frame: &[u8], metadata: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let packet = PacketIn {
            payload: Bytes::copy_from_slice(frame),
            metadata: metadata_values(metadata)?.into(),
        };
        Ok(self.queue.fits(&packet) && self.queue.put(packet))
    }

    fn take<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let packets = self.queue.take(limit);
        packets
            .into_iter()
            .map(|packet| {
                let Some(miss) = self.queue.fields().miss(&packet) else {
                    return self.types.punted(py, &packet);
                };
                let punt = Punt {
                    packet: packet.clone(), // shares the frame
                    queue: Arc::clone(&self.queue),
                    types: Arc::clone(&self.types),
                };
                self.types.miss(py, &miss, punt)
            })
            .collect()
    }
}

fn origin_of((kind, value): (String, u128)) -> PyResult<Origin> {
    let position = || {
        usize::try_from(value).map_err(|_| PyValueError::new_err(format!("{value} is no position")))
    };
    match kind.as_str() {
        "constant" => Ok(Origin::Constant(value)),
        "punted" => Ok(Origin::Punted(position()?)),
        "answer" => Ok(Origin::Answer(position()?)),
        _ => Err(PyValueError::new_err(format!("unknown origin {kind:?}"))),
    }
}

/// A first packet that waits for its answer.
#[pyclass(module = "sluice._native", frozen)]
pub(super) struct Punt {
    packet: PacketIn,
    queue: Arc<punts::PuntQueue>,
    types: Arc<Types>,
}

impl Punt {
    pub(super) fn frame(&self) -> &[u8] {
        &self.packet.payload
    }

    /// Computes the metadata of the packet-out that re-injects this packet.
    pub(super) fn answered(&self, answer: &[u128], values: &mut Vec<u128>) -> PyResult<()> {
        self.queue
            .fields()
            .answer(&self.packet.metadata, answer, values)
            .ok_or_else(|| PyValueError::new_err("the answer to a first packet lacks values"))
    }
}

#[pymethods]
impl Punt {
    fn packet<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.types.punted(py, &self.packet)
    }

    fn metadata<'py>(
        &self,
        py: Python<'py>,
        answer: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut values = Vec::new();
        self.answered(&metadata_values(answer)?, &mut values)?;
        value_tuple(py, &values)
    }
}
