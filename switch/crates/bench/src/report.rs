// SPDX-License-Identifier: Apache-2.0
//! Formats the benchmark's output as JSON, with every round of every contender. The Python package `bench` computes
//! medians and ratios from this output, compares them with its limits (bars), and writes all results.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::measure::Rates;

/// Name of the contender that is the structure under test.
pub(crate) const OURS: &str = "ours";

/// Measurements of one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) workload: String,
    /// Kind of this case. Selects the limit (bar) that applies to the case.
    pub(crate) kind: &'static str,
    pub(crate) ours: Vec<f64>,
    pub(crate) peers: BTreeMap<String, Vec<f64>>,
    pub(crate) details: BTreeMap<String, String>,
}

impl Case {
    /// Creates a case from measured rates, which must include [`OURS`].
    pub(crate) fn new(workload: impl Into<String>, kind: &'static str, rates: &[Rates]) -> Self {
        let (mut ours, mut peers) = (Vec::new(), BTreeMap::new());
        for rates in rates {
            if rates.name == OURS {
                ours.clone_from(&rates.rounds);
            } else {
                peers.insert(rates.name.clone(), rates.rounds.clone());
            }
        }
        Self {
            workload: workload.into(),
            kind,
            ours,
            peers,
            details: BTreeMap::new(),
        }
    }

    /// Records a detail of the measurement.
    pub(crate) fn detail(&mut self, name: &str, value: impl ToString) {
        self.details.insert(name.into(), value.to_string());
    }
}

/// Memory, in bytes, of our structure and of the peers' structures for the same content.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) workload: String,
    pub(crate) ours: usize,
    pub(crate) peers: BTreeMap<String, usize>,
}

/// Measurements of one benchmark.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) unit: &'static str,
    pub(crate) cases: Vec<Case>,
    pub(crate) memory: Vec<Memory>,
    /// Peers that were not measured in some or all cases, with the reason.
    pub(crate) missing: BTreeMap<String, String>,
    /// Description of the benchmark's input.
    pub(crate) input: BTreeMap<String, String>,
    /// Versions of the peers.
    pub(crate) versions: BTreeMap<String, String>,
}

impl Report {
    /// Records a fact about the input.
    pub(crate) fn note(&mut self, name: &str, value: impl ToString) {
        self.input.insert(name.into(), value.to_string());
    }

    /// Records a peer that is not measured, with the reason. Keeps the first reason for each peer.
    pub(crate) fn misses(&mut self, peer: &str, why: impl Into<String>) {
        self.missing.entry(peer.into()).or_insert(why.into());
    }
}
