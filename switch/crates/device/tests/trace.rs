// SPDX-License-Identifier: Apache-2.0
//! Tests that watchers receive traces, and that other packets are not affected.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_device::trace::{Filter, PacketTrace, TraceSink};
use sluice_device::{Config, Device, Handler, memory_port};
use sluice_ports::memory::MemoryHandle;
use sluice_program::{DigestId, Program, TableId};
use sluice_tables::{
    ActionCall, CloneSession, Entry, EntryAction, EntrySpec, KeyField, Replica, Store,
};

const DEADLINE: Duration = Duration::from_secs(10);

struct Nobody;

impl Handler for Nobody {
    fn packet_in(&self, _: &[u8]) -> bool {
        true
    }

    fn digest(&self, _: DigestId, _: &[u8]) -> bool {
        true
    }

    fn idle(&self, _: Vec<(TableId, Entry)>) {}
}

/// A sink that accepts traces while it has room.
struct Taker {
    traces: Mutex<mpsc::Sender<Arc<PacketTrace>>>,
    room: AtomicBool,
    lost: AtomicUsize,
}

impl TraceSink for Taker {
    fn ready(&self) -> bool {
        let room = self.room.load(Ordering::Relaxed);
        self.lost.fetch_add(usize::from(!room), Ordering::Relaxed);
        room
    }

    fn take(&self, trace: &Arc<PacketTrace>) -> bool {
        self.traces.lock().send(Arc::clone(trace)).is_ok()
    }
}

fn taker() -> (Arc<Taker>, mpsc::Receiver<Arc<PacketTrace>>) {
    let (sender, traces) = mpsc::channel();
    let (room, lost) = (AtomicBool::new(true), AtomicUsize::default());
    (
        Arc::new(Taker {
            traces: Mutex::new(sender),
            room,
            lost,
        }),
        traces,
    )
}

/// Starts a switch with ports 0 to 2 and one of the programs in `switch/programs`.
fn switch(program: &str, config: Config) -> (Device, Arc<Store>, Vec<MemoryHandle>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/build");
    let json = std::fs::read(folder.join(program).with_extension("json")).unwrap();
    let device = Device::start(config, Arc::new(Nobody)).unwrap();
    let program = Arc::new(Program::from_json(&json).unwrap());
    let store = Arc::new(Store::with_epoch(program, device.clock().epoch()));
    device.load(Some(Arc::clone(&store)));
    let attach = |number| {
        let (port, wire) = memory_port(number, device.config().workers).unwrap();
        device.add_port(port).unwrap();
        wire
    };
    let wires = (0..3).map(attach).collect();
    (device, store, wires)
}

