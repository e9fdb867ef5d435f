// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `RouteTable` and `RouteBlock`.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::column::RouteColumn;
use super::memo::RouteRun;
use super::prefix::{Pairs, PrefixMaker, slot_of};
use super::queue::RouteQueue;
use super::shared::SharedTable;
use super::writes::RouteBatch;
use crate::mailbox::lock;
use crate::routes::memo::Meaning;
use crate::routes::read_back::{EntryHead, Forms};
use crate::routes::slot::RouteSlot;
use crate::routes::table::{Column, WriteQueue};

/// Prefixes that one step of a walk found, and the prefix after which the next
/// step starts.
type Walked<'py> = (Vec<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// Converts an argument to a prefix. Raises ValueError for any other object.
fn wanted(key: &Bound<'_, PyAny>) -> PyResult<RouteSlot> {
    slot_of(key).ok_or_else(|| PyValueError::new_err(format!("{key:?} is not a prefix of a VRF")))
}

fn bits(addresses: Vec<Bound<'_, PyBytes>>) -> PyResult<Vec<u128>> {
    let mut bits = addresses
        .iter()
        .map(|address| {
            let slot = RouteSlot::new(0, address.as_bytes(), 0);
            slot.map(|slot| slot.bits())
                .ok_or_else(|| PyValueError::new_err(format!("{address:?} is not an address")))
        })
        .collect::<PyResult<Vec<u128>>>()?;
    bits.sort_unstable();
    Ok(bits)
}

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct RouteTable(pub(super) Arc<SharedTable>);

impl RouteTable {
    fn column(&self, column: Column) -> RouteColumn {
        RouteColumn {
            shared: Arc::clone(&self.0),
            column,
        }
    }

    fn queue(&self, waiting: WriteQueue) -> RouteQueue {
        RouteQueue {
            shared: Arc::clone(&self.0),
            waiting,
        }
    }
}

