// SPDX-License-Identifier: Apache-2.0
//! Tests packets in lanes when the sink or the closure that feeds packets panics, and when packets wait before egress.

mod cases;
mod traces;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sluice_engine::{Admission, Arrival, Config, PacketIn, Queued, Sink};
use sluice_native::{Lanes, Native};
use sluice_program::DigestId;

use cases::Bench;

/// Number of packets, more than the lanes can queue.
const PACKETS: usize = 150;

/// A sink that accepts `room` packets and panics at every further one.
struct Limited {
    room: usize,
    taken: Vec<Vec<u8>>,
    panics: usize,
    /// Packets that wait, if congestion is on.
    queued: VecDeque<Box<Queued>>,
}

impl Limited {
    fn new(room: usize) -> Self {
        Self {
            room,
            taken: Vec::new(),
            panics: 0,
            queued: VecDeque::new(),
        }
    }
}

impl Sink for Limited {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        if self.taken.len() == self.room {
            self.panics += 1;
            panic!("no room");
        }
        self.taken.push(data.to_vec());
    }

    fn queue(&mut self, arrival: &mut Arrival<'_>) -> Admission {
        let queued = arrival.take(None, 0);
        self.queued.push_back(queued);
        Admission::Waits
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

/// Processes a batch that alternates borrowed and copied packets. Returns false if the batch panicked.
fn batch(
    lanes: &mut Lanes,
    bench: &mut Bench<Native>,
    packets: &[Vec<u8>],
    sink: &mut Limited,
) -> bool {
    let tables = bench.reader.pin();
    let externs = bench.store.externs();
    let run = AssertUnwindSafe(|| {
        lanes.batch(&tables, externs, sink, |batch| {
            for (index, data) in packets.iter().enumerate() {
                let packet = PacketIn {
                    data,
                    port: 1,
                    now_us: 5,
                };
                match index % 2 {
                    0 => batch.process(packet),
                    _ => batch.process_copy(packet),
                }
            }
        });
    });
    catch_unwind(run).is_ok()
}

#[test]
fn a_sink_that_panics_ends_its_batch_and_nothing_else() {
    let bench = Bench::<Native>::load(&traces::program());
    let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
    let run = bench.run_text(&traces::router::tables(), "tables");
    run.unwrap_or_else(|error| panic!("{error}"));
    let packets = traces::router::ipv4();
    let packets: Vec<_> = packets.into_iter().cycle().take(PACKETS).collect();
    let packets = &packets[..];
    let lanes = Lanes::new(bench.switch.engine().code(), &Config::default(), 0);
    let lanes = lanes.expect("there is memory for the stacks");
    let mut lanes = lanes.expect("the router draws no random numbers");
    let mut all = Limited::new(usize::MAX);
    assert!(batch(&mut lanes, &mut bench, packets, &mut all));
    assert_eq!(all.taken.len(), PACKETS);
    for room in (0..PACKETS).step_by(3) {
        let before = lanes.counters();
        let mut some = Limited::new(room);
        assert!(!batch(&mut lanes, &mut bench, packets, &mut some));
        assert_eq!(some.panics, 1, "no packet is sent after a panic");
        assert_eq!(some.taken, all.taken[..room]);
        // The counters of replaced engines are not lost: they include all packets processed before the panic.
        let received = lanes.counters().received - before.received;
        assert!(received > room as u64 && received <= PACKETS as u64);

        let mut again = Limited::new(usize::MAX);
        assert!(batch(&mut lanes, &mut bench, packets, &mut again));
        assert_eq!(again.taken, all.taken, "after a panic at {room}");
    }
    // Checks that lanes can be dropped when their last batch has panicked.
    assert!(!batch(
        &mut lanes,
        &mut bench,
        packets,
        &mut Limited::new(3)
    ));
}

#[test]
fn who_gives_a_batch_and_panics_ends_it() {
    let bench = Bench::<Native>::load(&traces::program());
    let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
    let run = bench.run_text(&traces::router::tables(), "tables");
    run.unwrap_or_else(|error| panic!("{error}"));
    let packets = traces::router::ipv4();
    let packets: Vec<_> = packets.into_iter().cycle().take(PACKETS).collect();
    let lanes = Lanes::new(bench.switch.engine().code(), &Config::default(), 0);
    let lanes = lanes.expect("there is memory for the stacks");
    let mut lanes = lanes.expect("the router draws no random numbers");
    let mut all = Limited::new(usize::MAX);
    assert!(batch(&mut lanes, &mut bench, &packets, &mut all));
    // The closure panics after this number of packets. The cases are: no packet was fed yet, packets wait in the queue,
    // and packets are in lanes.
    for given in [0, 5, 70, PACKETS] {
        let mut some = Limited::new(usize::MAX);
        let tables = bench.reader.pin();
        let externs = bench.store.externs();
        let run = AssertUnwindSafe(|| {
            lanes.batch(&tables, externs, &mut some, |batch| {
                for data in &packets[..given] {
                    batch.process_copy(PacketIn {
                        data,
                        port: 1,
                        now_us: 5,
                    });
                }
                panic!("no more");
            })
        });
        assert!(catch_unwind(run).is_err());
        drop(tables);
        assert!(some.taken.len() <= given);
        assert_eq!(some.taken, all.taken[..some.taken.len()]);
        let mut again = Limited::new(usize::MAX);
        assert!(batch(&mut lanes, &mut bench, &packets, &mut again));
        assert_eq!(again.taken, all.taken, "after {given}");
    }
}

#[test]
fn packets_that_wait_before_egress_go_on_as_they_came() {
    let bench = Bench::<Native>::load(&traces::program());
    let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
    let run = bench.run_text(&traces::router::tables(), "tables");
    run.unwrap_or_else(|error| panic!("{error}"));
    let packets = traces::router::ipv4();
    let packets: Vec<_> = packets.into_iter().cycle().take(PACKETS).collect();
    let config = Config::default();
    let lanes = Lanes::new(bench.switch.engine().code(), &config, 0);
    let lanes = lanes.expect("there is memory for the stacks");
    let mut lanes = lanes.expect("the router draws no random numbers");
    let mut all = Limited::new(usize::MAX);
    assert!(batch(&mut lanes, &mut bench, &packets, &mut all));
    config.congestion.set(true);
    let mut waiting = Limited::new(usize::MAX);
    assert!(batch(&mut lanes, &mut bench, &packets, &mut waiting));
    assert!(waiting.taken.is_empty());
    assert_eq!(waiting.queued.len(), PACKETS);
    config.congestion.set(false);
    // While these packets wait, other packets use the same buffers.
    assert!(batch(
        &mut lanes,
        &mut bench,
        &packets,
        &mut Limited::new(usize::MAX)
    ));
    let tables = bench.reader.pin();
    let externs = bench.store.externs();
    while let Some(mut queued) = waiting.queued.pop_front() {
        let (switch, sink) = (&mut bench.switch, &mut waiting);
        switch.leave_queue(&tables, externs, 9, &mut queued, 0, sink);
    }
    assert_eq!(waiting.taken, all.taken);
}
