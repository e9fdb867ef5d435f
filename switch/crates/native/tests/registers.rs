// SPDX-License-Identifier: Apache-2.0
//! Checks that actions that use registers are atomic: several workers increment the same cell, and no increment is
//! lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;

use sluice_engine::{Config, PacketIn, Sink, TrafficManager};
use sluice_interpreter::Interpreter;
use sluice_program::{DigestId, Program};
use sluice_tables::Store;

const WORKERS: usize = 2;
/// Number of packets per worker. It is so large that workers collide: without the lock, thousands of increments are
/// lost on two cores.
const PACKETS: usize = 100_000;

/// A sink that collects the register values from the sent packets.
#[derive(Default)]
struct Values(Vec<u32>);

impl Sink for Values {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        let value = data[2..6].try_into().expect("the header has six bytes");
        self.0.push(u32::from_be_bytes(value));
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

/// Processes packets that make `registers.p4` increment cell 1. Returns the values in the sent packets.
fn count_up(store: &Store, start: &Barrier) -> Vec<u32> {
    let interpreter = Interpreter::new(store.shared_program().clone(), Config::default());
    let (mut switch, mut reader) = (TrafficManager::new(interpreter), store.reader());
    let mut values = Values::default();
    start.wait();
    for now_us in 0..PACKETS as u64 {
        let packet = PacketIn {
            data: &[3, 1, 0, 0, 0, 0],
            port: 0,
            now_us,
        };
        switch.process(&reader.pin(), store.externs(), packet, &mut values);
    }
    values.0
}

#[test]
fn several_workers_count_in_one_register_and_none_is_lost() {
    let json = include_bytes!("../../../programs/build/registers.json");
    let program = Arc::new(Program::from_json(json).unwrap());
    let cells = program.register_by_name("ingress.cells").unwrap();
    let store = Store::new(program);
    let start = Barrier::new(WORKERS);
    let seen: Vec<u32> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| scope.spawn(|| count_up(&store, &start)))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    let all = (WORKERS * PACKETS) as u32;
    let distinct: BTreeSet<u32> = seen.into_iter().collect();
    assert!(
        distinct == (1..=all).collect(),
        "{} of {all} steps are left",
        distinct.len()
    );
    let cell = store.externs().register_read(cells, 1).unwrap();
    assert_eq!(
        cell.iter()
            .fold(0, |value, byte| value << 8 | u32::from(*byte)),
        all
    );
}