#[pymethods]
impl RouteTable {
    #[new]
    fn new(slot: &Bound<'_, PyAny>, prefix: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(Arc::new(SharedTable {
            table: Mutex::default(),
            objects: Mutex::default(),
            target_numbers: PyDict::new(slot.py()).unbind(),
            encoding: Mutex::default(),
            forms: Mutex::default(),
            ready: Mutex::default(),
            postponed: Mutex::default(),
            maker: PrefixMaker::new(slot, prefix)?,
        })))
    }

    // -- columns and queues

    #[getter]
    fn desired(&self) -> RouteColumn {
        self.column(Column::Desired)
    }

    #[getter]
    fn installed(&self) -> RouteColumn {
        self.column(Column::Installed)
    }

    #[getter]
    fn upserts(&self) -> RouteQueue {
        self.queue(WriteQueue::Upserts)
    }

    #[getter]
    fn deletes(&self) -> RouteQueue {
        self.queue(WriteQueue::Deletes)
    }

    fn installed_uses(&self, target: &Bound<'_, PyAny>) -> PyResult<usize> {
        let number = self.0.target_number(target)?;
        Ok(self.0.table().uses_of_target(number))
    }

    // -- the routing daemon's routes

    fn add_entry(&self, entry: Py<PyAny>) -> u32 {
        let objects = &mut *lock(&self.0.objects);
        if let Some(number) = objects.free_entries.pop() {
            objects.entries[number as usize - 1] = Some(entry);
            return number;
        }
        objects.entries.push(Some(entry));
        objects.entries.len() as u32
    }

    fn drop_entry(&self, number: u32) -> PyResult<()> {
        if self.0.table().uses_of_entry(number) > 0 {
            return Err(PyValueError::new_err(format!("entry {number} is in use")));
        }
        let objects = &mut *lock(&self.0.objects);
        let at = (number as usize).checked_sub(1);
        let entry = at.and_then(|at| objects.entries.get_mut(at)?.take());
        if entry.is_some() {
            objects.free_entries.push(number);
        }
        Ok(())
    }

    fn entry_of(&self, py: Python<'_>, number: u32) -> Option<Py<PyAny>> {
        let objects = lock(&self.0.objects);
        let at = (number as usize).checked_sub(1)?;
        let entry = objects.entries.get(at)?.as_ref();
        entry.map(|entry| entry.clone_ref(py))
    }

    fn entry(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let number = self.0.table().entry(&wanted(key)?);
        Ok(self.entry_of(py, number))
    }

    fn set_entry(&self, key: &Bound<'_, PyAny>, number: u32) -> PyResult<()> {
        self.0.table().set_entry(wanted(key)?, number);
        Ok(())
    }

    fn entry_uses(&self, number: u32) -> usize {
        self.0.table().uses_of_entry(number)
    }

    fn routes(&self, vrf: u32) -> usize {
        self.0.table().routes(vrf)
    }

    fn lengths(&self, vrf: u32, size: u8) -> Vec<u32> {
        let lengths = self.0.table().lengths(vrf, size);
        lengths.into_iter().map(u32::from).collect()
    }

    // -- other values of prefixes

    #[pyo3(signature = (key, target))]
    fn set_onlink(
        &self,
        key: &Bound<'_, PyAny>,
        target: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let number = self.0.target_or_none(target)?;
        self.0.table().set_onlink(wanted(key)?, number);
        Ok(())
    }

    fn set_neighbors(
        &self,
        ipv4: Vec<Bound<'_, PyBytes>>,
        ipv6: Vec<Bound<'_, PyBytes>>,
    ) -> PyResult<()> {
        let neighbors = [bits(ipv4)?, bits(ipv6)?];
        self.0.table().set_neighbors(neighbors);
        Ok(())
    }

    #[pyo3(signature = (after, limit))]
    fn walk<'py>(
        &self,
        py: Python<'py>,
        after: Option<&Bound<'py, PyAny>>,
        limit: usize,
    ) -> PyResult<Walked<'py>> {
        let after = after.map(wanted).transpose()?;
        let (found, next) = self.0.table().walk(after, limit);
        let next = next.map(|slot| self.0.maker.slot(py, &slot)).transpose()?;
        Ok((self.0.slots(py, &found)?, next))
    }

    fn unwritten<'py>(
        &self,
        py: Python<'py>,
        start: u32,
        limit: usize,
    ) -> PyResult<(Pairs<'py>, Option<u32>)> {
        let (found, next) = self.0.table().unwritten(start, limit);
        let pairs = found.iter().map(|(slot, target)| {
            let key = self.0.maker.slot(py, slot)?;
            Ok((key, self.0.target(py, *target)))
        });
        Ok((pairs.collect::<PyResult<_>>()?, self.0.more(next)))
    }

    fn unwanted<'py>(
        &self,
        py: Python<'py>,
        start: u32,
        limit: usize,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Option<u32>)> {
        let (found, next) = self.0.table().unwanted(start, limit);
        Ok((self.0.slots(py, &found)?, self.0.more(next)))
    }

    // -- routes read back from the switch

    #[pyo3(signature = (entity, head, field, size, key, target))]
    fn learn_form(
        &self,
        entity: &[u8],
        head: &[u8],
        field: u8,
        size: usize,
        key: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let slot = wanted(key)?;
        let target = self.0.target_number(target)?;
        let head = EntryHead {
            encoded: head.into(),
            field,
            size,
            vrf: slot.vrf(),
        };
        lock(&self.0.forms).learn(head, entity, &slot, target);
        Ok(())
    }

    fn forget_forms(&self) {
        *lock(&self.0.forms) = Forms::default();
    }

    fn read_back(&self, response: &[u8], start: usize, limit: usize) -> (usize, usize) {
        let (found, end) = lock(&self.0.forms).read(response, start, limit);
        let mut table = self.0.table();
        for &(slot, target) in &found {
            table.set(slot, Column::Installed, target);
        }
        (found.len(), end)
    }

    // -- runs

    fn unknown_texts(&self, py: Python<'_>, run: &RouteRun) -> Vec<(u32, Option<Py<PyAny>>)> {
        let unknown = self.0.table().unknown_texts(&run.run);
        let texts = unknown.into_iter();
        texts.map(|number| (number, run.text(py, number))).collect()
    }

    fn set_updated(
        &self,
        text: u32,
        vrf: u32,
        entry: u32,
        target: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let target = self.0.target_number(target)?;
        let meaning = Meaning::Updated { vrf, entry, target };
        self.0.table().set_meaning(text, meaning);
        Ok(())
    }

    fn set_deleted(&self, text: u32, vrf: u32) {
        self.0.table().set_meaning(text, Meaning::Deleted { vrf });
    }

    fn forget_texts(&self) {
        self.0.table().forget_meanings();
    }

    fn apply(&self, run: &RouteRun) -> PyResult<(RouteBlock, Vec<u32>, bool)> {
        let applied = self.0.table().apply(&run.run);
        let applied =
            applied.ok_or_else(|| PyValueError::new_err("a text of the run has no meaning yet"))?;
        let block = RouteBlock {
            shared: Arc::clone(&self.0),
            length: applied.changes.len(),
            changes: Mutex::new(applied.changes),
        };
        Ok((block, applied.unused, applied.covers_neighbor))
    }

    fn take_in(&self, block: &RouteBlock) -> PyResult<()> {
        if !Arc::ptr_eq(&self.0, &block.shared) {
            return Err(PyValueError::new_err("the block belongs to another table"));
        }
        let changes = std::mem::take(&mut *lock(&block.changes));
        self.0.table().take_in(&changes);
        Ok(())
    }

    // -- writes

    fn in_flight(&self) -> usize {
        self.0.table().in_flight()
    }

    fn set_in_flight(&self, keys: &Bound<'_, PyAny>, under_way: bool) -> PyResult<()> {
        for key in keys.try_iter()? {
            let slot = wanted(&key?)?;
            self.0.table().mark_in_flight(slot, under_way);
        }
        Ok(())
    }

    fn is_in_flight(&self, key: &Bound<'_, PyAny>) -> bool {
        slot_of(key).is_some_and(|slot| self.0.table().is_in_flight(&slot))
    }

    fn clear_in_flight(&self) {
        self.0.table().clear_in_flight();
    }

    fn next_upserts(
        &self,
        py: Python<'_>,
        limit: usize,
        missing: &Bound<'_, PyAny>,
        encoding: &Bound<'_, PyAny>,
    ) -> PyResult<RouteBatch> {
        RouteBatch::next(
            py,
            &self.0,
            WriteQueue::Upserts,
            limit,
            Some(missing),
            encoding,
        )
    }

    fn next_deletes(
        &self,
        py: Python<'_>,
        limit: usize,
        encoding: &Bound<'_, PyAny>,
    ) -> PyResult<RouteBatch> {
        RouteBatch::next(py, &self.0, WriteQueue::Deletes, limit, None, encoding)
    }

    fn forget_ready(&self) {
        lock(&self.0.ready).clear();
    }

    fn requeue_postponed(&self) {
        let [upserts, deletes] = std::mem::take(&mut *lock(&self.0.postponed));
        let mut table = self.0.table();
        table.requeue(upserts, WriteQueue::Upserts);
        table.requeue(deletes, WriteQueue::Deletes);
    }
}

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct RouteBlock {
    shared: Arc<SharedTable>,
    length: usize,
    changes: Mutex<Vec<(u32, u32)>>,
}

#[pymethods]
impl RouteBlock {
    fn __len__(&self) -> usize {
        self.length
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Pairs<'py>> {
        let changes: Vec<(RouteSlot, u32)> = {
            let table = self.shared.table();
            let changes = lock(&self.changes);
            changes
                .iter()
                .map(|(number, target)| (table.slot(*number), *target))
                .collect()
        };
        changes
            .iter()
            .map(|(slot, target)| {
                let key = self.shared.maker.slot(py, slot)?;
                Ok((key, self.shared.target(py, *target)))
            })
            .collect()
    }
}

impl Drop for RouteBlock {
    fn drop(&mut self) {
        let changes = std::mem::take(&mut *lock(&self.changes));
        let mut table = self.shared.table();
        for (number, _) in changes {
            table.unpin(number);
        }
    }
}
