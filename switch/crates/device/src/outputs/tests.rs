// SPDX-License-Identifier: Apache-2.0
//! Tests congested ports of a worker. The test program writes the queue metadata into the packets.

use parking_lot::Mutex;
use sluice_engine::EngineKind;
use sluice_ports::memory::{self, MemoryHandle};
use sluice_ports::{PortCounters, Receiver};
use sluice_program::{Program, TableId};
use sluice_tables::{Entry, Store};

use super::*;
use crate::counters::EngineCounters;
use crate::levels::QueueSetting;
use crate::running::{Engines, Running};

/// Program that forwards to port 1. The first byte of a frame is its priority. After this byte, the program writes four
/// fields: enq_timestamp and deq_timedelta (4 bytes each), enq_qdepth and deq_qdepth (3 bytes each).
const JSON: &[u8] = include_bytes!("../../../../programs/build/priority.json");
const OUT: u16 = 1;
const QUEUES: u32 = 4;

struct Nobody;

impl Handler for Nobody {
    fn packet_in(&self, _: &[u8]) -> bool {
        false
    }

    fn digest(&self, _: DigestId, _: &[u8]) -> bool {
        false
    }

    fn idle(&self, _: Vec<(TableId, Entry)>) {}
}

/// A port that accepts a limited number of frames, and sends these immediately. Keeps the frames beyond the limit.
#[derive(Clone)]
struct Gate(Arc<Mutex<GateState>>);

struct GateState {
    room: usize,
    kept: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    blocked: bool,
}

impl Gate {
    fn new(room: usize) -> Self {
        Self(Arc::new(Mutex::new(GateState {
            room,
            kept: Vec::new(),
            sent: Vec::new(),
            blocked: false,
        })))
    }

    fn give_room(&self, room: usize) {
        self.0.lock().room += room;
    }

    /// Returns the number, enq_qdepth and deq_qdepth of each sent frame. The number is the frame's last byte.
    fn sent(&self) -> Vec<(u8, u32, u32)> {
        let depth = |bytes: &[u8]| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        let sent = std::mem::take(&mut self.0.lock().sent);
        sent.iter()
            .map(|frame| (frame[15], depth(&frame[9..]), depth(&frame[12..])))
            .collect()
    }
}

impl Transmitter for Gate {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let mut state = self.0.lock();
        state.kept.push([headers, payload].concat());
        !state.blocked
    }

    fn flush(&mut self) -> bool {
        let mut state = self.0.lock();
        let sent = state.room.min(state.kept.len());
        state.room -= sent;
        let frames: Vec<_> = state.kept.drain(..sent).collect();
        state.sent.extend(frames);
        state.blocked = !state.kept.is_empty();
        !state.blocked
    }

    fn retry(&self) -> Option<Retry<'_>> {
        self.0.lock().blocked.then(|| Retry::At(Instant::now()))
    }
}

struct Bench {
    running: Running,
    outputs: Outputs,
    receivers: [Box<dyn Receiver>; 1],
    wire: MemoryHandle,
    gate: Gate,
    levels: Arc<PortLevels>,
}

impl Bench {
    fn new(kind: EngineKind, room: usize) -> Self {
        let shared = Arc::new(Shared {
            handler: Arc::new(Nobody),
            counters: DeviceCounters::default(),
            clock: Clock::start(),
            cpu_port: None,
            tracing: Arc::default(),
        });
        let program = Arc::new(Program::from_json(JSON).unwrap());
        let store = Arc::new(Store::with_epoch(program, shared.clock.epoch()));
        let config = sluice_engine::Config {
            queues: QUEUES,
            ..sluice_engine::Config::default()
        };
        let congestion = Congestion::default();
        let running = Engines::new(&store, kind, config).running(&congestion);
        let mut outputs = Outputs::new(shared, congestion);
        let gate = Gate::new(room);
        let levels = Arc::new(PortLevels::new(&[QueueSetting::default(); QUEUES as usize]));
        outputs.add(OUT, Box::new(gate.clone()), Arc::clone(&levels));
        let port = memory::port(0, 1024, &Arc::new(PortCounters::default())).unwrap();
        Self {
            running,
            outputs,
            receivers: [Box::new(port.receiver)],
            wire: port.handle,
            gate,
            levels,
        }
    }

