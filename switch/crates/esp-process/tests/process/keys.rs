// SPDX-License-Identifier: Apache-2.0
//! Tests where keys may appear, and where they must not.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use serde_json::json;
use sluice_esp::shim::Task;

use crate::running::*;

#[test]
fn keys_are_in_no_log_answer_command_line_or_core_file() {
    in_namespace(|directory| {
        let mut engine = Running::start(directory, &[]);
        engine.add(&outbound());
        engine.exchange(Task::Encrypt, &packet());
        let proc = |file: &str| {
            let path = format!("/proc/{}/{file}", engine.pid());
            String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
        };
        let limits = proc("limits");
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"))
            .unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        assert_eq!(core.split_whitespace().nth(5), Some("0"), "{core}");
        let log = fs::read_to_string(directory.join("log")).unwrap();
        assert!(log.contains("SA added"));
        let state = fs::read(directory.join("state/sequence-numbers")).unwrap();
        let key: Vec<u8> = (0..20)
            .map(|at| u8::from_str_radix(&SECRET[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        assert!(!state.windows(8).any(|seen| seen == &key[..8]));
        let everything = [
            log,
            engine.ctl(&["show"]),
            engine.ctl(&["show", "--json"]),
            proc("cmdline"),
            proc("environ"),
        ];
        for text in everything {
            assert!(!text.contains(&SECRET[..12]), "{text}");
        }
        let mode = |path: &str| {
            fs::metadata(directory.join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(mode("admin.sock"), 0o600);
        assert_eq!(mode("state"), 0o700);
        assert_eq!(mode("state/sequence-numbers"), 0o600);
    });
}

#[test]
fn no_request_with_a_mistake_puts_its_key_into_the_log() {
    in_namespace(|directory| {
        let engine = Running::start(directory, &[]);
        let stream = UnixStream::connect(directory.join("admin.sock")).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut ask = |line: &str| {
            (&stream).write_all(format!("{line}\n").as_bytes()).unwrap();
            let mut answer = String::new();
            answers.read_line(&mut answer).unwrap();
            assert!(answer.starts_with("{\"error\":"), "{line}: {answer}");
            answer
        };
        let add = |name: &str, value: serde_json::Value| {
            let mut sa = outbound();
            sa[name] = value;
            json!({ "add": sa }).to_string()
        };
        ask("");
        ask("nonsense");
        ask(&add("key", json!(12345)));
        ask(&add("key", json!(format!("{SECRET}00"))));
        ask(&add("key", json!("xyz")));
        ask(&add("kee", json!(SECRET)));
        ask(&add("spi", json!(255)));
        ask(&add("bundle", json!(0)));
        ask(&add("remote", json!("2001:db8::1")));
        ask(&add("replay_window", json!(64)));
        ask(&add("key_file", json!("key")));
        ask(&add("esn", json!(SECRET)));
        let benchmark = ask(&json!({"add": {
            "direction": "in", "sa": 1, "spi": 300, "bundle": 1, "mode": "tunnel",
            "algorithm": "null-without-integrity",
        }})
        .to_string());
        assert!(
            benchmark.contains("--allow-null-without-integrity-for-benchmarks"),
            "{benchmark}"
        );
        assert_eq!(engine.status()["sas"], json!([]));
        let log = fs::read_to_string(directory.join("log")).unwrap();
        assert!(!log.contains(&SECRET[..12]), "{log}");
        // Sends a line without an end.
        (&stream).write_all(&[b' '; 20_000]).unwrap();
        let mut rest = String::new();
        assert_eq!(answers.read_line(&mut rest).unwrap_or(0), 0);
        assert!(engine.try_ctl(&["show"]).0);
    });
}

#[test]
fn files_with_keys_are_their_owner_s_alone() {
    in_namespace(|directory| {
        let engine = Running::start(directory, &[]);
        for mode in [0o640, 0o604, 0o660] {
            let (well, said) = engine.try_add(&outbound(), mode);
            assert!(!well && said.contains("chmod 600"), "{said}");
        }
        let mut by_file = outbound();
        let fields = by_file.as_object_mut().unwrap();
        fields.remove("key");
        fields.insert("key_file".into(), "secret".into());
        let secret = directory.join("secret");
        fs::write(&secret, format!("{SECRET}\n")).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
        let (well, said) = engine.try_add(&by_file, 0o644);
        assert!(!well && said.contains("chmod 600"), "{said}");
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let (well, said) = engine.try_add(&by_file, 0o644);
        assert!(well, "{said}");
    });
}

#[test]
fn what_protects_nothing_is_an_option() {
    in_namespace(|directory| {
        let engine = Running::start(
            directory,
            &["--allow-null-without-integrity-for-benchmarks"],
        );
        let mut sa = outbound();
        sa["algorithm"] = json!("null-without-integrity");
        sa.as_object_mut().unwrap().remove("key");
        engine.add(&sa);
    });
}
