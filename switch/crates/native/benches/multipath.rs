// SPDX-License-Identifier: Apache-2.0
//! Measures the cost of equal-cost multipath: `make bench-multipath`.
//!
//! Runs the router program as native code, with packets in memory. In the case *single-path* a route has one next hop,
//! and there are no groups. In *unused* there is also a group that the route does not use. In *used* the route has a
//! group of 1 to 64 members. Prints every round as JSON, as `sluice-bench` does.
//!
//! Each round creates new switches and keeps the old ones, so that code and data get other memory addresses. These
//! addresses change the result by a few nanoseconds, about as much as a group costs. If all rounds used the same
//! switch, its addresses would bias all rounds in the same direction.
//!
//! `cargo bench -p sluice-native --bench multipath -- [--rounds N] [--quick] [--only CASE]`. To count instructions, run
//! a single case (0 is *single-path*) twice, with different numbers of rounds, and take the difference.

#[path = "../tests/cases/mod.rs"]
mod cases;
mod common;
#[path = "../tests/traces/mod.rs"]
mod traces;

use serde_json::json;
use sluice_engine::PacketIn;
use sluice_native::Native;

use common::{Count, cpu_time};

const BATCH: usize = 32;
/// Number of passes over the packets per round.
const PASSES: usize = 32;
const ROUNDS: usize = 7;

/// A case: its name, its tables as case file commands, and its measured rates.
struct Case {
    name: String,
    tables: String,
    rounds: Vec<f64>,
}

impl Case {
    /// Creates a switch with the case's tables.
    fn switch(&self) -> cases::Bench<Native> {
        let bench = cases::Bench::load(&traces::program());
        let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
        let run = bench.run_text(&self.tables, "tables");
        run.unwrap_or_else(|error| panic!("{error}"));
        bench
    }
}

/// Returns the rate in packets per second of this thread's CPU time.
fn rate(bench: &mut cases::Bench<Native>, packets: &[Vec<u8>], passes: usize) -> f64 {
    let mut sink = Count::default();
    let start = cpu_time();
    for pass in 0..passes {
        for batch in packets.chunks(BATCH) {
            let tables = bench.reader.pin();
            for data in batch {
                let now_us = pass as u64;
                let input = PacketIn {
                    data,
                    port: 1,
                    now_us,
                };
                let externs = bench.store.externs();
                bench.switch.process(&tables, externs, input, &mut sink);
            }
        }
    }
    let elapsed = cpu_time() - start;
    assert_eq!(sink.0, passes * packets.len(), "a packet was not sent");
    sink.0 as f64 * 1e9 / elapsed.max(1) as f64
}

/// Returns the number that follows a flag on the command line.
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
    let mut cases: Vec<Case> = cases
        .filter(|(index, _)| only.is_none_or(|only| only == *index))
        .map(|(_, (name, tables))| Case {
            name,
            tables,
            rounds: Vec::new(),
        })
        .collect();
    // The old switches stay allocated, so the switches of the next round get other addresses.
    let mut switches = Vec::new();
    for round in 0..rounds {
        let mut made: Vec<_> = cases.iter().map(Case::switch).collect();
        for bench in &mut made {
            rate(bench, &packets, passes);
        }
        let count = cases.len();
        for turn in 0..count {
            let at = (round + turn) % count;
            let rate = rate(&mut made[at], &packets, passes);
            cases[at].rounds.push(rate);
        }
        switches.push(made);
    }
    let shown = |case: &Case| {
        json!({
            "workload": case.name,
            "kind": if case.name == "unused" { "unused" } else { "used" },
            "ours": case.rounds,
            "peers": {"single-path": cases[0].rounds},
            "details": {},
        })
    };
    let shown: Vec<_> = cases[1..].iter().map(shown).collect();
    let report = json!({
        "unit": "packets per second of one core",
        "cases": shown,
        "memory": [],
        "missing": {},
        "input": {"packets": "60 bytes, IPv4, one route", "rounds": rounds.to_string()},
        "versions": {},
    });
    println!("{report}");
}
