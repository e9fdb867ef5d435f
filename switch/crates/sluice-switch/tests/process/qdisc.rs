// SPDX-License-Identifier: Apache-2.0
//! Tests a qdisc that a user sets on a port's interface. The qdisc limits what the port sends, until the user removes
//! it. Packets that the qdisc refuses wait in the port's queue. If this queue is full, further packets are dropped and
//! counted.

use std::path::Path;

use crate::running::*;
use crate::wire::*;

/// A token bucket filter. Its burst lets 26 frames of 60 bytes pass at once, and its backlog has room for 26 more. The
/// rate is so low that no frame leaves the backlog during the test.
const TBF: &str = "tc qdisc add dev p1 root tbf rate 8bit burst 1600 limit 1600";

/// Returns the entry of port 1 in the output of `ctl ports`.
fn port(directory: &Path) -> serde_json::Value {
    ctl_json(directory, "ports")["ports"][1].clone()
}

fn sent_and_refused(directory: &Path) -> (u64, u64) {
    let counted = port(directory)["statistics"].clone();
    let value = |name: &str| counted[name].as_u64().unwrap();
    (value("tx_packets"), value("tx_queue_full"))
}

/// Returns two numbers of port 1 from `ctl queues`: how many packets wait, and how many were dropped because the queue
/// was full.
fn waiting_and_dropped(directory: &Path) -> (u64, u64) {
    let queue = ctl_json(directory, "queues")["queues"][1].clone();
    let value = |name: &str| queue[name].as_u64().unwrap();
    assert_eq!((value("port"), value("priority")), (1, 0));
    (value("packets"), value("dropped"))
}

/// Default depth of a port's queue, in packets.
const DEPTH: u64 = 64;

#[test]
fn a_qdisc_limits_a_port_while_it_is_there() {
    in_namespace(|| {
        if !std::process::Command::new("sh")
            .args([
                "-c",
                &format!("{TBF} 2>/dev/null && tc qdisc del dev p1 root"),
            ])
            .status()
            .unwrap()
            .success()
        {
            eprintln!("skipped: this kernel has no tbf");
            return;
        }
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "-i 0@p0 -i 1@p1 --workers 2 --grpc-server-addr 127.0.0.1:50058";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        sh(TBF);
        let switch = Switch::start(directory, &arguments);
        let mut h0 = Wire::open("h0");
        let mut dropped = 0;
        for round in 1..=2 {
            assert_eq!(port(directory)["qdisc"], "tbf", "round {round}");
            assert!(ctl(directory, "ports").contains("tbf"));
            let before = sent_and_refused(directory);
            let received = || counter(directory, "program", "received");
            let came = received();
            for number in 0..100 {
                h0.send(&frame_of(0x1111, number));
            }
            let by_now = || {
                let now = sent_and_refused(directory);
                (now.0 - before.0, now.1 - before.1)
            };
            wait_until("all frames have arrived", || received() - came == 100);
            assert_eq!(by_now(), (52, 0), "26 pass, 26 wait in the qdisc");
            assert!(ctl(directory, "queues").contains("DROPPED"));
            // Of the 48 refused frames, the port's queue holds some, and the port's transmitter holds the others.
            let waiting = waiting_and_dropped(directory).0;
            for number in 0..100 {
                h0.send(&frame_of(0x1111, number));
            }
            let full = || waiting_and_dropped(directory);
            wait_until("the queue is full", || {
                full().0 == DEPTH && full().1 - dropped == waiting + 100 - DEPTH
            });
            dropped = full().1;
            assert_eq!(counter(directory, "program", "dropped_queue_full"), dropped);
            sh("tc qdisc del dev p1 root");
            wait_until("the port has no qdisc", || port(directory)["qdisc"] == "");
            wait_until("the queue is empty", || full().0 == 0);
            for number in 0..100 {
                h0.send(&frame_of(0x1111, number));
            }
            let rest = 48 - waiting + DEPTH + 100;
            wait_until("all frames have been sent", || by_now().0 == 52 + rest);
            assert_eq!((full(), by_now().1), ((0, dropped), 0));
            // This time the qdisc is added while the switch runs.
            sh(TBF);
            wait_until("the port has a qdisc", || port(directory)["qdisc"] == "tbf");
        }
        assert!(switch.terminate().success());
    });
}

