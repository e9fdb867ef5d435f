// SPDX-License-Identifier: Apache-2.0
//! Tests what an operator can learn about a switch: `ctl`, traces, logs.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;

use crate::running::*;
use crate::wire::*;

#[test]
fn ports_come_and_go_while_packets_flow_and_ctl_tells_it_all() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line =
            "-i 0@p0 --device-id 5 --cpu-port 510 --workers 2 --grpc-server-addr 127.0.0.1:50055";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory, &arguments);
        let shown = ctl_json(directory, "show");
        assert_eq!(
            (&shown["device_id"], &shown["cpu_port"]),
            (&5.into(), &510.into())
        );
        assert_eq!(shown["p4runtime_address"], "127.0.0.1:50055");
        let mut h0 = Wire::open("h0");
        h0.send(&frame_of(0x1111, 1));
        wait_until("the packet is dropped, as there is no port 1", || {
            counter(directory, "device", "no_such_port") > 0
        });
        assert!(ctl(directory, "add-port 1@p1").contains("p1"));
        arrives(&mut h0, &mut Wire::open("h1"), 0x1111);
        let ports = ctl_json(directory, "ports");
        let port = |number: usize| ports["ports"][number].clone();
        assert_eq!(
            (&port(1)["name"], &port(1)["up"]),
            (&"p1".into(), &true.into())
        );
        assert!(port(1)["statistics"]["tx_packets"].as_u64().unwrap() > 0);
        assert!(port(0)["statistics"]["rx_bytes"].as_u64().unwrap() >= 60);
        for (line, said) in [
            ("add-port 1@p2", "port 1 exists already (AlreadyExists)"),
            ("add-port 2@p1", "interface p1 is port 1 already"),
            ("add-port 2@nope", "interface nope"),
            ("remove-port 9", "there is no port 9 (NotFound)"),
        ] {
            let (well, stderr) = try_ctl(directory, line);
            assert!(!well && stderr.contains(said), "{line}: {stderr}");
        }
        ctl(directory, "remove-port 1");
        assert!(!sh("ip link show dev p1").contains("NOARP"), "given back");
        ctl(directory, "add-port 1@p2");
        arrives(&mut h0, &mut Wire::open("h2"), 0x1111);
        let tables = ctl(directory, "tables");
        assert!(
            tables.starts_with("KIND") && tables.contains("clone sessions"),
            "{tables}"
        );
        assert!(switch.terminate().success());
        let (well, said) = try_ctl(directory, "show");
        assert!(!well && said.contains("no switch runs here"), "{said}");
    });
}

#[test]
fn two_switches_share_a_namespace() {
    in_namespace(|| {
        let json = json();
        sh("ip link add q0 type veth peer name q1");
        let directory = tempfile::tempdir().unwrap();
        let start = |line: &str| {
            let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
            Switch::start(directory.path(), &arguments)
        };
        // The frames go through p0, the first switch, q0, q1, the second switch, and p2.
        let one = start("-i 0@p0 -i 1@q0 --device-id 1 --grpc-server-addr 127.0.0.1:50053");
        let two = start("-i 3@q1 -i 1@p2 --device-id 2 --grpc-server-addr 127.0.0.1:50054");
        arrives(&mut Wire::open("h0"), &mut Wire::open("h2"), 0x1111);
        let (well, said) = try_ctl(directory.path(), "ports");
        assert!(
            !well && said.contains("--device-id 1") && said.contains("--device-id 2"),
            "{said}"
        );
        assert!(ctl(directory.path(), "ports --device-id 2").contains("q1"));
        let (well, said) = try_ctl(directory.path(), "ports --device-id 3");
        assert!(!well && said.contains("device id 3"), "{said}");
        assert!(one.terminate().success() && two.terminate().success());
    });
}

#[test]
fn ctl_traces_what_it_is_asked_for() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "-i 0@p0 -i 1@p1 --grpc-server-addr 127.0.0.1:50056";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory, &arguments);
        let trace = |line: &str| {
            let arguments =
                format!("ctl trace --filter port=0 --filter ethertype=0x1111 --count 2 {line}");
            let mut child = command(directory)
                .args(arguments.split_whitespace())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // Sends frames until two packets have been traced.
            let mut h0 = Wire::open("h0");
            while child.try_wait().unwrap().is_none() {
                h0.send(&frame_of(0x2222, 1));
                h0.send(&frame_of(0x1111, 1));
                thread::sleep(Duration::from_millis(5));
            }
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        };
        let text = trace("");
        assert_eq!(text.matches("fate").count(), 2, "{text}");
        assert!(
            text.contains(" enter     switch port=0 bytes=60 data="),
            "{text}"
        );
        assert!(
            text.contains(" parser    ethernet extracts=ethernet"),
            "{text}"
        );
        assert!(
            text.contains(" fate      transmitted port=1 bytes=60"),
            "{text}"
        );
        let lines = trace("--json");
        let lines: Vec<Json> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let first = &lines[0];
        assert_eq!(
            (&first["step"], &first["details"]["port"]),
            (&"enter".into(), &"0".into())
        );
        let last = &lines[lines.len() - 1];
        assert_eq!(
            (&last["step"], &last["name"]),
            (&"fate".into(), &"transmitted".into())
        );
        for wrong in ["address=10.0.0.1", "ip=10.0.0.256", "ip"] {
            let (well, said) = try_ctl(directory, &format!("trace --filter {wrong}"));
            assert!(!well && said.contains("conditions are port=N"), "{said}");
        }
        assert!(switch.terminate().success());
    });
}

