// SPDX-License-Identifier: Apache-2.0
//! Tests that packets are served, and that SAs are added and deleted. Also tests which state survives the end of the
//! process.

use std::process::Command;

use serde_json::json;
use sluice_esp::shim::Task;

use crate::running::*;

/// Returns the sequence number of an ESP packet in a frame.
fn sequence(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[52], frame[53], frame[54], frame[55]])
}

#[test]
fn packets_pass_both_ways_and_sas_come_and_go() {
    in_namespace(|directory| {
        let mut engine = Running::start(directory, &[]);
        engine.add(&json!([outbound()]));
        let sealed = engine.exchange(Task::Encrypt, &packet());
        assert_eq!((sealed[14], sequence(&sealed)), (2, 1));
        let status = engine.status();
        assert_eq!(status["sas"][0]["counters"]["packets"], 1);
        let (well, said) = engine.try_add(&outbound(), 0o600);
        assert!(!well && said.contains("uses this key"), "{said}");
        let mut inbound = outbound();
        let fields = inbound.as_object_mut().unwrap();
        fields.insert("direction".into(), "in".into());
        fields.remove("local");
        fields.remove("remote");
        let (well, said) = engine.try_add(&inbound, 0o600);
        assert!(
            !well && said.contains("an outbound SA has this key"),
            "{said}"
        );
        engine.ctl(&["delete-out", "7"]);
        assert!(!engine.try_ctl(&["delete-out", "7"]).0);
        engine.add(&inbound);
        let opened = engine.exchange(Task::Decrypt, &sealed[28..]);
        assert_eq!((opened[14], &opened[28..]), (4, &packet()[..]));
        engine.send(Task::Decrypt, &sealed[28..]);
        engine.send(Task::Encrypt, &packet());
        wait_until("the drops are listed by name", || {
            let status = engine.status();
            status["sas"][0]["counters"]["drops"]["replayed"] == 1
                && status["others"]["drops"]["unknown_sa"] == 1
        });
        let shown = engine.ctl(&["show"]);
        assert!(
            shown.contains("spi 0x1000") && shown.contains("dropped: replayed 1"),
            "{shown}"
        );
        engine.ctl(&["delete-in", "4096"]);
        assert_eq!(engine.status()["sas"], json!([]));
        assert!(engine.end(libc::SIGTERM).success());
        assert!(!directory.join("admin.sock").exists());
    });
}

#[test]
fn a_killed_engine_never_repeats_a_sequence_number() {
    in_namespace(|directory| {
        let mut last = 0;
        for _ in 0..3 {
            let mut engine = Running::start(directory, &[]);
            engine.add(&outbound());
            for _ in 0..3 {
                let next = sequence(&engine.exchange(Task::Encrypt, &packet()));
                assert!(next > last, "{next} after {last}");
                last = next;
            }
            assert!(!engine.end(libc::SIGKILL).success());
        }
        // At most two chunks of sequence numbers were skipped.
        assert!(last < 3 << 20);
    });
}

#[test]
fn a_damaged_state_is_no_start() {
    in_namespace(|directory| {
        let engine = Running::start(directory, &[]);
        engine.add(&outbound());
        engine.end(libc::SIGTERM);
        let path = directory.join("state").join(sluice_esp::reservation::FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let status = command(directory, &[]).status().unwrap();
        assert!(!status.success());
        let log = std::fs::read_to_string(directory.join("log")).unwrap();
        assert!(log.contains("record 0 is damaged"), "{log}");
    });
}

#[test]
fn two_engines_never_share_a_state() {
    in_namespace(|directory| {
        let _engine = Running::start(directory, &[]);
        assert!(
            Command::new("ip")
                .args("link add other type veth peer name another".split(' '))
                .status()
                .unwrap()
                .success()
        );
        let other = directory.join("other.sock");
        let output = Command::new(env!("CARGO_BIN_EXE_sluice-esp"))
            .args(["--interface", "other", "--admin"])
            .arg(&other)
            .arg("--state-directory")
            .arg(directory.join("state"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("another process has it"), "{said}");
    });
}

#[test]
fn an_interface_has_one_engine() {
    in_namespace(|directory| {
        let engine = Running::start(directory, &[]);
        let output = Command::new(env!("CARGO_BIN_EXE_sluice-esp"))
            .args(["--interface", "engine", "--admin"])
            .arg(directory.join("second.sock"))
            .arg("--state-directory")
            .arg(directory.join("second"))
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        let owner = format!(
            "engine: the interface belongs to another switch or engine, process {}",
            engine.pid()
        );
        assert!(said.contains(&owner), "{said}");
    });
}

#[test]
fn a_link_that_goes_down_is_warned_about_once_and_serves_again() {
    in_namespace(|directory| {
        let mut engine = Running::start(directory, &[]);
        engine.add(&outbound());
        let set = |state| {
            let words = ["link", "set", "engine", state];
            assert!(Command::new("ip").args(words).status().unwrap().success());
        };
        let logged = |text: &str| {
            let log = std::fs::read_to_string(directory.join("log")).unwrap();
            log.matches(text).count()
        };
        for times in 1..3 {
            set("down");
            wait_until("the engine logs a warning", || {
                logged("WARN the link is down") == times
            });
            set("up");
            wait_until("the link is up", || {
                logged("INFO the link is up again") == times
            });
        }
        engine.exchange(Task::Encrypt, &packet());
        assert_eq!(logged("WARN the link is down"), 2);
    });
}

#[test]
fn an_interface_that_goes_ends_the_process() {
    in_namespace(|directory| {
        let mut engine = Running::start(directory, &[]);
        assert!(
            Command::new("ip")
                .args(["link", "delete", "engine"])
                .status()
                .unwrap()
                .success()
        );
        assert!(!engine.wait().success());
        let log = std::fs::read_to_string(directory.join("log")).unwrap();
        assert!(log.contains("the interface engine is gone"), "{log}");
    });
}
