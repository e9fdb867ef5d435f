// SPDX-License-Identifier: Apache-2.0
//! Implements the Python function `flow_update`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::p4runtime::flow_update::encode;

/// Encodes the update of a flow. The first five values of `key` are addresses, protocol and ports.
#[pyfunction]
pub(super) fn flow_update<'py>(
    py: Python<'py>,
    kind: u8,
    head: &[u8],
    fields: &[u8],
    key: &Bound<'py, PyTuple>,
    action: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let source = key.get_item(0)?.cast_into::<PyBytes>()?;
    let destination = key.get_item(1)?.cast_into::<PyBytes>()?;
    let number = |position: usize| -> PyResult<[u8; 2]> {
        Ok(key.get_item(position)?.extract::<u16>()?.to_be_bytes())
    };
    let (protocol, from, to) = (number(2)?, number(3)?, number(4)?);
    let values: [&[u8]; 5] = [
        source.as_bytes(),
        destination.as_bytes(),
        &protocol,
        &from,
        &to,
    ];
    let mut matches = [(0, &[][..]); 5];
    for (place, pair) in matches.iter_mut().zip(fields.iter().zip(values)) {
        *place = (*pair.0, pair.1);
    }
    let encoded = encode(kind, head, &matches, action);
    let message =
        encoded.ok_or_else(|| PyValueError::new_err("a field id or value is too long"))?;
    Ok(PyBytes::new(py, &message))
}
