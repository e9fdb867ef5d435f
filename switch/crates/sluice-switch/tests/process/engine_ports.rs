// SPDX-License-Identifier: Apache-2.0
//! Tests ESP engines inside the switch: their administration, counters, and protection of their keys.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::asking::get;
use crate::running::*;
use crate::wire::*;

/// Part of every key in these tests. It occurs nowhere else, so a key that leaks is found.
const SECRET: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";

fn outbound(sa: u32) -> Json {
    json!({
        "direction": "out", "sa": sa, "spi": 4096, "bundle": 3, "mode": "tunnel", "algorithm": "aes-128-gcm",
        "key": SECRET, "local": "192.0.2.1", "remote": "192.0.2.2",
    })
}

/// Writes an SA to a file that only its owner can read.
fn file(directory: &Path, sa: &Json) -> String {
    let path = directory.join("sas.json");
    fs::write(&path, sa.to_string()).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts a switch with engines in this directory. The switch's program sends packets of EtherType 0x1111 to port 1.
fn start(directory: &Path, line: &str) -> Switch {
    let program = super::running::json();
    let state = directory.join("state");
    let line = format!(
        "-i 0@p0 --log-console -L trace --engine-state-directory {} {line}",
        state.display()
    );
    let words = line.split_whitespace().chain([program.to_str().unwrap()]);
    Switch::start(directory, &words.collect::<Vec<_>>())
}

#[test]
fn an_engine_is_a_port_with_sas_and_counts() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "--grpc-server-addr 127.0.0.1:50070 --metrics-address 127.0.0.1:50071";
        let switch = start(directory, &format!("{line} --engine-port 1"));
        let ports = ctl_json(directory, "ports");
        let port = &ports["ports"][1];
        let name = port["name"].as_str().unwrap();
        assert!(name.starts_with("engine:/") && port["up"] == true, "{port}");
        assert!(ctl(directory, "ports").contains(name));
        ctl(
            directory,
            &format!("esp add {}", file(directory, &outbound(7))),
        );
        assert!(ctl(directory, "esp show").contains("sa 7 spi 0x1000"));
        Wire::open("h0").send(&frame_of(0x1111, 1));
        wait_until("the packet is dropped by name", || {
            let status: Json = ctl_json(directory, "esp --port 1 show");
            status["others"]["drops"]["not_shim"].as_u64() > Some(0)
        });
        let text = get("127.0.0.1:50071");
        for sample in [
            "esp_sas{direction=\"out\",port=\"1\"} 1",
            "esp_sas{direction=\"in\",port=\"1\"} 0",
            "esp_packets_total{direction=\"out\",port=\"1\"} 0",
            "esp_dropped_packets_total{port=\"1\",reason=\"not_shim\"}",
        ] {
            assert!(
                text.contains(&format!("\nsluice_dataplane_{sample}")),
                "{sample}: {text}"
            );
        }
        ctl(directory, "esp delete-out 7");
        assert_eq!(ctl_json(directory, "esp show")["sas"], json!([]));
        for (line, said) in [
            ("esp delete-out 7", "there is no such SA"),
            ("esp --port 0 show", "no engine at port 0"),
        ] {
            let (well, stderr) = try_ctl(directory, line);
            assert!(!well && stderr.contains(said), "{line}: {stderr}");
        }
        ctl(directory, "remove-port 1");
        let (well, said) = try_ctl(directory, "esp show");
        assert!(!well && said.contains("no engine"), "{said}");
        assert!(switch.terminate().success());
        assert!(!Path::new(name.strip_prefix("engine:").unwrap()).exists());
    });
}

