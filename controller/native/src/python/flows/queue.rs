// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `FlowQueue` and `FlowBatch`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::cache::FlowCache;
use super::encoder::FlowEncoder;
use super::types::{FlowTypes, read_verdict};
use crate::flows::cache::{Cache, Operation, Outcome, WriteAnswer};
use crate::flows::queue::{ListWrite, WriteQueue};
use crate::mailbox::lock;
use crate::python::punts::FirstPacket;

/// List, outcome, number of offered flows, and number of flows that were evicted to
/// make room for them.
type ToldOffers<'py> = (u32, Bound<'py, PyAny>, usize, usize);
/// Operation, result, and number of writes.
type ToldResults<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, usize);
/// Encoders of IPv4 and IPv6 flows.
type Encoders = (Py<FlowEncoder>, Py<FlowEncoder>);

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct FlowQueue {
    types: Py<FlowTypes>,
    caches: HashMap<u32, Arc<Mutex<Cache>>>,
    queue: Mutex<WriteQueue>,
}

/// How many flows of one list had one outcome, and how many flows were evicted to make
/// room for them.
struct Offered {
    list: u32,
    outcome: Outcome,
    flows: usize,
    evicted: usize,
}

#[pymethods]
impl FlowQueue {
    #[new]
    fn new(py: Python<'_>, types: Py<FlowTypes>, caches: HashMap<u32, Py<FlowCache>>) -> Self {
        let caches = caches.into_iter();
        let caches = caches.map(|(list, cache)| (list, Arc::clone(&cache.bind(py).get().cache)));
        Self {
            types,
            caches: caches.collect(),
            queue: Mutex::default(),
        }
    }

    fn __len__(&self) -> usize {
        lock(&self.queue).len()
    }

    fn unanswered(&self, list_id: u32) -> usize {
        lock(&self.queue).unanswered(list_id)
    }

    fn push(&self, list_id: u32, writes: &Bound<'_, PyAny>) -> PyResult<()> {
        let types = self.types.get();
        let read = writes.try_iter()?.map(|write| types.read_write(&write?));
        let mut read = read.collect::<PyResult<Vec<_>>>()?;
        lock(&self.queue).push(list_id, &mut read);
        Ok(())
    }

    /// Offers the flows of first packets to the caches of their lists. Returns the
    /// numbers of flows by list and outcome.
    fn offer<'py>(
        &self,
        py: Python<'py>,
        offers: Vec<Bound<'py, PyTuple>>,
        held: HashSet<u32>,
        now: f64,
    ) -> PyResult<Vec<ToldOffers<'py>>> {
        let (mut offered, mut writes) = (Vec::<Offered>::new(), Vec::new());
        // Converted once and reused, because most packets of one call have the same few
        // verdicts.
        let mut known = None;
        for offer in offers {
            let packet = offer.get_item(0)?;
            let packet = packet.cast::<FirstPacket>()?.get();
            let given = offer.get_item(1)?;
            let verdict = match &known {
                Some((object, verdict)) if given.is(object) => *verdict,
                _ => {
                    let verdict = read_verdict(&given)?;
                    known = Some((given, verdict));
                    verdict
                }
            };
            let list = packet.list();
            let outcome = match self.caches.get(&list) {
                None => Outcome::Unread,
                Some(_) if held.contains(&list) => Outcome::Held,
                Some(cache) => lock(cache).offer(*packet.key(), verdict, now, &mut writes),
            };
            let evicted = match outcome {
                Outcome::Installed => writes.len().saturating_sub(1),
                _ => 0,
            };
            lock(&self.queue).push(list, &mut writes);
            let same = |one: &&mut Offered| one.list == list && one.outcome == outcome;
            match offered.iter_mut().find(same) {
                Some(one) => {
                    one.flows += 1;
                    one.evicted += evicted;
                }
                None => offered.push(Offered {
                    list,
                    outcome,
                    flows: 1,
                    evicted,
                }),
            }
        }
        let types = self.types.get();
        let told = offered.into_iter().map(|one| {
            let outcome = types.offer(py, one.outcome).clone();
            (one.list, outcome, one.flows, one.evicted)
        });
        Ok(told.collect())
    }

    fn first(&self, py: Python<'_>, limit: usize) -> FlowBatch {
        FlowBatch {
            writes: lock(&self.queue).first(limit),
            types: self.types.clone_ref(py),
        }
    }

    fn sent(&self, batch: &Bound<'_, FlowBatch>) {
        lock(&self.queue).sent(batch.get().writes.len());
    }

    /// Processes the results of a batch of writes. An empty list of results means that
    /// all writes succeeded.
    fn written<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, FlowBatch>,
        results: Vec<Bound<'py, PyAny>>,
        now: f64,
    ) -> PyResult<Vec<ToldResults<'py>>> {
        let types = self.types.get();
        let batch = &batch.get().writes;
        let answers = results.iter().map(|result| types.read_answer(result));
        let answers = answers.collect::<PyResult<Vec<_>>>()?;
        if !answers.is_empty() && answers.len() < batch.len() {
            return Err(PyValueError::new_err("fewer results than writes"));
        }
        let mut counts = [[0; WriteAnswer::ALL.len()]; Operation::ALL.len()];
        let mut writes = Vec::new();
        for (at, one) in batch.iter().enumerate() {
            let answer = answers.get(at).copied().unwrap_or(WriteAnswer::Done);
            counts[one.write.operation as usize][answer as usize] += 1;
            if let Some(cache) = self.caches.get(&one.list) {
                lock(cache).written(&one.write, answer, now, &mut writes);
            }
            let mut queue = lock(&self.queue);
            queue.answered(one.list);
            queue.push(one.list, &mut writes);
        }
        let mut told = Vec::new();
        for (operation, counts) in Operation::ALL.into_iter().zip(counts) {
            for (answer, number) in WriteAnswer::ALL.into_iter().zip(counts) {
                if number > 0 {
                    let operation = types.operation(py, operation).clone();
                    told.push((operation, types.result(py, answer).clone(), number));
                }
            }
        }
        Ok(told)
    }
}

#[pyclass(module = "sluice._native", frozen)]
pub(in crate::python) struct FlowBatch {
    writes: Vec<ListWrite>,
    types: Py<FlowTypes>,
}

#[pymethods]
impl FlowBatch {
    fn __len__(&self) -> usize {
        self.writes.len()
    }

    fn writes<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u32, Bound<'py, PyAny>)>> {
        let types = self.types.get();
        let writes = self.writes.iter();
        writes
            .map(|one| Ok((one.list, types.make_write(py, &one.write)?)))
            .collect()
    }

    fn list_ids(&self) -> HashSet<u32> {
        self.writes.iter().map(|one| one.list).collect()
    }

    fn updates<'py>(
        &self,
        py: Python<'py>,
        encoders: HashMap<u32, Encoders>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let writes = self.writes.iter();
        writes
            .map(|one| {
                let of_list = encoders.get(&one.list);
                let (ipv4, ipv6) = of_list.ok_or_else(|| PyKeyError::new_err(one.list))?;
                let encoder = if one.write.key.is_ipv6() { ipv6 } else { ipv4 };
                encoder.get().update(py, one.list, &one.write)
            })
            .collect()
    }
}
