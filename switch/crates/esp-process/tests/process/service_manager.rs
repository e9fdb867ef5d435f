// SPDX-License-Identifier: Apache-2.0
//! Tests an engine's notifications to the service manager (sd_notify(3)).

use std::os::unix::net::UnixDatagram;

use crate::running::*;

#[test]
fn the_service_manager_hears_ready_alive_and_stopping() {
    in_namespace(|directory| {
        let path = directory.join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(DEADLINE)).unwrap();
        let heard = || {
            let mut state = [0; 64];
            let length = manager.recv(&mut state).unwrap();
            String::from_utf8_lossy(&state[..length]).into_owned()
        };
        let mut engine = command(directory, &[])
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "200000")
            .spawn()
            .unwrap();
        assert_eq!(heard(), "READY=1");
        assert_eq!(heard(), "WATCHDOG=1");
        assert_eq!(heard(), "WATCHDOG=1");
        let pid = libc::pid_t::try_from(engine.id()).unwrap();
        // SAFETY: kill takes no pointers; the child is waited for below, so its process id is still valid.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        while heard() != "STOPPING=1" {}
        assert!(engine.wait().unwrap().success());
    });
}