    /// Processes an arriving packet with this priority and number. Then sends the packets that may leave.
    fn process(&mut self, priority: u8, number: u8) {
        let mut frame = vec![priority];
        frame.resize(15, 0xff);
        frame.push(number);
        assert!(self.wire.send(&frame));
        assert_eq!(
            self.running
                .serve(self.receivers.iter_mut(), &mut self.outputs),
            1
        );
        self.outputs.flush();
        if self.outputs.are_congested() {
            self.running.drain(&mut self.outputs);
        }
    }

    /// Lets the port accept `room` further frames.
    fn give_room(&mut self, room: usize) {
        self.gate.give_room(room);
        self.running.drain(&mut self.outputs);
    }

    fn counted(&mut self) -> EngineCounters {
        let mut report = EngineCounters::new();
        self.running.report(&mut report);
        report
    }
}

/// Runs a test with each of the two engines.
fn each(test: impl Fn(EngineKind)) {
    [EngineKind::Interpreter, EngineKind::Native]
        .into_iter()
        .for_each(test);
}

#[test]
fn packets_wait_for_a_port_that_takes_no_more_and_go_in_order() {
    each(|kind| {
        let mut bench = Bench::new(kind, 2);
        for number in 0..6 {
            bench.process(0, number);
        }
        // The port keeps the third packet. The others wait in the queue.
        assert_eq!(bench.gate.sent(), [(0, 0, 0), (1, 0, 0)]);
        assert_eq!(bench.levels.all()[0].size(), 3);
        bench.give_room(1);
        assert_eq!(bench.gate.sent(), [(2, 0, 0)]);
        // Now the port keeps the fourth packet.
        assert_eq!(bench.levels.all()[0].size(), 2);
        bench.process(0, 6);
        bench.give_room(10);
        let rest = [(3, 0, 2), (4, 1, 2), (5, 2, 1), (6, 2, 0)];
        assert_eq!(bench.gate.sent(), rest);
        assert!(!bench.outputs.are_congested());
        bench.process(0, 7);
        assert_eq!(bench.gate.sent(), [(7, 0, 0)]);
        assert_eq!(bench.counted()["transmitted"], 8);
    });
}

#[test]
fn the_highest_priority_goes_first_and_each_has_room_of_its_own() {
    each(|kind| {
        let mut bench = Bench::new(kind, 0);
        let packets = [(0, 0), (0, 1), (2, 2), (3, 3), (0, 4), (3, 5), (4, 6)];
        for (priority, number) in packets {
            bench.process(priority, number);
        }
        bench.give_room(1);
        // A packet leaves the queue only when the port accepts it. So a later packet of higher priority can overtake
        // it.
        bench.process(3, 7);
        bench.give_room(9);
        let order: Vec<u8> = bench.gate.sent().iter().map(|sent| sent.0).collect();
        assert_eq!(order, [0, 3, 5, 7, 2, 1, 4]);
        assert_eq!(bench.counted()["dropped_priority"], 1);
    });
}

#[test]
fn what_finds_a_queue_full_is_dropped_and_counted() {
    each(|kind| {
        let mut bench = Bench::new(kind, 0);
        for number in 0..70 {
            bench.process(1, number);
        }
        // The port keeps one packet, and 64 wait in the queue.
        assert_eq!(bench.counted()["dropped_queue_full"], 5);
        let dropped = |level: usize, bench: &Bench| bench.levels.all()[level].dropped();
        assert_eq!((dropped(0, &bench), dropped(1, &bench)), (0, 5));
        bench.process(2, 99);
        bench.give_room(100);
        let sent: Vec<u8> = bench.gate.sent().iter().map(|sent| sent.0).collect();
        let expected: Vec<u8> = [0, 99].into_iter().chain(1..65).collect();
        assert_eq!(sent, expected);
    });
}

