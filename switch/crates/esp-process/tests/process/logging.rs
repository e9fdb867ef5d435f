// SPDX-License-Identifier: Apache-2.0
//! Tests an engine's log output: lines in a file, and records in the journal.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use crate::running::*;

#[test]
fn a_log_in_a_file_has_no_escape_characters() {
    in_namespace(|directory| {
        let engine = Running::start(directory, &[]);
        engine.add(&outbound());
        assert!(engine.end(libc::SIGTERM).success());
        let log = fs::read_to_string(directory.join("log")).unwrap();
        assert!(log.contains("INFO ready interface=\"engine\""), "{log}");
        assert!(!log.contains('\x1b'), "{log}");
    });
}

#[test]
fn the_journal_gets_priorities_and_fields() {
    in_namespace(|directory| {
        let sockets = directory.join("run/systemd/journal");
        fs::create_dir_all(&sockets).unwrap();
        let journal = UnixDatagram::bind(sockets.join("socket")).unwrap();
        journal.set_read_timeout(Some(DEADLINE)).unwrap();
        let plain = command(directory, &[]);
        // The engine runs in a separate mount namespace, in which the test provides /run.
        let mut engine = Command::new("unshare")
            .args([
                "--mount",
                "sh",
                "-c",
                "mount --bind \"$0\" /run && exec \"$@\"",
            ])
            .arg(directory.join("run"))
            .arg(plain.get_program())
            .args(plain.get_args())
            .env("RUST_LOG", "info")
            .env("JOURNAL_STREAM", stream_of(&directory.join("log")))
            .stderr(
                fs::File::options()
                    .append(true)
                    .open(directory.join("log"))
                    .unwrap(),
            )
            .spawn()
            .unwrap();
        let mut record = String::new();
        while !record.contains("MESSAGE\nready") {
            let mut bytes = [0; 4096];
            let Ok(length) = journal.recv(&mut bytes) else {
                break;
            };
            // Removes the binary length in front of each value.
            let text = bytes[..length]
                .iter()
                .filter(|byte| matches!(byte, b'\n' | b' '..=b'~'));
            record = text.map(|&byte| char::from(byte)).collect();
        }
        engine.kill().unwrap();
        engine.wait().unwrap();
        for field in [
            "PRIORITY\n5",
            "SYSLOG_IDENTIFIER",
            "sluice-esp",
            "SLUICE_INTERFACE",
            "engine",
        ] {
            assert!(record.contains(field), "{record:?}");
        }
        assert_eq!(fs::read_to_string(directory.join("log")).unwrap(), "");
    });
}

/// Returns the identity of a file in the form that `JOURNAL_STREAM` uses.
fn stream_of(path: &Path) -> String {
    let metadata = fs::metadata(path).unwrap();
    format!("{}:{}", metadata.dev(), metadata.ino())
}
