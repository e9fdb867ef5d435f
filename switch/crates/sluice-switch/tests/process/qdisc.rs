// SPDX-License-Identifier: Apache-2.0
//! A queueing discipline that somebody puts on a port's interface limits what the port sends, from when it is there to
//! when it is gone. What it does not take waits in the queue of the port, and what finds that full is dropped and counted.

use std::path::Path;

use crate::running::*;
use crate::wire::*;

/// A bucket for 26 frames of 60 bytes, room for as many to wait, and a rate at which none of those leaves.
const TBF: &str = "tc qdisc add dev p1 root tbf rate 8bit burst 1600 limit 1600";

/// What `ctl ports` says of port 1.
fn port(directory: &Path) -> serde_json::Value {
    ctl_json(directory, "ports")["ports"][1].clone()
}

fn sent_and_refused(directory: &Path) -> (u64, u64) {
    let counted = port(directory)["statistics"].clone();
    let value = |name: &str| counted[name].as_u64().unwrap();
    (value("tx_packets"), value("tx_queue_full"))
}

/// What `ctl queues` says of the queue of port 1: packets that wait, and that found it full.
fn waiting_and_dropped(directory: &Path) -> (u64, u64) {
    let queue = ctl_json(directory, "queues")["queues"][1].clone();
    let value = |name: &str| queue[name].as_u64().unwrap();
    assert_eq!((value("port"), value("priority")), (1, 0));
    (value("packets"), value("dropped"))
}

fn count(directory: &Path, list: &str, name: &str) -> u64 {
    let counters = ctl_json(directory, "counters")[list].clone();
    counters[name].as_u64().unwrap()
}

/// Packets in the queue of a port, unless told otherwise.
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
            let received = || count(directory, "program", "received");
            let came = received();
            for number in 0..100 {
                h0.send(&frame_of(0x1111, number));
            }
            let by_now = || {
                let now = sent_and_refused(directory);
                (now.0 - before.0, now.1 - before.1)
            };
            wait_until("all frames", || received() - came == 100);
            assert_eq!(by_now(), (52, 0), "26 pass, 26 wait in the qdisc");
            assert!(ctl(directory, "queues").contains("DROPPED"));
            // A queue that is full remains so, by how many of the others the port itself had taken.
            let waiting = waiting_and_dropped(directory).0;
            for number in 0..100 {
                h0.send(&frame_of(0x1111, number));
            }
            let full = || waiting_and_dropped(directory);
            wait_until("a full queue", || {
                full().0 == DEPTH && full().1 - dropped == waiting + 100 - DEPTH
            });
            dropped = full().1;
            assert_eq!(count(directory, "program", "dropped_queue_full"), dropped);
            sh("tc qdisc del dev p1 root");
            wait_until("no qdisc", || port(directory)["qdisc"] == "");
            for number in 0..100 {
                h0.send(&frame_of(0x1111, number));
            }
            let rest = 48 - waiting + DEPTH + 100;
            wait_until("all of them", || by_now().0 == 52 + rest);
            assert_eq!((full(), by_now().1), ((0, dropped), 0));
            // The second time it comes while the switch runs.
            sh(TBF);
            wait_until("a qdisc", || port(directory)["qdisc"] == "tbf");
        }
        assert!(switch.terminate().success());
    });
}
