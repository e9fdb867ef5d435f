// SPDX-License-Identifier: Apache-2.0
//! Notifies the service manager (sd_notify(3)): ready, alive, stopping. Sends nothing if `NOTIFY_SOCKET` is not set.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Connection to the service manager, if `NOTIFY_SOCKET` names one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    interval: Option<Duration>,
}

impl ServiceManager {
    /// Returns the manager that `NOTIFY_SOCKET` names. Logs a warning if the manager cannot be reached.
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var_os(name);
        let Some(address) = variable("NOTIFY_SOCKET") else {
            return Self::default();
        };
        Self::at(
            &address,
            variable("WATCHDOG_USEC"),
            variable("WATCHDOG_PID"),
        )
        .unwrap_or_else(|error| {
            tracing::warn!(?address, %error, "cannot connect to the service manager, so it gets no notifications");
            Self::default()
        })
    }

    fn at(
        address: &OsString,
        watchdog: Option<OsString>,
        watched: Option<OsString>,
    ) -> io::Result<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(address)?,
        };
        let number = |text: OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
        let ours = watched
            .and_then(number)
            .unwrap_or(std::process::id().into())
            == u64::from(std::process::id());
        let microseconds = watchdog.and_then(number).filter(|&time| ours && time > 0);
        let socket = UnixDatagram::unbound()?;
        // The socket is non-blocking, because a manager that does not read must not block the program.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: Some((socket, address)),
            interval: microseconds.map(|time| Duration::from_micros(time) / 2),
        })
    }

    /// Sends assignments to the manager, such as `READY=1`, one per line.
    pub fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::warn!(state, %error, "the service manager does not receive a notification");
        }
    }

    /// Returns the interval of keepalives (`WATCHDOG=1`), half of the manager's timeout. Returns `None` if the manager
    /// sets no timeout.
    pub fn interval(&self) -> Option<Duration> {
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(watchdog: Option<&str>, watched: Option<&str>) -> Option<Duration> {
        let address = OsString::from("/nowhere");
        let manager = ServiceManager::at(
            &address,
            watchdog.map(OsString::from),
            watched.map(OsString::from),
        );
        manager.unwrap().interval
    }

    #[test]
    fn signs_of_life_come_twice_in_the_time_and_only_from_who_is_watched() {
        assert_eq!(
            interval(Some("3000000"), None),
            Some(Duration::from_millis(1500))
        );
        let us = std::process::id().to_string();
        assert!(interval(Some("3000000"), Some(&us)).is_some());
        assert_eq!(interval(Some("3000000"), Some("1")), None);
        assert_eq!(interval(None, None), None);
        assert_eq!(interval(Some("0"), None), None);
        assert_eq!(interval(Some("soon"), None), None);
    }

    #[test]
    fn a_manager_that_reads_nothing_holds_nothing_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let unread = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(&path.into(), None, None).unwrap();
        for _ in 0..10_000 {
            manager.tell("WATCHDOG=1");
        }
        assert!(unread.recv(&mut [0; 16]).is_ok());
    }

    #[test]
    fn an_abstract_socket_is_reached_too() {
        let name = format!("sluice-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let manager = ServiceManager::at(&format!("@{name}").into(), None, None).unwrap();
        manager.tell("READY=1");
        let mut heard = [0; 16];
        let length = socket.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1");
    }
}
