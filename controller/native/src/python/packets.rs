// SPDX-License-Identifier: Apache-2.0
//! Converts packets and metadata values between Rust and Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple};

use crate::p4runtime::packet::PacketIn;

/// Converts the metadata values of a packet.
pub(super) fn metadata_values(values: &Bound<'_, PyTuple>) -> PyResult<Vec<u128>> {
    values.iter().map(|value| metadata_value(&value)).collect()
}

/// Converts a metadata value. Values that fit in 64 bits are converted faster.
pub(super) fn metadata_value(value: &Bound<'_, PyAny>) -> PyResult<u128> {
    let value = value.cast::<PyInt>()?;
    match value.extract::<u64>() {
        Ok(value) => Ok(value.into()),
        Err(_) => value.extract::<u128>().map_err(|_| {
            PyValueError::new_err(format!(
                "metadata value {value} is negative or wider than 128 bits"
            ))
        }),
    }
}

/// Creates Python's list of packets with metadata, as in the event ("packet_in", ...).
pub(super) fn packet_list(py: Python<'_>, packets: Vec<PacketIn>) -> PyResult<Bound<'_, PyList>> {
    let mut objects = Vec::with_capacity(packets.len());
    for packet in packets {
        let metadata = value_tuple(py, &packet.metadata)?;
        objects.push((PyBytes::new(py, &packet.payload), metadata).into_pyobject(py)?);
    }
    PyList::new(py, objects)
}

/// Creates Python's tuple of metadata values. Nearly all values fit in 64 bits, and Python creates
/// such integers much faster than wider ones.
pub(super) fn value_tuple<'py>(py: Python<'py>, values: &[u128]) -> PyResult<Bound<'py, PyTuple>> {
    let values = values.iter().map(|value| match u64::try_from(*value) {
        Ok(value) => Ok(value.into_pyobject(py)?.into_any()),
        Err(_) => Ok(value.into_pyobject(py)?.into_any()),
    });
    PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)
}
