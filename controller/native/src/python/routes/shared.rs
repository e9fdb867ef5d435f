// SPDX-License-Identifier: Apache-2.0
//! Holds the state that the Python classes of one route table share.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::prefix::PrefixMaker;
use crate::mailbox::lock;
use crate::routes::read_back::Forms;
use crate::routes::slot::RouteSlot;
use crate::routes::table::Table;
use crate::routes::writes::Encoding;

/// Holds a table, and the Python objects whose numbers the table contains.
pub(super) struct SharedTable {
    pub(super) table: Mutex<Table>,
    pub(super) objects: Mutex<Objects>,
    pub(super) target_numbers: Py<PyDict>,
    pub(super) encoding: Mutex<Encoding>,
    pub(super) forms: Mutex<Forms>,
    pub(super) ready: Mutex<HashSet<u32>>,
    /// Records that were taken from a queue while a write of them was in flight. They are pinned.
    pub(super) postponed: Mutex<[Vec<u32>; 2]>,
    pub(super) maker: PrefixMaker,
}

/// Python objects by number. Numbers start at 1, and 0 means no object.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) targets: Vec<Py<PyAny>>,
    pub(super) entries: Vec<Option<Py<PyAny>>>,
    pub(super) free_entries: Vec<u32>,
}

impl SharedTable {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Returns the target with this number; `None` for 0.
    pub(super) fn target<'py>(&self, py: Python<'py>, number: u32) -> Option<Bound<'py, PyAny>> {
        let at = (number as usize).checked_sub(1)?;
        let objects = lock(&self.objects);
        objects
            .targets
            .get(at)
            .map(|target| target.bind(py).clone())
    }

    /// Returns the number of a target, by which the table refers to it. A new target gets the next number. Numbers
    /// are never reused.
    pub(super) fn target_number(&self, target: &Bound<'_, PyAny>) -> PyResult<u32> {
        let numbers = self.target_numbers.bind(target.py());
        if let Some(number) = numbers.get_item(target)? {
            return number.extract();
        }
        let number = {
            let targets = &mut lock(&self.objects).targets;
            targets.push(target.clone().unbind());
            targets.len() as u32
        };
        numbers.set_item(target, number)?;
        Ok(number)
    }

    /// Returns the number of a target, or 0 for `None`.
    pub(super) fn target_or_none(&self, target: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
        target.map_or(Ok(0), |target| self.target_number(target))
    }

    /// Returns the record number at which a walk continues, or `None` at the end of the table.
    pub(super) fn more(&self, next: u32) -> Option<u32> {
        (!self.table().is_end(next)).then_some(next)
    }

    pub(super) fn slots<'py>(
        &self,
        py: Python<'py>,
        slots: &[RouteSlot],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        slots.iter().map(|slot| self.maker.slot(py, slot)).collect()
    }
}
