// SPDX-License-Identifier: Apache-2.0
//! Tests the switch's notifications to a service manager (sd_notify(3)).

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use crate::running::*;

#[test]
fn the_service_manager_hears_ready_alive_and_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let heard = || {
        let mut state = [0; 512];
        let length = manager.recv(&mut state).unwrap();
        String::from_utf8_lossy(&state[..length]).into_owned()
    };
    let mut switch = command(directory.path())
        .args(["--no-p4", "--grpc-server-addr", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .spawn()
        .unwrap();
    let ready = heard();
    assert!(
        ready.starts_with("READY=1\nSTATUS=serving P4Runtime at 127.0.0.1:"),
        "{ready}"
    );
    assert_eq!(heard(), "WATCHDOG=1");
    assert_eq!(heard(), "WATCHDOG=1");
    let pid = libc::pid_t::try_from(switch.id()).unwrap();
    // SAFETY: kill takes no pointers; the child is waited for below, so its process id is still valid.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    while heard() != "STOPPING=1" {}
    assert!(switch.wait().unwrap().success());
}

/// Tests that warnings of the project's other crates are logged, too. The warning in this test comes from the crate
/// service-manager.
#[test]
fn a_service_manager_that_does_not_hear_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let mut switch = command(directory.path())
        .args(["--no-p4", "--grpc-server-addr", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", directory.path().join("nobody"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(switch.stderr.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    while next() != "sluice-switch: ready" {}
    let said = next();
    assert!(
        said.contains("the service manager does not receive a notification"),
        "{said}"
    );
    let pid = libc::pid_t::try_from(switch.id()).unwrap();
    // SAFETY: kill takes no pointers; the child is waited for below, so its process id is still valid.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    assert!(switch.wait().unwrap().success());
}
