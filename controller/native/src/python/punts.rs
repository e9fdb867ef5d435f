// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `PuntQueue` and `FirstPacket`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use super::errors::io_error;
use super::flows::types::key_parts;
use super::packets::{metadata_values, value_tuple};
use crate::flows::key::FlowKey;
use crate::p4runtime::packet::PacketIn;
use crate::punts::{self, Fields, NamedMiss, Origin};

/// The Python types, and the constructor of tuples.
#[derive(Debug)]
struct PythonTypes {
    new: Py<PyAny>,
    punted: Py<PyType>,
    selectors: Py<PyType>,
    key: Py<PyType>,
    whole: Py<PyAny>,
}

impl PythonTypes {
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
}

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct PuntQueue {
    pub(super) queue: Arc<punts::PuntQueue>,
    types: Arc<PythonTypes>,
}

#[pymethods]
impl PuntQueue {
    #[new]
    #[pyo3(signature = (*, count, share, stage, origin, is_local, bundle, list_id, misses, inbound,
        outbound, own, answer, punted_type, selectors_type, key_type, whole, limit, limit_each))]
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
        let types = PythonTypes {
            new: py.get_type::<PyTuple>().getattr("__new__")?.unbind(),
            punted: punted_type,
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
                let miss = self.queue.fields().miss(&packet);
                let Some(named) = miss.and_then(|miss| miss.named()) else {
                    return self.types.punted(py, &packet);
                };
                let first = FirstPacket {
                    packet,
                    named,
                    queue: Arc::clone(&self.queue),
                    types: Arc::clone(&self.types),
                };
                Ok(Bound::new(py, first)?.into_any())
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

/// A plain first packet of a flow, which waits for the verdict of Python.
#[pyclass(module = "sluice._native", frozen)]
pub(super) struct FirstPacket {
    packet: PacketIn,
    named: NamedMiss,
    queue: Arc<punts::PuntQueue>,
    types: Arc<PythonTypes>,
}

impl FirstPacket {
    pub(super) fn frame(&self) -> &[u8] {
        &self.packet.payload
    }

    /// Returns the policy list to search.
    pub(super) fn list(&self) -> u32 {
        self.named.list
    }

    /// Returns the flow's key in the list's flow cache.
    pub(super) fn key(&self) -> &FlowKey {
        &self.named.key
    }

    /// Returns source and destination port, if the protocol has ports.
    pub(super) fn ports(&self) -> Option<(u16, u16)> {
        let key = &self.named.key;
        self.named
            .has_ports
            .then_some((key.source_port, key.destination_port))
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
impl FirstPacket {
    #[getter]
    fn reason(&self) -> u64 {
        self.named.reason
    }

    #[getter]
    fn list_id(&self) -> u32 {
        self.named.list
    }

    fn packet<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.types.punted(py, &self.packet)
    }

    #[pyo3(name = "key")]
    fn python_key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let whole = self.types.whole.bind(py);
        let values = key_parts(py, &self.named.key, whole)?;
        self.types.make(py, &self.types.key, values)
    }

    fn selectors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let key = &self.named.key;
        let (from, to) = self.ports().unzip();
        let (icmp, mobility_type) = (py.None(), py.None());
        let values = (
            PyBytes::new(py, key.source()),
            PyBytes::new(py, key.destination()),
            key.protocol,
            from,
            to,
            icmp,
            key.is_local(),
            mobility_type,
        );
        self.types
            .make(py, &self.types.selectors, values.into_pyobject(py)?)
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
