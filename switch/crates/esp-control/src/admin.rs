// SPDX-License-Identifier: Apache-2.0
//! Serves the admin socket of an engine.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_esp::engine::Sa;
use sluice_esp::spec::Direction;
use sluice_esp::{Reservations, SaSpec};
use sluice_unix_socket::{Access, SocketFile};

use crate::command::{Command, Handle, now};
use crate::protocol::{Lines, MAX_REQUEST, Request, SaId};

/// Limit for concurrent connections.
const MAX_CONNECTIONS: usize = 16;
/// Timeout for a client that sends no request or does not read its answer. After it, the server closes the connection.
const PATIENCE: Duration = Duration::from_secs(60);

const ENDED: &str = "the engine has ended";

/// State that all connections share.
pub struct Admin {
    /// The engine.
    pub engine: Handle,
    /// Reservations of sequence numbers, shared by all engines of the process.
    pub reservations: Arc<Reservations>,
    /// Whether to accept SAs without encryption and integrity.
    pub allow_no_integrity: bool,
}

/// Listens on a Unix socket at `path`, which only its owner may open.
///
/// # Errors
/// Describes the obstacle and names the path.
pub fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let owner = Access {
        mode: 0o600,
        group: None,
    };
    let (listener, file) = sluice_unix_socket::listen(path, owner)?;
    listener.set_nonblocking(false)?;
    Ok((listener, file))
}

impl Admin {
    /// Checks and prepares an SA, and adds it to the engine.
    ///
    /// # Errors
    /// Describes why the SA was refused.
    pub fn add(&self, spec: SaSpec) -> Result<(), String> {
        spec.check(self.allow_no_integrity)?;
        let (direction, sa, spi, bundle) = (spec.direction, spec.sa, spec.spi, spec.bundle);
        let prepared = Sa::prepare(spec, &self.reservations, now())?;
        let answer = self.engine.ask(|answer| Command::Add(prepared, answer));
        match answer.ok_or(ENDED)? {
            Ok(()) => {
                tracing::info!(?direction, sa, spi, bundle, "SA added");
                Ok(())
            }
            Err((_, problem)) => Err(problem),
        }
    }

    fn delete(&self, which: &SaId) -> Result<(), String> {
        let removed = match (which.direction, which.sa, which.spi) {
            (Direction::Out, Some(sa), None) => self
                .engine
                .ask(|answer| Command::RemoveOutbound(sa, answer)),
            (Direction::In, None, Some(spi)) => self
                .engine
                .ask(|answer| Command::RemoveInbound(which.vrf, spi, answer)),
            _ => return Err("give sa for an outbound SA, or spi and vrf for an inbound SA".into()),
        };
        // Order: the SA is dropped here, so that the engine's thread spends no time on it.
        match removed.ok_or(ENDED)? {
            Some(_) => {
                tracing::info!(?which, "SA deleted");
                Ok(())
            }
            None => Err("there is no such SA".into()),
        }
    }

    fn answer(&self, line: &[u8]) -> Value {
        // The parser's error may quote the line and its keys. So the error is sent to the client, but never logged.
        let done = match serde_json::from_slice(line) {
            Err(error) => Err(format!("the line is not a request: {error}")),
            Ok(Request::Add(spec)) => self.add(*spec),
            Ok(Request::Delete(which)) => self.delete(&which),
            Ok(Request::Status {}) => match self.engine.ask(Command::Status) {
                Some(status) => return json!({ "status": status }),
                None => Err(ENDED.into()),
            },
        };
        match done {
            Ok(()) => json!({ "done": {} }),
            Err(error) => json!({ "error": error }),
        }
    }

    fn serve_connection(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut lines = Lines::new(stream, MAX_REQUEST);
        while let Some(line) = lines.next_line()? {
            let mut answer = self.answer(line).to_string();
            answer.push('\n');
            (&*stream).write_all(answer.as_bytes())?;
        }
        Ok(())
    }
}

/// Accepts connections on a separate thread, until the process ends.
///
/// # Errors
/// The kernel's error, if the thread cannot be started.
pub fn serve(listener: UnixListener, admin: Arc<Admin>) -> io::Result<()> {
    let accepting = thread::Builder::new().name("admin".into());
    accepting.spawn(move || accept(&listener, &admin))?;
    Ok(())
}

fn accept(listener: &UnixListener, admin: &Arc<Admin>) {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection of `ctl` cannot be accepted");
                // Accepting fails for example if there are no free descriptors. Pause before the next attempt.
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if connections.load(Ordering::Acquire) >= MAX_CONNECTIONS {
            tracing::warn!("too many connections of `ctl`: one refused");
            continue;
        }
        connections.fetch_add(1, Ordering::AcqRel);
        let (admin, counted) = (Arc::clone(admin), Arc::clone(&connections));
        let spawned = thread::Builder::new().name("admin".into()).spawn(move || {
            if let Err(error) = admin.serve_connection(&stream) {
                tracing::debug!(%error, "a connection of `ctl` ended");
            }
            counted.fetch_sub(1, Ordering::AcqRel);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "a connection of `ctl` refused");
            connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
