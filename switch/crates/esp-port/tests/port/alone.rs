// SPDX-License-Identifier: Apache-2.0
//! Tests the answers and drops of frames that are sent to the port.

use std::sync::Arc;
use std::thread;

use sluice_esp::Reservations;
use sluice_esp_control::command::Command;
use sluice_esp_port::{EnginePort, port};
use sluice_ports::poller::Poller;
use sluice_ports::{MAX_FRAME, PortCounters, Receiver, Transmitter};

use crate::support::*;

struct Served {
    port: EnginePort,
    counters: Arc<PortCounters>,
    _directory: tempfile::TempDir,
}

/// Returns a port whose engine has an SA.
fn served(workers: usize) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let reservations = Reservations::open(directory.path()).unwrap();
    let counters = Arc::new(PortCounters::default());
    let mut port = port(9, workers, &counters).unwrap();
    let engine = port.engine.clone();
    let adding = thread::spawn(move || add(&engine, outbound(), &reservations));
    let mut poller = Poller::new().unwrap();
    poller.add(port.receiver.readiness().unwrap(), 0).unwrap();
    while !adding.is_finished() {
        // The descriptor becomes readable when a command waits.
        let waited = poller.wait(Some(std::time::Duration::from_millis(10)));
        waited.unwrap().for_each(drop);
        assert!(take(&mut port, 8).is_empty());
    }
    adding.join().unwrap();
    Served {
        port,
        counters,
        _directory: directory,
    }
}

/// Receives up to `budget` frames from the port.
fn take(port: &mut EnginePort, budget: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    port.receiver.receive(budget, &mut |number, frame| {
        assert_eq!(number, 9);
        frames.push(frame.to_vec());
    });
    frames
}

fn is_readable(port: &EnginePort) -> bool {
    let mut poller = Poller::new().unwrap();
    poller.add(port.receiver.readiness().unwrap(), 0).unwrap();
    let waited = poller.wait(Some(std::time::Duration::ZERO));
    waited.unwrap().count() == 1
}

#[test]
fn frames_come_back_encrypted_in_their_order_and_in_the_budget() {
    let mut served = served(1);
    for mark in 0..100 {
        assert!(served.port.transmitters[0].push(&to_encrypt(mark)));
    }
    assert!(
        take(&mut served.port, 64).is_empty(),
        "the queue is not flushed yet"
    );
    assert!(served.port.transmitters[0].flush());
    assert!(is_readable(&served.port));
    let mut numbers = Vec::new();
    for expected in [64, 36, 0] {
        let frames = take(&mut served.port, 64);
        assert_eq!(frames.len(), expected);
        numbers.extend(frames.iter().map(|frame| sequence(frame)));
    }
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    assert!(!is_readable(&served.port));
    let read = served.counters.read();
    assert_eq!((read.tx_packets, read.rx_packets), (100, 100));
    assert_eq!(read.tx_bytes, 100 * to_encrypt(0).len() as u64);
}

#[test]
fn what_finds_no_room_is_counted_and_the_rest_keeps_its_order() {
    let mut served = served(2);
    for mark in 0..10_000 {
        served.port.transmitters[1].push(&to_encrypt(mark));
    }
    served.port.transmitters[1].flush();
    let sent = served.counters.read().tx_packets;
    assert_eq!(sent + served.counters.read().tx_queue_full, 10_000);
    // The other worker's queue still has room.
    served.port.transmitters[0].push(&to_encrypt(0));
    served.port.transmitters[0].flush();
    let mut got = 0;
    loop {
        let frames = take(&mut served.port, 256);
        if frames.is_empty() {
            break;
        }
        got += frames.len() as u64;
    }
    assert_eq!(got, sent + 1);
    assert_eq!(served.counters.read().rx_packets, sent + 1);
}

#[test]
fn the_longest_frame_fits_and_a_longer_one_is_counted() {
    let mut served = served(1);
    let transmitter = &mut served.port.transmitters[0];
    transmitter.push_parts(&[0; 100], &vec![0; MAX_FRAME - 100]);
    transmitter.push_parts(&[0; 101], &vec![0; MAX_FRAME - 100]);
    transmitter.flush();
    let read = served.counters.read();
    assert_eq!((read.tx_packets, read.tx_too_long), (1, 1));
    assert!(
        take(&mut served.port, 8).is_empty(),
        "the frame has no shim"
    );
    assert_eq!(served.counters.read().rx_packets, 0);
}

#[test]
fn workers_send_at_once_and_nothing_is_lost_or_woken_for_in_vain() {
    const EACH: u32 = 20_000;
    let Served {
        mut port, counters, ..
    } = served(3);
    let senders: Vec<_> = port
        .transmitters
        .drain(..)
        .map(|mut transmitter| {
            thread::spawn(move || {
                for mark in 0..EACH {
                    transmitter.push(&to_encrypt(mark));
                    if mark % 7 == 0 {
                        transmitter.flush();
                        thread::yield_now();
                    }
                }
                transmitter.flush();
            })
        })
        .collect();
    let mut poller = Poller::new().unwrap();
    poller.add(port.receiver.readiness().unwrap(), 0).unwrap();
    let mut got = 0;
    loop {
        let done = senders.iter().all(|sender| sender.is_finished());
        let frames = take(&mut port, 256).len() as u64;
        got += frames;
        let read = counters.read();
        if done && frames == 0 && got == read.tx_packets {
            assert_eq!(read.tx_packets + read.tx_queue_full, 3 * u64::from(EACH));
            break;
        }
        if frames == 0 {
            // If no wake-up is lost, the wait ends early, unless the senders do not run for a second.
            let second = Some(std::time::Duration::from_secs(1));
            poller.wait(second).unwrap().for_each(drop);
        }
    }
}

#[test]
fn an_engine_that_is_dropped_is_no_more_asked_and_takes_nothing() {
    let Served {
        mut port, counters, ..
    } = served(1);
    let engine = port.engine.clone();
    drop(port.receiver);
    assert!(engine.ask(Command::Totals).is_none());
    port.transmitters[0].push(&to_encrypt(1));
    port.transmitters[0].flush();
    assert_eq!(counters.read().tx_link_down, 1);
}
