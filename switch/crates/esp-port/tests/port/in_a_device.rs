// SPDX-License-Identifier: Apache-2.0
//! Tests the port inside a device. The device's program sends packets that need encryption to the engine at port 9. The
//! program sends encrypted packets to port 2.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_device::{Config, Device, EngineKind, Handler, Port, memory_port};
use sluice_esp::Reservations;
use sluice_esp_control::command::{Command, Handle, tick};
use sluice_esp_port::{EnginePort, port};
use sluice_ports::memory::MemoryHandle;
use sluice_program::{DigestId, Program, TableId};
use sluice_tables::{ActionCall, Entry, EntryAction, EntrySpec, KeyField};

use crate::support::*;

const JSON: &[u8] = include_bytes!("../../../p4runtime/tests/server/programs/surface.json");
const DEADLINE: Duration = Duration::from_secs(20);
const ENGINE: u16 = 9;

struct Deaf;

impl Handler for Deaf {
    fn packet_in(&self, _: &[u8]) -> bool {
        false
    }

    fn digest(&self, _: DigestId, _: &[u8]) -> bool {
        false
    }

    fn idle(&self, _: Vec<(TableId, Entry)>) {}
}

struct Router {
    device: Arc<Device>,
    engine: Handle,
    from: MemoryHandle,
    to: MemoryHandle,
}

fn router(workers: usize, engine: EngineKind) -> Router {
    let config = Config {
        workers,
        engine,
        ..Config::default()
    };
    let device = Arc::new(Device::start(config, Arc::new(Deaf)).unwrap());
    let store = device.new_store(Program::from_json(JSON).unwrap());
    let program = store.program();
    let (table, mark) = (
        program.table_by_name("ingress.exact_table").unwrap(),
        program.action_by_name("ingress.mark").unwrap(),
    );
    let mut tx = store.transaction();
    // The key is the first four bytes of the shim: task, engine, bundle (2 bytes).
    for (task, to) in [(1, ENGINE as u8), (2, 2)] {
        let call = ActionCall {
            action: mark,
            params: vec![vec![to]],
        };
        let spec = EntrySpec {
            key: vec![KeyField::Exact(vec![task, 1, 0, 3])],
            priority: 0,
            action: EntryAction::Direct(call),
            idle_timeout_ns: 0,
            controller_metadata: 0,
            metadata: Vec::new(),
        };
        tx.insert(table, spec).unwrap();
    }
    tx.commit();
    device.load(Some(store));
    let attach = |number| {
        let (port, wire) = memory_port(number, workers).unwrap();
        device.add_port(port).unwrap();
        wire
    };
    let (from, to) = (attach(1), attach(2));
    let counters = Arc::default();
    let EnginePort {
        receiver,
        transmitters,
        engine,
    } = port(ENGINE, workers, &counters).unwrap();
    let halves = transmitters.into_iter().map(|one| Box::new(one) as Box<_>);
    let name = "engine:test".to_owned();
    let port = Port::new(ENGINE, name, counters, Box::new(receiver), halves.collect());
    device.add_port(port).unwrap();
    Router {
        device,
        engine,
        from,
        to,
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what}: the condition did not become true"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn passes(workers: usize, kind: EngineKind) {
    const COUNT: u32 = 3000;
    let router = router(workers, kind);
    let directory = tempfile::tempdir().unwrap();
    let reservations = Reservations::open(directory.path()).unwrap();
    // The worker sleeps, so without a wake-up there would be no answer.
    add(&router.engine, outbound(), &reservations);
    let mut numbers = BTreeSet::new();
    for mark in 0..COUNT {
        assert!(router.from.send(&to_encrypt(mark)));
        if mark % 50 == 49 {
            for _ in 0..50 {
                let frame = router.to.receive(DEADLINE).expect("all frames arrive");
                assert!(
                    !frame.windows(8).any(|bytes| bytes == [0x77; 8]),
                    "the frame is not encrypted"
                );
                numbers.insert(sequence(&frame));
            }
        }
    }
    assert_eq!(numbers, (1..=COUNT).collect());
    let totals = router.engine.ask(Command::Totals).unwrap();
    assert_eq!(totals.outbound.packets, u64::from(COUNT));
    let ports = router.device.ports();
    let statistics = ports.last().unwrap().statistics;
    let all = u64::from(COUNT);
    assert_eq!((statistics.tx_packets, statistics.rx_packets), (all, all));
}

#[test]
fn one_worker_forwards_and_encrypts() {
    passes(1, EngineKind::Native);
}

#[test]
fn the_interpreter_does_too() {
    passes(1, EngineKind::Interpreter);
}

#[test]
fn several_workers_share_an_engine() {
    passes(3, EngineKind::Native);
}

#[test]
fn without_an_sa_packets_are_dropped_by_name() {
    let router = router(2, EngineKind::Native);
    for mark in 0..10 {
        assert!(router.from.send(&to_encrypt(mark)));
    }
    wait_until("ten packets are dropped", || {
        let totals = router.engine.ask(Command::Totals).unwrap();
        totals.others.drops(sluice_esp::Drop::UnknownSa) == 10
    });
    assert!(router.to.receive(Duration::from_millis(50)).is_none());
}

#[test]
fn an_engine_port_is_present_until_its_engine_ends() {
    let router = router(1, EngineKind::Native);
    let is_up = |device: &Device| {
        let ports = device.ports();
        ports.iter().any(|port| port.number == ENGINE && port.up)
    };
    assert!(is_up(&router.device));
    let device = Arc::downgrade(&router.device);
    tick(router.engine.clone(), move || {
        if let Some(device) = device.upgrade() {
            device.set_port_status(ENGINE, false);
        }
    })
    .unwrap();
    router.engine.stop();
    wait_until("the port is down", || !is_up(&router.device));
    assert!(router.from.send(&to_encrypt(1)));
    wait_until("the packet is counted", || {
        let ports = router.device.ports();
        ports.last().unwrap().statistics.tx_link_down == 1
    });
    router.device.remove_port(ENGINE).unwrap();
    assert!(router.from.send(&to_encrypt(1)));
    wait_until("the packet is counted", || {
        router.device.statistics().no_such_port == 1
    });
    assert!(router.to.receive(Duration::from_millis(50)).is_none());
}