#[test]
fn a_log_has_every_step_of_every_packet_unless_its_level_leaves_that_out() {
    in_namespace(|| {
        let json = json();
        let run = |line: &str, log: &str| {
            let directory = tempfile::tempdir().unwrap();
            let common = "-i 0@p0 -i 1@p1 --grpc-server-addr 127.0.0.1:50057";
            let arguments = common.split(' ').chain(line.split(' '));
            let arguments: Vec<_> = arguments.chain([json.to_str().unwrap()]).collect();
            let switch = Switch::start(directory.path(), &arguments);
            arrives(&mut Wire::open("h0"), &mut Wire::open("h1"), 0x1111);
            let read = || fs::read_to_string(directory.path().join(log)).unwrap();
            if !line.contains("--log-level") {
                wait_until(line, || read().contains("fate      transmitted port=1"));
                assert!(
                    read().contains("parser    ethernet extracts=ethernet"),
                    "{}",
                    read()
                );
            }
            assert!(switch.terminate().success());
            let aside = directory.path().join("log.1.txt").exists();
            (read(), aside)
        };
        assert!(!run("--log-console", "stdout").0.is_empty());
        assert!(!run("--log-file log --log-flush", "log.txt").1);
        let (text, _) = run("--log-console --log-level info", "stdout");
        assert!(
            text.contains("serving P4Runtime") && !text.contains("fate"),
            "{text}"
        );
        assert_eq!(run("--log-file log --log-level off", "log.txt").0, "");
        let (_, aside) = run(
            "--log-file log --log-level debug --log-file-max-size 100 --log-file-max-files 2",
            "log.txt",
        );
        assert!(aside, "there is a second file");
    });
}

#[test]
fn a_profile_says_where_packets_were_and_by_which_engine() {
    in_namespace(|| {
        let json = json();
        for engine in ["native", "interpreter"] {
            let directory = tempfile::tempdir().unwrap();
            let directory = directory.path();
            let line =
                format!("-i 0@p0 -i 1@p1 --engine {engine} --grpc-server-addr 127.0.0.1:50059");
            let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
            let switch = Switch::start(directory, &arguments);
            assert_eq!(ctl_json(directory, "show")["engine"], engine);
            let mut child = command(directory)
                .args(["ctl", "--json", "profile", "--seconds", "1", "--every", "1"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut h0 = Wire::open("h0");
            while child.try_wait().unwrap().is_none() {
                h0.send(&frame_of(0x1111, 1));
                thread::sleep(Duration::from_millis(5));
            }
            let said = child.wait_with_output().unwrap().stdout;
            let profile: Json = serde_json::from_slice(&said).unwrap();
            assert_eq!(profile["engine"], engine);
            let rows = profile["rows"].as_array().unwrap();
            for (kind, name) in [("state", "ethernet"), ("table", "ingress.const_table")] {
                let row = rows
                    .iter()
                    .find(|row| row["kind"] == kind && row["name"] == name);
                let row = row.unwrap_or_else(|| panic!("no {kind} {name}: {profile}"));
                assert!(row["visits"].as_u64() > Some(0), "{row}");
            }
            assert!(switch.terminate().success());
        }
    });
}

#[test]
fn metrics_are_served_where_they_are_asked_for_and_nowhere_else() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "-i 0@p0 -i 1@p1 --grpc-server-addr 127.0.0.1:50060 \
                    --metrics-address 127.0.0.1:50061";
        let arguments = line.split_whitespace().chain([json.to_str().unwrap()]);
        let arguments: Vec<_> = arguments.collect();
        let switch = Switch::start(directory, &arguments);
        arrives(&mut Wire::open("h0"), &mut Wire::open("h1"), 0x1111);
        let text = || get("127.0.0.1:50061");
        let sent = |text: &str| {
            let name = "sluice_dataplane_port_sent_packets_total{interface=\"p1\",port=\"1\"} ";
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().parse::<f64>().unwrap()
        };
        wait_until("a packet was sent", || sent(&text()) > 0.0);
        assert!(text().starts_with("HTTP/1.1 200 OK\r\n"));
        // A dry run changes no counter of the program or of the ports.
        let before = (sent(&text()), counter(directory, "program", "received"));
        let said = ctl(
            directory,
            &format!("dry-run 0 {}", hex(&frame_of(0x1111, 1))),
        );
        assert!(
            said.contains("fate      transmitted port=1 bytes=60"),
            "{said}"
        );
        assert_eq!(
            before,
            (sent(&text()), counter(directory, "program", "received"))
        );
        let (well, said) = try_ctl(directory, "dry-run 0 0xff");
        assert!(!well && said.contains("hexadecimal digits"), "{said}");
        let refused = std::net::TcpStream::connect("127.0.0.1:9110");
        assert!(refused.is_err(), "nothing listens at this address");
        assert!(switch.terminate().success());
    });
}

/// Returns the response to GET /metrics.
pub(crate) fn get(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