#[test]
fn another_port_is_not_held_up() {
    each(|kind| {
        let mut bench = Bench::new(kind, 5);
        let other = Gate::new(0);
        let levels = Arc::new(PortLevels::new(&[QueueSetting::default(); QUEUES as usize]));
        bench.outputs.add(9, Box::new(other), levels);
        // The other port (9) has refused a frame.
        bench.outputs.transmit(9, &[0]);
        bench.outputs.flush();
        assert!(bench.outputs.are_congested());
        bench.process(0, 1);
        assert_eq!(bench.gate.sent(), [(1, 0, 0)]);
    });
}

#[test]
fn a_rate_makes_packets_wait_though_the_port_takes_them() {
    each(|kind| {
        let mut bench = Bench::new(kind, 100);
        let setting = |rate| QueueSetting { depth: 2, rate };
        let far_ns = 1 << 60;
        let [first, second, ..] = bench.levels.all() else {
            panic!("there are four queues");
        };
        first.set(QueueSetting { depth: 0, rate: 0 });
        second.set(setting(1));
        second.hold_until(far_ns);
        bench.outputs.look_at_queues();
        for number in 0..5 {
            bench.process(1, number);
            bench.process(0, 100 + number);
            bench.process(2, 200 + number);
        }
        let sent: Vec<u8> = bench.gate.sent().iter().map(|sent| sent.0).collect();
        assert_eq!(sent, [200, 201, 202, 203, 204]);
        assert_eq!(bench.counted()["dropped_queue_full"], 5 + 3);
        let (_, until) = bench.outputs.waited_for();
        let due = far_ns + 1_000_000_000;
        assert_eq!(until, Some(bench.outputs.shared.clock.at_ns(due)));
        // In a queue without a rate, a packet waits only behind other packets.
        bench.levels.all()[1].set(setting(0));
        bench.levels.all()[0].set(setting(0));
        bench.outputs.look_at_queues();
        bench.process(0, 9);
        assert_eq!(bench.gate.sent(), [(9, 0, 0)]);
        assert!(bench.outputs.are_congested());
    });
}

#[test]
fn packets_of_a_program_or_port_that_goes_are_dropped_by_name() {
    each(|kind| {
        let mut bench = Bench::new(kind, 0);
        for number in 0..4 {
            bench.process(0, number);
        }
        bench.outputs.drop_queued();
        let counted = bench.outputs.shared.counters.read();
        assert_eq!(counted.queue_program_replaced, 3);
        assert_eq!(bench.levels.all()[0].size(), 0);
        // The port still accepts no frames.
        assert!(bench.outputs.are_congested());
        bench.process(0, 4);
        bench.process(0, 5);
        bench.outputs.remove(OUT);
        let counted = bench.outputs.shared.counters.read();
        assert_eq!(counted.queue_port_removed, 2);
        assert!(!bench.outputs.are_congested());
    });
}

#[test]
fn what_waits_survives_an_interface_that_comes_back() {
    each(|kind| {
        let mut bench = Bench::new(kind, 0);
        for number in 0..4 {
            bench.process(0, number);
        }
        bench.gate = Gate::new(10);
        let levels = Arc::clone(&bench.levels);
        bench.outputs.add(OUT, Box::new(bench.gate.clone()), levels);
        bench.running.drain(&mut bench.outputs);
        let sent: Vec<u8> = bench.gate.sent().iter().map(|sent| sent.0).collect();
        // The old port kept the first packet.
        assert_eq!(sent, [1, 2, 3]);
        assert!(!bench.outputs.are_congested());
    });
}
