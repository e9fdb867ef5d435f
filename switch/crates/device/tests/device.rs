// SPDX-License-Identifier: Apache-2.0
//! Tests the device with ports in memory. Its program forwards EtherType 0x1111 to port 1 and 0x2222 to port 2.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sluice_device::{
    Config, Device, DeviceError, EngineKind, Handler, QueueChange, QueueInfo, memory_port,
};
use sluice_ports::memory::MemoryHandle;
use sluice_program::{DigestId, Program, TableId};
use sluice_tables::{ActionCall, Entry, EntryAction, EntrySpec, KeyField, OneShotMember, Store};

const JSON: &[u8] = include_bytes!("../../p4runtime/tests/server/programs/surface.json");
const DEADLINE: Duration = Duration::from_secs(10);

/// Maximum number of frames in flight.
const WINDOW: usize = 256;

/// Sends packets for the control plane to a channel.
struct Recorder(parking_lot::Mutex<mpsc::Sender<Vec<u8>>>);

impl Handler for Recorder {
    fn packet_in(&self, packet: &[u8]) -> bool {
        self.0.lock().send(packet.to_vec()).is_ok()
    }

    fn digest(&self, _: DigestId, _: &[u8]) -> bool {
        false
    }

    fn idle(&self, _: Vec<(TableId, Entry)>) {}
}

fn start(config: Config) -> (Arc<Device>, mpsc::Receiver<Vec<u8>>) {
    let (sender, packets) = mpsc::channel();
    let handler = Arc::new(Recorder(parking_lot::Mutex::new(sender)));
    (Arc::new(Device::start(config, handler).unwrap()), packets)
}

fn attach(device: &Device, number: u16) -> MemoryHandle {
    let (port, wire) = memory_port(number, device.config().workers).unwrap();
    device.add_port(port).unwrap();
    wire
}

fn load(device: &Device) {
    let program = Arc::new(Program::from_json(JSON).unwrap());
    device.load(Some(Arc::new(Store::with_epoch(
        program,
        device.clock().epoch(),
    ))));
}

fn frame(kind: u16) -> Vec<u8> {
    let mut frame = vec![2; 60];
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "the condition did not become true"
        );
        thread::yield_now();
    }
}

#[test]
fn without_a_program_frames_are_dropped_and_counted() {
    let (device, _) = start(Config::default());
    let wire = attach(&device, 0);
    assert!(wire.send(&frame(0x1111)));
    wait_until(|| device.statistics().no_program == 1);
}

#[test]
fn a_program_is_swapped_under_traffic_without_losing_a_frame() {
    swap_under_traffic(EngineKind::Interpreter);
}

#[test]
fn machine_code_is_swapped_under_traffic_without_losing_a_frame() {
    swap_under_traffic(EngineKind::Native);
}

/// Returns the configuration of a device with this engine.
fn with(engine: EngineKind) -> Config {
    Config {
        engine,
        ..Config::default()
    }
}

fn swap_under_traffic(engine: EngineKind) {
    let (device, _) = start(with(engine));
    let (input, output) = (attach(&device, 0), attach(&device, 1));
    load(&device);
    let stop = AtomicBool::new(false);
    let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let (stop, sent, received) = (&stop, &sent, &received);
        let sender = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // Fewer frames are in flight than the port's queue can hold. So if frames are lost, the program swap
                // has lost them.
                let under_way = sent.load(Ordering::Relaxed) - received.load(Ordering::Relaxed);
                if under_way < WINDOW {
                    sent.fetch_add(usize::from(input.send(&frame(0x1111))), Ordering::Relaxed);
                }
                thread::yield_now();
            }
        });
        let swaps = scope.spawn(|| {
            for _ in 0..50 {
                load(&device);
                assert_eq!(device.engine(), Some(engine));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let receive = || received.fetch_add(1, Ordering::Relaxed);
        let under_way = || received.load(Ordering::Relaxed) < sent.load(Ordering::Relaxed);
        while !swaps.is_finished() || under_way() {
            match output.receive(Duration::from_millis(100)) {
                Some(_) => drop(receive()),
                None if sender.is_finished() => break,
                None => {}
            }
        }
        sender.join().unwrap();
        while output.receive(Duration::from_millis(100)).is_some() {
            receive();
        }
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent > 0);
        assert_eq!(received.load(Ordering::Relaxed), sent);
    });
}

