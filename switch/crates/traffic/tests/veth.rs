// SPDX-License-Identifier: Apache-2.0
//! Tests the program as scripts use it, on veth pairs in a network namespace of its own. The namespace ends with the
//! test's thread. The tests need root.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;

const FLOWS: &str = "--src 10.0.0.1+10 --dst 10.1.0.1 --dst-mac 02:00:00:00:00:01";

/// Runs `test` on a thread with a separate network namespace that has veth pairs `a`-`b` and `c`-`d`. IPv6 is off, so
/// the kernel sends no neighbour discovery and no MLD: every packet that is counted comes from a test.
fn with_veths(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: unshare takes no pointers; with this flag it affects only the calling thread.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        let error = std::io::Error::last_os_error();
        assert_eq!(result, 0, "{error} (these tests need root)");
        sh("file=/proc/sys/net/ipv6/conf/default/disable_ipv6
            if [ -e $file ]; then echo 1 >$file; fi
            ip link add name tf-a type veth peer name tf-b
            ip link add name tf-c type veth peer name tf-d
            for i in tf-a tf-b tf-c tf-d; do ip link set dev $i up; done");
        test();
    };
    thread::spawn(run).join().unwrap();
}

fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn traffic(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-traffic"));
    command.args(arguments.split_whitespace());
    command
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_run_over_a_wire_arrives_whole() {
    with_veths(|| {
        let arguments =
            format!("run --tx tf-a --rx tf-b {FLOWS} --size imix --count 5000 --rate 50000");
        let report = report(&traffic(&arguments).output().unwrap());
        assert_eq!(report["lost"], 0);
        let received = &report["received"];
        for (field, expected) in [
            ("unique", 5000),
            ("missing", 0),
            ("reordered", 0),
            ("flows", 10),
        ] {
            assert_eq!(received[field], expected, "{field} in {received}");
        }
        assert_eq!(received["hop_limits"]["64"], 5000);
        assert_eq!(received["interfaces"]["tf-b"], 5000);
        assert!(received["latency_us"]["p50"].as_f64().unwrap() > 0.0);
    });
}

#[test]
fn every_protocol_and_family_arrives_sound() {
    with_veths(|| {
        for protocol in ["udp", "tcp", "icmp", "esp", "253"] {
            for (source, destination) in [("10.0.0.1", "10.1.0.1"), ("fd00::1", "fd00:1::1")] {
                let arguments = format!(
                    "run --tx tf-a --rx tf-b --src {source} --dst {destination} --vlan 7 \
                     --dst-mac 02:00:00:00:00:01 --proto {protocol} --size 200 --count 50"
                );
                let report = report(&traffic(&arguments).output().unwrap());
                assert_eq!(report["lost"], 0, "{arguments}: {report}");
            }
        }
    });
}

#[test]
fn what_goes_elsewhere_is_lost_and_what_is_too_long_is_refused() {
    with_veths(|| {
        let arguments = format!("run --tx tf-a --rx tf-d {FLOWS} --count 100 --drain 0.05");
        let lost = report(&traffic(&arguments).output().unwrap());
        assert_eq!(
            (&lost["lost"], &lost["received"]["unique"]),
            (&100.into(), &0.into())
        );

        let arguments =
            format!("run --tx tf-a --rx tf-b {FLOWS} --count 100 --size 1600 --drain 0.05");
        let refused = report(&traffic(&arguments).output().unwrap());
        assert_eq!(
            (&refused["lost"], &refused["sent"]["refused"]),
            (&0.into(), &100.into())
        );
    });
}

#[test]
fn generator_and_sink_may_be_two_processes() {
    with_veths(|| {
        let mut sink = traffic("sink --rx tf-d --rx tf-b --run 9 --count 300")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(sink.stderr.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        assert_eq!(ready, "sluice-traffic: ready\n");
        for (run, count) in [(8, 100), (9, 300)] {
            let arguments = format!("gen --tx tf-a {FLOWS} --run {run} --count {count}");
            let sent = report(&traffic(&arguments).output().unwrap());
            assert_eq!(sent["sent"]["packets"], count);
        }
        let mut json = String::new();
        sink.stdout
            .take()
            .unwrap()
            .read_to_string(&mut json)
            .unwrap();
        assert!(sink.wait().unwrap().success());
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["received"]["unique"], 300);
        assert_eq!(
            report["received"]["interfaces"],
            serde_json::json!({"tf-b": 300, "tf-d": 0})
        );
        assert!(
            report["received"]["other"].as_u64().unwrap() >= 100,
            "the packets of the other run are counted"
        );
    });
}

#[test]
fn a_signal_ends_a_run_with_its_report() {
    with_veths(|| {
        let arguments = format!("gen --tx tf-a {FLOWS} --duration 600 --rate 1000");
        let mut sink = traffic("sink --rx tf-b")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(sink.stderr.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let generator = traffic(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        // This sink ends after ten packets. So when the test stops the generator below, the generator is certainly
        // sending.
        let first = traffic("sink --rx tf-b --count 10").output().unwrap();
        assert_eq!(report(&first)["received"]["unique"], 10);
        for child in [&generator, &sink] {
            // SAFETY: kill takes no pointers; the child has not been waited for, so its process id is still valid.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        }
        let sent = report(&generator.wait_with_output().unwrap());
        assert!(sent["sent"]["packets"].as_u64().unwrap() >= 10);
        let received = report(&sink.wait_with_output().unwrap());
        assert!(received["received"]["unique"].as_u64().unwrap() >= 10);
    });
}

#[test]
fn exit_codes_are_honest() {
    with_veths(|| {
        let absent = traffic(&format!("gen --tx absent {FLOWS} --count 1"))
            .output()
            .unwrap();
        assert_eq!(absent.status.code(), Some(1));
        let errors = String::from_utf8(absent.stderr).unwrap();
        assert!(
            errors.contains("cannot open absent for sending: No such device"),
            "{errors}"
        );
        let usage = traffic(&format!("gen --tx tf-a {FLOWS}")).output().unwrap();
        assert_eq!(usage.status.code(), Some(2));
    });
}
