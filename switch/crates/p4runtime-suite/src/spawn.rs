// SPDX-License-Identifier: Apache-2.0
//! A server of its own for each case: a command that is started before and killed after it, so that cases do not meet each
//! other's traces and a server that dies fails one case.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(20);

/// A running server, killed when this is dropped.
pub struct Spawned(Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may have died.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Spawned {
    /// Starts `command` by the shell and waits until something listens on `address`.
    ///
    /// # Errors
    /// If it cannot be started, ends, or does not listen in time.
    pub async fn start(command: &str, address: &str) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command}")]);
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Self(shell.spawn()?);
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).await.is_err() {
            if let Some(how) = server.end() {
                return Err(io::Error::other(format!("{command}: {how}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!(
                    "{command}: nothing listens on {address}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(server)
    }

    /// How the server ended, if it has.
    pub fn end(&mut self) -> Option<String> {
        let status = self.0.try_wait().ok().flatten()?;
        Some(format!("the server ended: {status}"))
    }
}
