// SPDX-License-Identifier: Apache-2.0
//! Measures lookups and changes on lists that resemble access lists:
//! `cargo run --release -p sluice-classifier --example measure -- COUNT...`.

use std::time::Instant;

use sluice_classifier::sample::{self, KEY_BYTES, Shape};
use sluice_classifier::{Classifier, Precedence, Rule};

/// `PACKETS` is the number of packets in a trace. `BATCH` is the number of packets that one call
/// looks up.
const PACKETS: usize = 1 << 16;
const BATCH: usize = 256;
const ROUNDS: usize = 15;

fn main() {
    let counts: Vec<usize> = std::env::args()
        .skip(1)
        .flat_map(|count| count.parse())
        .collect();
    for shape in [Shape::AccessList, Shape::Firewall, Shape::Chain] {
        for count in &counts {
            measure(shape, *count);
        }
    }
}

fn measure(shape: Shape, count: usize) {
    let rules = sample::rules(shape, count, 1);
    let trace = sample::trace(&rules, PACKETS, 2);
    let start = Instant::now();
    let mut list = Classifier::new(KEY_BYTES, &[8..10, 10..12]);
    for (index, rule) in rules.iter().enumerate() {
        let (value, bounds) = rule.parts();
        let precedence = Precedence {
            priority: -(index as i32),
            sequence: 0,
        };
        list.insert(
            Rule {
                value: &value,
                bounds: &bounds,
            },
            precedence,
            index as u32,
        );
    }
    let inserted = start.elapsed().as_secs_f64() / count as f64;
    let mut found = vec![0; PACKETS];
    let batch = least(|| {
        let keys = trace.chunks(BATCH).zip(found.chunks_mut(BATCH));
        keys.for_each(|(keys, found)| list.lookup_batch(keys.as_flattened(), found));
    });
    let single = least(|| {
        trace.iter().for_each(|key| {
            std::hint::black_box(list.lookup(key));
        });
    });
    let mut sums = [0; 3];
    for effort in trace.iter().map(|key| list.effort(key)) {
        let parts = [effort.nodes, effort.leaves, effort.rules];
        sums.iter_mut()
            .zip(parts)
            .for_each(|(sum, part)| *sum += part);
    }
    let [nodes, leaves, compared] = sums.map(|sum| sum as f64 / PACKETS as f64);
    let memory = list.memory_bytes() / count;
    println!(
        "{shape:?} {count}: {batch:.1} ns in batches, {single:.1} ns alone; {nodes:.1} nodes, \
         {leaves:.1} leaves, {compared:.1} rules; {memory} bytes a rule, {:.1} us an insertion",
        inserted * 1e6
    );
}

/// Runs several rounds over the trace. Returns the time of the fastest round, in nanoseconds per
/// packet.
fn least(mut round: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / PACKETS as f64
    });
    times.fold(f64::INFINITY, f64::min)
}
