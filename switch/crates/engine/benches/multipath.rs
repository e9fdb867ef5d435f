// SPDX-License-Identifier: Apache-2.0
//! What equal-cost paths cost: `make bench-multipath`.
//!
//! The router program, native, packets in memory. *single-path*: a route to a next hop, no groups
//! at all. *unused*: the same route with groups beside it. *used*: the route leads to a group of 1
//! to 64 members. Prints every round as JSON, as `sluice-bench` does.
//!
//! `cargo bench -p sluice-engine --bench multipath -- [--rounds N] [--quick] [--only CASE]`; one case alone (0 is
//! *single-path*) is for counting instructions: the difference of two numbers of rounds. (Under valgrind it needs another
//! clock than [`cpu_time`], which reads the vdso and ends there.)

#[path = "../tests/cases/mod.rs"]
mod cases;
mod common;
#[path = "../tests/traces/mod.rs"]
mod traces;

use common::{Count, cpu_time};
use serde_json::json;
use sluice_engine::PacketIn;
use sluice_engine::native::Native;

const BATCH: usize = 32;
/// Passes over the packets in a round.
const PASSES: usize = 32;
const ROUNDS: usize = 7;

struct Lane {
    bench: cases::Bench<Native>,
    rounds: Vec<f64>,
}

impl Lane {
    fn new(tables: &str) -> Self {
        let bench = cases::Bench::load(&traces::program());
        let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
        let run = bench.run_text(tables, "tables");
        run.unwrap_or_else(|error| panic!("{error}"));
        Self {
            bench,
            rounds: Vec::new(),
        }
    }

    /// Packets per second of this thread's CPU time.
    fn round(&mut self, packets: &[Vec<u8>], passes: usize) -> f64 {
        let mut sink = Count::default();
        let start = cpu_time();
        for pass in 0..passes {
            for batch in packets.chunks(BATCH) {
                let side = self.bench.reader.pin();
                for data in batch {
                    let now_us = pass as u64;
                    let input = PacketIn {
                        data,
                        port: 1,
                        now_us,
                    };
                    let externs = self.bench.store.externs();
                    self.bench.switch.process(&side, externs, input, &mut sink);
                }
            }
        }
        let elapsed = cpu_time() - start;
        assert_eq!(sink.0, passes * packets.len(), "not every packet left");
        sink.0 as f64 * 1e9 / elapsed.max(1) as f64
    }
}

/// The number behind a flag of the command line.
fn number(flag: &str) -> Option<usize> {
    let mut words = std::env::args().skip_while(|word| word != flag);
    words.nth(1)?.parse().ok()
}

fn main() {
    let quick = std::env::args().any(|word| word == "--quick");
    let passes = if quick { 1 } else { PASSES };
    let rounds = number("--rounds").unwrap_or(ROUNDS);
    let only = number("--only");
    let packets = traces::multipath::packets();
    let cases = traces::multipath::cases().into_iter().enumerate();
    let mut lanes: Vec<(String, Lane)> = cases
        .filter(|(index, _)| only.is_none_or(|only| only == *index))
        .map(|(_, (name, tables))| (name, Lane::new(&tables)))
        .collect();
    for (_, lane) in &mut lanes {
        lane.round(&packets, passes);
    }
    for round in 0..rounds {
        let count = lanes.len();
        for turn in 0..count {
            let (_, lane) = &mut lanes[(round + turn) % count];
            let rate = lane.round(&packets, passes);
            lane.rounds.push(rate);
        }
    }
    let case = |(name, lane): &(String, Lane)| {
        json!({
            "workload": name,
            "kind": if name == "unused" { "unused" } else { "used" },
            "ours": lane.rounds,
            "peers": {"single-path": lanes[0].1.rounds},
            "details": {},
        })
    };
    let cases: Vec<_> = lanes[1..].iter().map(case).collect();
    let report = json!({
        "unit": "packets per second of one core",
        "cases": cases,
        "memory": [],
        "missing": {},
        "input": {"packets": "60 bytes, IPv4, one route", "rounds": rounds.to_string()},
        "versions": {},
    });
    println!("{report}");
}