#[test]
fn ports_come_and_go_while_it_runs() {
    let (device, _) = start(Config::default());
    let input = attach(&device, 0);
    load(&device);
    assert!(input.send(&frame(0x1111)));
    wait_until(|| device.statistics().no_such_port == 1);
    let output = attach(&device, 1);
    assert!(input.send(&frame(0x1111)));
    assert!(output.receive(DEADLINE).is_some());
    assert!(matches!(
        device.add_port(memory_port(1, 1).unwrap().0),
        Err(DeviceError::PortExists(1))
    ));
    device.remove_port(1).unwrap();
    assert!(matches!(
        device.remove_port(1),
        Err(DeviceError::NoSuchPort(1))
    ));
    assert!(input.send(&frame(0x1111)));
    wait_until(|| device.statistics().no_such_port == 2);
    assert!(!device.has_port(1) && device.has_port(0) && !device.has_port(70_000));
}

#[test]
fn a_port_that_is_removed_is_down_for_groups_and_up_when_it_is_back() {
    let (device, _) = start(Config::default());
    let json = include_bytes!("../../../programs/build/action_selector.json");
    let store = device.new_store(Program::from_json(json).unwrap());
    let (input, output) = (attach(&device, 0), attach(&device, 1));
    let _watched = [attach(&device, 5), attach(&device, 6)];
    device.load(Some(store.clone()));
    let program = store.program();
    let set = program.action_by_name("ingress.set").unwrap();
    let member = |value, port| OneShotMember {
        call: ActionCall {
            action: set,
            params: vec![vec![value]],
        },
        weight: 1,
        watch_port: Some(port),
    };
    let spec = EntrySpec {
        key: vec![KeyField::Exact(vec![1])],
        priority: 0,
        action: EntryAction::OneShot(vec![member(0xa5, 5), member(0xa6, 6)]),
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Vec::new(),
    };
    let mut tx = store.transaction();
    let table = program.table_by_name("ingress.chosen").unwrap();
    tx.insert(table, spec).unwrap();
    tx.commit();
    // The hash is 0, so the group selects its first member that is up.
    let chosen = || {
        assert!(input.send(&[1, 0, 0, 0]));
        output.receive(DEADLINE).unwrap()[3]
    };
    assert_eq!(chosen(), 0xa5);
    device.remove_port(5).unwrap();
    assert_eq!(chosen(), 0xa6);
    let _back = attach(&device, 5);
    assert_eq!(chosen(), 0xa5);
    device.set_port_status(5, false);
    assert_eq!(chosen(), 0xa6);
}

#[test]
fn reserved_ports_cannot_be_attached() {
    let (device, _) = start(Config {
        cpu_port: Some(510),
        ..Config::default()
    });
    for number in [510, 511] {
        let refused = device.add_port(memory_port(number, 1).unwrap().0);
        assert!(matches!(refused, Err(DeviceError::PortReserved(port)) if port == number));
    }
}

#[test]
fn several_workers_share_the_ports_and_each_sends_to_all() {
    let (device, _) = start(Config {
        workers: 3,
        ..Config::default()
    });
    let wires: Vec<_> = (0..4).map(|number| attach(&device, number)).collect();
    load(&device);
    for input in &wires {
        assert!(input.send(&frame(0x1111)) && input.send(&frame(0x2222)));
    }
    for _ in 0..4 {
        assert!(wires[1].receive(DEADLINE).is_some());
        assert!(wires[2].receive(DEADLINE).is_some());
    }
    assert_eq!(device.engine_counters()["received"], 8);
}

