// SPDX-License-Identifier: Apache-2.0
//! Converts prefixes between Python's tuples and [`RouteSlot`].

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::routes::slot::RouteSlot;

/// List of prefixes, each with its target.
pub(super) type Pairs<'py> = Vec<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)>;

/// Converts a key to a prefix. Returns `None` if the key has another type.
pub(super) fn slot_of(key: &Bound<'_, PyAny>) -> Option<RouteSlot> {
    let key = key.cast::<PyTuple>().ok()?;
    if key.len() != 2 {
        return None;
    }
    let prefix = key.get_item(1).ok()?;
    let prefix = prefix.cast::<PyTuple>().ok()?;
    if prefix.len() != 2 {
        return None;
    }
    let address = prefix.get_item(0).ok()?;
    RouteSlot::new(
        key.get_item(0).ok()?.extract().ok()?,
        address.cast::<PyBytes>().ok()?.as_bytes(),
        prefix.get_item(1).ok()?.extract().ok()?,
    )
}

/// Creates prefixes as objects of Python's own tuple types.
pub(super) struct PrefixMaker {
    new: Py<PyAny>,
    slot: Py<PyAny>,
    prefix: Py<PyAny>,
}

impl PrefixMaker {
    pub(super) fn new(slot: &Bound<'_, PyAny>, prefix: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = slot.py();
        let new = py.get_type::<PyTuple>().getattr("__new__")?;
        Ok(Self {
            new: new.unbind(),
            slot: slot.clone().unbind(),
            prefix: prefix.clone().unbind(),
        })
    }

    pub(super) fn slot<'py>(
        &self,
        py: Python<'py>,
        slot: &RouteSlot,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (octets, size) = slot.address();
        let address = PyBytes::new(py, &octets[..size]);
        let new = self.new.bind(py);
        let prefix = new.call1((&self.prefix, (address, slot.length())))?;
        new.call1((&self.slot, (slot.vrf(), prefix)))
    }
}