/// Returns the lines of the next trace, without number and time.
fn lines(traces: &mpsc::Receiver<Arc<PacketTrace>>) -> Vec<String> {
    let trace = traces.recv_timeout(DEADLINE).expect("a packet is traced");
    let without_stamp = |line: String| {
        let mut words = line.splitn(3, ' ').skip(2);
        let rest = words
            .next()
            .expect("a line has a number, a time and more text");
        rest.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    trace.text().map(without_stamp).collect()
}

/// Returns the trace of one packet that arrives on port 0.
fn trace_of(device: &Device, wires: &[MemoryHandle], packet: &[u8]) -> Vec<String> {
    let (taker, traces) = taker();
    let _handle = device.trace(Filter::default(), Some(1), taker);
    assert!(wires[0].send(packet));
    lines(&traces)
}

fn has(lines: &[String], wanted: &[&str]) {
    for wanted in wanted {
        assert!(
            lines.iter().any(|line| line.contains(wanted)),
            "no {wanted:?} in {lines:#?}"
        );
    }
}

#[test]
fn parser_table_register_and_fate_have_a_line_each() {
    let (device, _, wires) = switch("registers", Config::default());
    let found = trace_of(&device, &wires, &[3, 5, 0, 0, 0, 7]);
    let of_interest: Vec<_> = found
        .iter()
        .filter(|line| !line.starts_with("condition") && !line.starts_with("table"))
        .collect();
    assert_eq!(
        of_interest,
        [
            "enter switch port=0 bytes=6 data=030500000007",
            "enter ingress port=0 as=normal",
            "parser start extracts=h",
            "extern register_read of=ingress.cells index=5 value=0x0",
            "extern register_write of=ingress.cells index=5 value=0x1",
            "enter egress port=1 as=normal",
            "fate transmitted port=1 bytes=6",
        ]
    );
    has(
        &found,
        &[
            "condition",
            "value=true",
            "registers.p4:",
            "result=miss action=",
        ],
    );
    assert!(
        wires[1].receive(DEADLINE).is_some(),
        "the packet left as without a trace"
    );
}

#[test]
fn an_error_of_the_parser_has_its_name_and_an_index_beyond_the_array_is_told() {
    let (device, _, wires) = switch("registers", Config::default());
    has(
        &trace_of(&device, &wires, &[3]),
        &["parser error error=PacketTooShort"],
    );
    has(
        &trace_of(&device, &wires, &[3, 9, 0, 0, 0, 0]),
        &["extern index_out_of_range"],
    );
}

#[test]
fn copies_are_told_apart_and_so_is_a_port_that_does_not_exist() {
    let (device, store, wires) = switch("replication", Config::default());
    let mut tx = store.transaction();
    let replica = Replica::new;
    tx.multicast_insert(5, vec![replica(1, 11), replica(9, 12)])
        .unwrap();
    let session = CloneSession {
        replicas: vec![replica(2, 21)],
        class_of_service: 0,
        packet_length: 0,
    };
    tx.clone_session_insert(7, session).unwrap();
    tx.commit();
    let cloned = trace_of(&device, &wires, &[1, 0, 0, 0, 0, 0, 0]);
    has(
        &cloned,
        &[
            "extern clone session=7",
            "fate cloned session=7 copies=1",
            "enter egress port=2 as=ingress_clone",
            "fate transmitted port=2",
            "enter egress port=1 as=normal",
            "fate transmitted port=1",
        ],
    );
    let replicated = trace_of(&device, &wires, &[3, 0, 0, 0, 0, 0, 0]);
    has(
        &replicated,
        &[
            "fate multicast group=5 copies=2",
            "enter egress port=1 as=replicated",
            "enter egress port=9 as=replicated",
            "fate dropped reason=no_such_port port=9 bytes=7",
        ],
    );
}

#[test]
fn a_table_line_has_key_entry_and_action() {
    let (device, store, wires) = switch("meters", Config::default());
    let program = store.program();
    let table = program.table_by_name("ingress.entries").unwrap();
    let action = program.action_by_name("ingress.metered").unwrap();
    let spec = EntrySpec {
        key: vec![KeyField::Exact(vec![0xa])],
        priority: 0,
        action: EntryAction::Direct(ActionCall {
            action,
            params: Vec::new(),
        }),
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Vec::new(),
    };
    let mut tx = store.transaction();
    tx.insert(table, spec).unwrap();
    tx.commit();
    let hit =
        "table ingress.entries key.hdr.h.index=0xa result=hit entry=0xa action=ingress.metered";
    let color = "extern direct_meter of=ingress.by_entry color=green";
    has(&trace_of(&device, &wires, &[3, 0xa, 0]), &[hit, color]);
    let miss = "table ingress.entries key.hdr.h.index=0xb result=miss action=NoAction";
    has(&trace_of(&device, &wires, &[3, 0xb, 0]), &[miss]);
}

#[test]
fn a_filter_chooses_packets_and_a_count_ends_the_watch() {
    let (device, _, wires) = switch(
        "registers",
        Config {
            workers: 2,
            ..Config::default()
        },
    );
    let (taker, traces) = taker();
    let filter: Filter = "port=1,data=0:01".parse().unwrap();
    let _handle = device.trace(filter, Some(2), taker);
    for (port, op) in [(0, 1), (1, 2), (1, 1), (2, 1), (1, 1), (1, 1)] {
        assert!(wires[port].send(&[op, 0, 0, 0, 0, port as u8]));
        assert!(wires[1].receive(DEADLINE).is_some());
    }
    for _ in 0..2 {
        assert!(lines(&traces)[0].starts_with("enter switch port=1 bytes=6 data=0100"));
    }
    // The sender was dropped together with the watcher.
    assert!(matches!(
        traces.recv_timeout(DEADLINE),
        Err(mpsc::RecvTimeoutError::Disconnected)
    ));
    assert_eq!(
        device.engine_counters()["received"],
        6,
        "both interpreters are counted"
    );
}

#[test]
fn who_reads_slowly_loses_traces_and_nobody_loses_packets() {
    let (device, _, wires) = switch("registers", Config::default());
    let (taker, traces) = taker();
    taker.room.store(false, Ordering::Relaxed);
    let handle = device.trace(Filter::default(), None, taker.clone());
    for _ in 0..10 {
        assert!(wires[0].send(&[1, 0, 0, 0, 0, 0]));
        assert!(wires[1].receive(DEADLINE).is_some());
    }
    assert_eq!(taker.lost.load(Ordering::Relaxed), 10);
    taker.room.store(true, Ordering::Relaxed);
    assert!(wires[0].send(&[1, 0, 0, 0, 0, 0]));
    assert_eq!(
        traces.recv_timeout(DEADLINE).unwrap().number,
        1,
        "only this packet was recorded"
    );
    drop(handle);
    assert!(wires[1].receive(DEADLINE).is_some());
    assert!(wires[0].send(&[1, 0, 0, 0, 0, 0]));
    assert!(wires[1].receive(DEADLINE).is_some());
    assert!(traces.try_recv().is_err(), "the trace has ended");
}

#[test]
fn a_dry_run_takes_the_path_of_a_packet_and_counts_nothing() {
    let (device, store, wires) = switch("meters", Config::default());
    let program = store.program();
    let table = program.table_by_name("ingress.entries").unwrap();
    let action = program.action_by_name("ingress.metered").unwrap();
    let spec = EntrySpec {
        key: vec![KeyField::Exact(vec![0xa])],
        priority: 0,
        action: EntryAction::Direct(ActionCall {
            action,
            params: Vec::new(),
        }),
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Vec::new(),
    };
    let mut tx = store.transaction();
    tx.insert(table, spec).unwrap();
    tx.commit();
    let words = |trace: &PacketTrace| trace.lines.clone();
    let dry_run = device.dry_run(0, vec![3, 0xa, 0]).unwrap();
    assert_eq!(dry_run.number, 0, "a dry run has no number");
    let (taker, traces) = taker();
    let _handle = device.trace(Filter::default(), Some(1), taker);
    assert!(wires[0].send(&[3, 0xa, 0]));
    let real = traces.recv_timeout(DEADLINE).unwrap();
    assert_eq!(words(&dry_run), words(&real));
    assert_eq!(
        device.engine_counters()["received"],
        1,
        "only the real packet is counted"
    );
    device.load(None);
    assert!(device.dry_run(0, vec![3]).is_err(), "there is no program");
}
