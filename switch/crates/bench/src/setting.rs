// SPDX-License-Identifier: Apache-2.0
//! Holds the settings of a run: the effort, the input, and DPDK if it is available.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::measure::{Effort, Rates};
use crate::peers::dpdk::Dpdk;
use crate::report::{OURS, Report};

/// Number of short rounds that replace one normal round in [`Setting::fine_effort`].
const FINER: usize = 6;

/// Settings of a run.
pub(crate) struct Setting {
    /// Whether the run uses tiny tables and short rounds, only to check that everything works.
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// File with prefixes, if one is given.
    pub(crate) table: Option<PathBuf>,
    /// Library with DPDK's peers, if one is given.
    pub(crate) library: Option<PathBuf>,
    /// Number of the processor that runs the benchmark.
    pub(crate) processor: u32,
    started: OnceCell<Result<Dpdk, String>>,
}

impl Setting {
    /// Creates the settings. DPDK is started at its first use.
    pub(crate) fn new(
        quick: bool,
        rounds: usize,
        table: Option<PathBuf>,
        library: Option<PathBuf>,
        processor: u32,
    ) -> Self {
        Self {
            quick,
            rounds,
            table,
            library,
            processor,
            started: OnceCell::new(),
        }
    }

    /// Returns the number and the length of the rounds of a measurement.
    pub(crate) fn effort(&self) -> Effort {
        Effort {
            rounds: self.rounds,
            time: Duration::from_millis(if self.quick { 1 } else { 60 }),
        }
    }

    /// Returns the same total effort in more and shorter rounds. Useful for contenders that differ little: a short
    /// disturbance by another process affects only a few of the rounds, and so not the median.
    pub(crate) fn fine_effort(&self) -> Effort {
        let effort = self.effort();
        if self.quick {
            return effort;
        }
        Effort {
            rounds: effort.rounds * FINER,
            time: effort.time / FINER as u32,
        }
    }

    /// Creates an empty report.
    pub(crate) fn report(&self, unit: &'static str) -> Report {
        let mut report = Report {
            unit,
            ..Report::default()
        };
        report.note("rounds", self.rounds);
        report
    }

    /// Starts DPDK for these peers. If DPDK is not available, lists the peers as missing in the report. `heap_bytes`
    /// has an effect only in the first call, which sets the heap for all peers.
    pub(crate) fn dpdk(
        &self,
        peers: &[&str],
        heap_bytes: usize,
        report: &mut Report,
    ) -> Option<Dpdk> {
        match self.started.get_or_init(|| self.start(heap_bytes)) {
            Ok(dpdk) => {
                let version = dpdk.version().unwrap_or_default();
                report.versions.insert("DPDK".into(), version);
                Some(*dpdk)
            }
            Err(why) => {
                for peer in peers {
                    report.misses(peer, why);
                }
                None
            }
        }
    }

    fn start(&self, heap_bytes: usize) -> Result<Dpdk, String> {
        let library = self.library.as_ref();
        let library = library.ok_or("DPDK's development files are not installed")?;
        Dpdk::start(library, self.processor, heap_bytes).map_err(|why| format!("{why:#}"))
    }

    /// Prints the current step on standard error.
    pub(crate) fn progress(&self, what: &str) {
        if !self.quick {
            eprintln!("{what}");
        }
    }

    /// Prints the result of a workload on standard error.
    pub(crate) fn tell(&self, workload: &str, rates: &[Rates]) {
        if self.quick {
            return;
        }
        let million = |rates: &Rates| format!("{} {:.2} M/s", rates.name, rates.median() / 1e6);
        let ours = rates.iter().filter(|rates| rates.name == OURS);
        let peers = rates.iter().filter(|rates| rates.name != OURS);
        let all: Vec<String> = ours.chain(peers).map(million).collect();
        eprintln!("  {workload}: {}", all.join(", "));
    }
}