#[test]
fn a_port_that_takes_an_engine_s_number_stays_up() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "--grpc-server-addr 127.0.0.1:50077 --engine-port 1";
        let switch = start(directory, line);
        ctl(directory, "remove-port 1");
        ctl(directory, "add-port 1@p1");
        let threads = format!("/proc/{}/task", switch.id());
        wait_until("the engine's clock has noticed its end", || {
            let mut threads = fs::read_dir(&threads).unwrap().flatten();
            // A thread that has just ended has no name in /proc any more.
            threads.all(|thread| {
                let name = fs::read_to_string(thread.path().join("comm"));
                name.is_ok_and(|name| name.trim() != "esp-clock")
            })
        });
        let port = &ctl_json(directory, "ports")["ports"][1];
        assert!(port["name"] == "p1" && port["up"] == true, "{port}");
        assert!(switch.terminate().success());
    });
}

#[test]
fn engines_of_a_switch_share_sequence_numbers_and_not_sas() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "--grpc-server-addr 127.0.0.1:50072 --engine-port 8 --engine-port 9@nine.sock";
        let switch = start(directory, line);
        let path = file(directory, &outbound(7));
        let (well, said) = try_ctl(directory, &format!("esp add {path}"));
        assert!(!well && said.contains("ports 8, 9: select one"), "{said}");
        ctl(directory, &format!("esp --port 9 add {path}"));
        let (well, said) = try_ctl(directory, &format!("esp --port 8 add {path}"));
        assert!(!well && said.contains("uses this key"), "{said}");
        assert_eq!(ctl_json(directory, "esp --port 8 show")["sas"], json!([]));
        let socket = directory.join("nine.sock");
        assert_eq!(
            fs::metadata(socket).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // A second switch would reuse sequence numbers, so it must be refused.
        let program = super::running::json();
        let output = command(directory)
            .args([
                "--grpc-server-addr",
                "127.0.0.1:50073",
                "--engine-port",
                "3",
            ])
            .args(["--engine-state-directory", "state"])
            .arg(&program)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("another process has it"), "{said}");
        assert!(switch.terminate().success());
    });
}

#[test]
fn keys_are_in_no_log_answer_command_line_or_core_file() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "--grpc-server-addr 127.0.0.1:50074 --metrics-address 127.0.0.1:50075";
        let switch = start(directory, &format!("{line} --engine-port 1"));
        ctl(
            directory,
            &format!("esp add {}", file(directory, &outbound(7))),
        );
        let mut wrong = outbound(8);
        wrong["spi"] = json!(255);
        assert!(!try_ctl(directory, &format!("esp add {}", file(directory, &wrong))).0);
        Wire::open("h0").send(&frame_of(0x1111, 1));
        wait_until("the packet is in the trace", || {
            fs::read_to_string(directory.join("stdout"))
                .unwrap()
                .contains("port=1")
        });
        let proc = |file: &str| {
            let path = format!("/proc/{}/{file}", switch.id());
            String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
        };
        let limits = proc("limits");
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let core: Vec<_> = core.unwrap().split_whitespace().skip(4).take(2).collect();
        assert_eq!(core, ["0", "0"]);
        let log = fs::read_to_string(directory.join("stdout")).unwrap();
        assert!(log.contains("SA added"), "{log}");
        let everything = [
            log,
            ctl(directory, "esp show"),
            ctl(directory, "esp show --json"),
            ctl(directory, "ports"),
            ctl(directory, "counters"),
            get("127.0.0.1:50075"),
            proc("cmdline"),
            proc("environ"),
        ];
        for text in everything {
            assert!(!text.contains(&SECRET[..12]), "{text}");
        }
        assert!(switch.terminate().success());
    });
}

#[test]
fn without_an_engine_the_process_keeps_its_core_files() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let switch = start(directory, "--grpc-server-addr 127.0.0.1:50076");
        let limit = |process: &str| {
            let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
            let core = limits
                .lines()
                .find(|line| line.starts_with("Max core file size"));
            core.unwrap().to_owned()
        };
        assert_eq!(limit(&switch.id().to_string()), limit("self"));
        assert!(!directory.join("state").exists());
        let (well, said) = try_ctl(directory, "esp show");
        assert!(
            !well && said.contains("start it with --engine-port"),
            "{said}"
        );
        assert!(switch.terminate().success());
    });
}
