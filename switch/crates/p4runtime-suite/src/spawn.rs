// SPDX-License-Identifier: Apache-2.0
//! Starts a separate server for each case: a command starts the server before the case, and the server is killed after
//! it. So no case sees the state of another case, and a server that dies fails only one case.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

/// Time limit for a server to start listening.
const START: Duration = Duration::from_secs(20);

/// A running server. Dropping the value kills the server.
pub struct Spawned(Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        // The server may have died already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Spawned {
    /// Starts `command` in a shell, and waits until a server listens on `address`.
    ///
    /// # Errors
    /// The server cannot be started, ends, or does not listen in time.
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

    /// Returns how the server ended, if it has ended.
    pub fn end(&mut self) -> Option<String> {
        let status = self.0.try_wait().ok().flatten()?;
        Some(format!("the server ended: {status}"))
    }
}
