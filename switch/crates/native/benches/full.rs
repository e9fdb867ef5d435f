// SPDX-License-Identifier: Apache-2.0
//! Measures the CPU time per packet of the router program with full tables. The program runs as native code, with
//! packets in memory.
//!
//! There are a million routes, and a million flows of an outbound policy list. Consecutive packets belong to different
//! flows, so memory latency dominates the lookups. The benchmark alternates between two modes: one packet after the
//! other, and several packets concurrently in lanes.
//!
//! `cargo bench -p sluice-native --bench full -- ROUTES FLOWS RUNS PACKETS FAR` prints the thread's CPU time per packet
//! in nanoseconds: median, minimum and maximum. Lanes yield in lookups of tables with at least `FAR` entries. With few
//! entries and a smaller `FAR`, the result shows the cost of yielding alone.

#[path = "../tests/cases/mod.rs"]
mod cases;
mod common;
#[path = "../tests/traces/mod.rs"]
mod traces;

use std::sync::Arc;

use sluice_engine::{Config, PacketIn};
use sluice_native::{Lanes, Native};

use common::{Count, cpu_time};

const ROUTES: usize = 1_000_000;
const FLOWS: usize = 1 << 20;
const RUNS: usize = 5;
const BATCH: usize = 64;
/// Packets per run.
const PACKETS: usize = 1 << 20;
const FRAME: usize = 60;

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    let (routes, flows, runs) = (number(0, ROUTES), number(1, FLOWS), number(2, RUNS));
    let packets = number(3, PACKETS);
    let mut bench =
        cases::Bench::<Native>::load(&traces::program()).unwrap_or_else(|error| panic!("{error}"));
    let run = bench.run_text(&traces::full::tables(), "tables");
    run.unwrap_or_else(|error| panic!("{error}"));
    traces::full::fill_tables(&bench.store, routes, flows);
    let frames: Vec<u8> = traces::full::packets(routes, flows).flatten().collect();
    let code = Arc::clone(bench.switch.engine().code());
    let far = numbers.get(4).map_or(Lanes::FAR, |far| *far as u64);
    let lanes = Lanes::new(&code, &Config::default(), far);
    let lanes = lanes.expect("there is memory for the stacks");
    let mut lanes = lanes.expect("the router draws no random numbers");
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        times[0].push(in_turn(&mut bench, &frames, packets));
        times[1].push(in_lanes(&mut bench, &mut lanes, &frames, packets));
    }
    println!("{routes} routes, {flows} flows, nanoseconds a packet:");
    for (name, mut times) in ["one after the other", "in lanes"].into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (low, high) = (times[0], times[runs - 1]);
        println!("  {name}: {:.0} ({low:.0} to {high:.0})", times[runs / 2]);
    }
}

/// Processes packets in lanes. Returns nanoseconds per packet.
fn in_lanes(
    bench: &mut cases::Bench<Native>,
    lanes: &mut Lanes,
    frames: &[u8],
    packets: usize,
) -> f64 {
    let mut sink = Count::default();
    let mut frames = frames.chunks(FRAME).cycle();
    let start = cpu_time();
    for batch in 0..packets / BATCH {
        let tables = bench.reader.pin();
        let externs = bench.store.externs();
        lanes.batch(&tables, externs, &mut sink, |lanes| {
            for data in frames.by_ref().take(BATCH) {
                lanes.process(PacketIn {
                    data,
                    port: 1,
                    now_us: batch as u64,
                });
            }
        });
    }
    let elapsed = cpu_time() - start;
    assert_eq!(sink.0, packets / BATCH * BATCH, "a packet was not sent");
    elapsed as f64 / sink.0 as f64
}

/// Processes packets one after the other. Returns nanoseconds per packet.
fn in_turn(bench: &mut cases::Bench<Native>, frames: &[u8], packets: usize) -> f64 {
    let mut sink = Count::default();
    let mut frames = frames.chunks(FRAME).cycle();
    let start = cpu_time();
    for batch in 0..packets / BATCH {
        let tables = bench.reader.pin();
        for data in frames.by_ref().take(BATCH) {
            let input = PacketIn {
                data,
                port: 1,
                now_us: batch as u64,
            };
            let externs = bench.store.externs();
            bench.switch.process(&tables, externs, input, &mut sink);
        }
    }
    let elapsed = cpu_time() - start;
    assert_eq!(sink.0, packets / BATCH * BATCH, "a packet was not sent");
    elapsed as f64 / sink.0 as f64
}
