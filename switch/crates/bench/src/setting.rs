// SPDX-License-Identifier: Apache-2.0
//! What holds for a whole run: how much to measure, the input, and DPDK if it is there.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::measure::{Effort, Rates};
use crate::peers::dpdk::Dpdk;
use crate::report::{OURS, Report};

/// How many fine rounds make up a round.
const FINER: usize = 6;

/// How a run is to be done.
pub(crate) struct Setting {
    /// Tiny tables and short rounds, to see that everything works.
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// A file of prefixes.
    pub(crate) table: Option<PathBuf>,
    /// The library of DPDK's peers.
    pub(crate) library: Option<PathBuf>,
    /// The processor that everything runs on.
    pub(crate) processor: u32,
    started: OnceCell<Result<Dpdk, String>>,
}

impl Setting {
    /// A setting; DPDK is started when somebody asks for it.
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

    /// How much to measure.
    pub(crate) fn effort(&self) -> Effort {
        Effort {
            rounds: self.rounds,
            time: Duration::from_millis(if self.quick { 1 } else { 60 }),
        }
    }

    /// As much in more and shorter rounds, for those who differ by little: what disturbs then disturbs all of
    /// them, and the median round is the undisturbed one.
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

    /// A report with nothing in it.
    pub(crate) fn report(&self, unit: &'static str) -> Report {
        let mut report = Report {
            unit,
            ..Report::default()
        };
        report.note("rounds", self.rounds);
        report
    }

    /// DPDK, which these peers need; without it the report says that they are missing.
    /// They have `heap_bytes` together, as the first who asks says.
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

    /// Says on standard error what is being done.
    pub(crate) fn progress(&self, what: &str) {
        if !self.quick {
            eprintln!("{what}");
        }
    }

    /// Says on standard error what was found.
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
