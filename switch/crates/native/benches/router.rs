// SPDX-License-Identifier: Apache-2.0
//! Measures the CPU time per packet of the router program, with packets in memory: `cargo bench -p sluice-native`.
//!
//! Packets go to 4,096 destinations, by 4,096 routes of length /24 (IPv4) or /48 (IPv6). The routes have 16 next hops,
//! or one group of 8 next hops. Prints the median, minimum and maximum of eleven runs.
//!
//! `cargo bench -p sluice-native -- PACKETS RUNS` sets the numbers of packets and runs. To count instructions with
//! callgrind, use one run, and take the difference between two numbers of packets.

#[path = "../tests/cases/mod.rs"]
mod cases;
mod common;
#[path = "../tests/traces/mod.rs"]
mod traces;

use sluice_engine::PacketIn;
use sluice_interpreter::Interpreter;
use sluice_native::Native;

use common::{Count, cpu_time};

const PACKETS: usize = 100_000;
const RUNS: usize = 11;
const BATCH: usize = 32;

/// Number of packets per run, and number of runs.
#[derive(Clone, Copy)]
struct Amount {
    packets: usize,
    runs: usize,
}

impl Amount {
    /// Parses the command line. Ignores the `--bench` that cargo adds.
    fn from_arguments() -> Self {
        let numbers = std::env::args()
            .skip(1)
            .filter_map(|argument| argument.parse().ok());
        let numbers: Vec<usize> = numbers.filter(|number| *number > 0).collect();
        Self {
            packets: numbers.first().copied().unwrap_or(PACKETS),
            runs: numbers.get(1).copied().unwrap_or(RUNS),
        }
    }
}

fn measure<E: cases::Runs>(
    bench: &mut cases::Bench<E>,
    name: &str,
    packets: &[Vec<u8>],
    amount: Amount,
) {
    let mut nanoseconds = Vec::new();
    for _ in 0..amount.runs {
        let mut sink = Count::default();
        let start = cpu_time();
        for batch in 0..amount.packets.div_ceil(BATCH) {
            let tables = bench.reader.pin();
            for index in 0..BATCH {
                let data = &packets[(batch * BATCH + index) % packets.len()];
                let input = PacketIn {
                    data,
                    port: 1,
                    now_us: batch as u64,
                };
                bench
                    .switch
                    .process(&tables, bench.store.externs(), input, &mut sink);
            }
        }
        let elapsed = cpu_time() - start;
        let sent = amount.packets.div_ceil(BATCH) * BATCH;
        assert_eq!(sink.0, sent, "{name}: a packet was not sent");
        nanoseconds.push(elapsed as f64 / sink.0 as f64);
    }
    nanoseconds.sort_by(f64::total_cmp);
    let (low, high) = (nanoseconds[0], nanoseconds[amount.runs - 1]);
    println!(
        "{name}: {:.0} ns a packet ({low:.0} to {high:.0})",
        nanoseconds[amount.runs / 2]
    );
}

fn main() {
    let amount = Amount::from_arguments();
    run::<Interpreter>("interpreter", amount);
    run::<Native>("native", amount);
}

fn run<E: cases::Runs>(engine: &str, amount: Amount) {
    let mut bench =
        cases::Bench::<E>::load(&traces::program()).unwrap_or_else(|error| panic!("{error}"));
    bench
        .run_text(&traces::router::tables(), "tables")
        .unwrap_or_else(|error| panic!("{error}"));
    for (name, packets) in [
        ("IPv4", traces::router::ipv4()),
        ("IPv4 through a group", traces::router::through_a_group()),
        ("IPv6", traces::router::ipv6()),
    ] {
        measure(&mut bench, &format!("{engine}: {name}"), &packets, amount);
    }
}