/// Sets up a link of 4 Mbit/s with the same qdiscs as mininet's TCLink.
const TCLINK: &str = "tc qdisc add dev p1 root handle 5: htb default 1 &&
    tc class add dev p1 parent 5: classid 5:1 htb rate 4mbit burst 15k";

/// A program that forwards to port 1. The first byte of a frame is its priority. After this byte, the program writes
/// enq_timestamp, deq_timedelta (4 bytes each), enq_qdepth and deq_qdepth (3 bytes each).
const QUEUED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../programs/build/priority.json"
);

fn queued_frame(priority: u8, number: u8) -> Vec<u8> {
    let mut frame = vec![priority];
    frame.resize(15, 0xff);
    frame.resize(1_000, number);
    frame
}

/// Returns the queue metadata in a frame: the frame's delay, and the queue length when the frame arrived and when it
/// left.
fn seen(frame: &[u8]) -> [u32; 3] {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    };
    [&frame[5..9], &frame[9..12], &frame[12..15]].map(number)
}

#[test]
fn what_a_shaped_link_holds_up_waits_in_the_queue_where_the_program_sees_it() {
    in_namespace(|| {
        let output = std::process::Command::new("sh")
            .args(["-c", TCLINK])
            .output();
        let output = output.unwrap();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            eprintln!("skipped: this kernel has no htb: {error}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "-i 0@p0 -i 1@p1 --priority-queues 2 --grpc-server-addr 127.0.0.1:50059";
        let arguments: Vec<_> = line.split(' ').chain([QUEUED]).collect();
        let switch = Switch::start(directory, &arguments);
        let (mut h0, mut h1) = (Wire::open("h0"), Wire::open("h1"));
        let waiting = |priority: usize| {
            let queue = ctl_json(directory, "queues")["queues"][2 + priority].clone();
            (queue["packets"].clone(), queue["dropped"].as_u64().unwrap())
        };
        let mut came = 0;
        let mut send = |h0: &mut Wire, priority, numbers: std::ops::Range<u8>| {
            came += numbers.len() as u64;
            for number in numbers {
                h0.send(&queued_frame(priority, number));
            }
            let arrived = || counter(directory, "program", "received") == came;
            wait_until("all frames have arrived", arrived);
        };
        send(&mut h0, 0, 0..250);
        let dropped = waiting(0).1;
        assert!(dropped > 0, "{}", ctl(directory, "queues"));
        assert_eq!(counter(directory, "program", "dropped_queue_full"), dropped);
        // A packet of higher priority arrives later, and overtakes the waiting packets.
        send(&mut h0, 1, 250..251);
        let frames = h1.receive(251 - dropped as usize, |frame| frame[0] < 2);
        let numbers: Vec<u8> = frames.iter().map(|frame| frame[15]).collect();
        let urgent = numbers.iter().position(|number| *number == 250).unwrap();
        assert!(urgent + 20 < numbers.len(), "{numbers:?}");
        let others = numbers.iter().filter(|number| **number != 250);
        assert!(others.is_sorted(), "{numbers:?}");
        // The first packet was not delayed; one packet saw a full queue.
        assert_eq!(seen(&frames[0]), [0, 0, 0]);
        let most = |field: usize| frames.iter().map(|frame| seen(frame)[field]).max();
        assert_eq!(most(1), Some(63));
        assert!(most(0) > Some(1_000) && most(2) > Some(10));
        assert_eq!(waiting(0), (0.into(), dropped));
        assert_eq!(sent_and_refused(directory), (251 - dropped, 0));
        // No queue has this priority.
        h0.send(&queued_frame(2, 0));
        wait_until("the frame is dropped", || {
            counter(directory, "program", "dropped_priority") == 1
        });
        assert!(switch.terminate().success());
    });
}