#[test]
fn register_actions_of_two_workers_do_not_mix() {
    const EACH: usize = 20_000;
    let (device, _) = start(Config {
        workers: 2,
        ..Config::default()
    });
    let json = include_bytes!("../../../programs/build/registers.json");
    let store = device.new_store(Program::from_json(json).unwrap());
    device.load(Some(store.clone()));
    // The two ports belong to different workers. Neither worker receives from port 1, the egress port.
    let wires = [attach(&device, 0), attach(&device, 2)];
    thread::scope(|scope| {
        for wire in &wires {
            scope.spawn(move || {
                for _ in 0..EACH {
                    // Sends a packet that adds 1 to cell 1, when the queue has room.
                    while !wire.send(&[3, 1, 0, 0, 0, 0]) {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    let all = 2 * EACH as u64;
    wait_until(|| device.engine_counters()["received"] == all);
    let cells = store.program().register_by_name("ingress.cells").unwrap();
    let cell = store.externs().register_read(cells, 1).unwrap();
    assert_eq!(
        cell.iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
        all
    );
}

#[test]
fn a_queue_can_be_closed_slowed_down_and_opened() {
    let (device, _) = start(Config::default());
    let (input, output) = (attach(&device, 0), attach(&device, 1));
    load(&device);
    let change = QueueChange {
        port: Some(1),
        ..QueueChange::default()
    };
    let set = |depth, rate| {
        let (depth, rate) = (Some(depth), Some(rate));
        let change = QueueChange {
            depth,
            rate,
            ..change
        };
        device.set_queues(change).unwrap();
    };
    let full = || device.engine_counters()["dropped_queue_full"];
    set(0, 0);
    assert!(input.send(&frame(0x1111)));
    wait_until(|| full() == 1);
    // The packets wait for their departure time. Only the clock can wake the worker.
    set(64, 20);
    for _ in 0..3 {
        assert!(input.send(&frame(0x1111)));
    }
    wait_until(|| device.ports()[1].statistics.tx_packets == 3);
    assert!(output.receive(DEADLINE).is_some());
    let queue = QueueInfo {
        port: 1,
        priority: 0,
        packets: 0,
        depth: 64,
        rate: 20,
        dropped: 1,
    };
    let other = QueueInfo {
        port: 0,
        rate: 0,
        dropped: 0,
        ..queue
    };
    assert_eq!(device.queues(), [other, queue]);
    // A change without a port also applies to ports that are added later.
    let all = QueueChange {
        depth: Some(7),
        ..QueueChange::default()
    };
    device.set_queues(all).unwrap();
    let _new = attach(&device, 2);
    let depths: Vec<_> = device.queues().iter().map(|queue| queue.depth).collect();
    assert_eq!(depths, [7, 7, 7]);
    let absent = QueueChange {
        port: Some(9),
        ..all
    };
    let refused = device.set_queues(absent);
    assert!(matches!(refused, Err(DeviceError::NoSuchPort(9))));
    let beyond = QueueChange {
        priority: Some(1),
        ..all
    };
    let refused = device.set_queues(beyond);
    assert!(matches!(refused, Err(DeviceError::NoSuchQueue(1, 1))));
}

#[test]
fn packets_of_the_control_plane_need_a_cpu_port() {
    let (device, _) = start(Config::default());
    assert!(!device.packet_out(&frame(1)));
    assert_eq!(device.statistics().packet_out_dropped, 1);
    let (device, _) = start(Config {
        cpu_port: Some(510),
        ..Config::default()
    });
    let output = attach(&device, 6);
    load(&device);
    // Packet-out header of `surface.p4`: the egress port in 9 bits, then 7 bits of padding.
    let packet = [&(6u16 << 7).to_be_bytes()[..], &frame(0x3333)].concat();
    assert!(device.packet_out(&packet));
    assert_eq!(output.receive(DEADLINE).unwrap(), frame(0x3333));
}

#[test]
fn stopping_twice_is_stopping_once() {
    let (device, _) = start(Config::default());
    attach(&device, 0);
    device.stop();
    device.stop();
    assert_eq!(device.ports(), []);
}

#[test]
fn a_profile_says_where_packets_were() {
    profile(EngineKind::Interpreter);
}

#[test]
fn a_profile_of_machine_code_says_where_packets_were() {
    profile(EngineKind::Native);
}

fn profile(engine: EngineKind) {
    let (device, _) = start(with(engine));
    let every = NonZeroU32::new(2).unwrap();
    let nothing = device.profile(every, Duration::ZERO);
    assert!(matches!(nothing, Err(DeviceError::NoProgram)));
    let (input, output) = (attach(&device, 0), attach(&device, 1));
    load(&device);
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                input.send(&frame(0x1111));
                output.receive(DEADLINE).expect("the frame is forwarded");
            }
        });
        let mut report = device.profile(every, Duration::from_millis(10)).unwrap();
        while report.packets == 0 {
            report = device.profile(every, Duration::from_millis(10)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        report
    });
    assert_eq!(report.engine, engine);
    for kind in ["state", "table", "other"] {
        assert!(report.rows.iter().any(|row| row.kind == kind), "{report:?}");
    }
    let most = report.rows.iter().map(|row| row.visits).max();
    assert!(most >= Some(report.packets), "{report:?}");
}
