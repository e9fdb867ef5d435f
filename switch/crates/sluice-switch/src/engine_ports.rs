// SPDX-License-Identifier: Apache-2.0
//! Implements `--engine-port`: ESP engines as ports of the switch, each with its own admin socket.
//!
//! With this option, the memory of the process can contain keys. So the process writes no core file, and no debugger
//! can attach to it. Without the option, both are allowed.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::Context;
use sluice_admin::find;
use sluice_device::{Device, Port, PortId};
use sluice_esp::Reservations;
use sluice_esp_control::admin::{self, Admin};
use sluice_esp_control::command;
use sluice_esp_control::hardening::no_core;
use sluice_esp_port::EnginePort;
use sluice_metrics::Engines;
use sluice_unix_socket::SocketFile;

/// Prefix of the names of engine ports. No interface name can contain its colon.
const ENGINE: &str = "engine:";

/// A requested engine port: its number, and the path of its admin socket if one was specified.
pub(crate) type Requested = (PortId, Option<PathBuf>);

/// Parses PORT or PORT@SOCKET.
pub(crate) fn parse(argument: &str) -> Result<Requested, String> {
    let (port, socket) = match argument.split_once('@') {
        Some((port, socket)) => (port, Some(socket)),
        None => (argument, None),
    };
    let number = port
        .parse()
        .map_err(|_| format!("{port:?} is not a port number"))?;
    let socket = socket.map(|path| std::path::absolute(path).map_err(|error| error.to_string()));
    Ok((number, socket.transpose()?))
}

/// Returns the path of an engine port's admin socket, which is part of the port's name. Returns `None` for other
/// ports.
pub(crate) fn socket_of(name: &str) -> Option<&Path> {
    name.strip_prefix(ENGINE).map(Path::new)
}

/// Admin sockets of the engines. The switch opens them before it drops capabilities.
pub(crate) struct Sockets(Vec<(PortId, UnixListener, SocketFile)>);

impl Sockets {
    /// Opens the engines' admin sockets. Protects the process's memory from other processes.
    ///
    /// # Errors
    /// Names the obstacle and its path.
    pub(crate) fn open(requested: &[Requested]) -> anyhow::Result<Self> {
        if requested.is_empty() {
            return Ok(Self(Vec::new()));
        }
        no_core().context("cannot disable core files")?;
        let open = |(number, socket): &Requested| -> anyhow::Result<_> {
            let path = socket.clone().unwrap_or_else(|| default_socket(*number));
            let opened = admin::listen(&path);
            let (listener, file) =
                opened.with_context(|| format!("--engine-port {number}@{}", path.display()))?;
            Ok((*number, listener, file))
        };
        let sockets: anyhow::Result<_> = requested.iter().map(open).collect();
        Ok(Self(sockets?))
    }
}

/// Returns the default path, in the directory of `ctl`'s sockets. Other files there are named after a process id; this
/// name cannot be mistaken for one.
fn default_socket(number: PortId) -> PathBuf {
    let process = std::process::id();
    find::directory().join(format!("{process}-engine-{number}.sock"))
}

/// An engine whose port is not yet attached.
struct Prepared {
    number: PortId,
    port: Port,
    admin: Arc<Admin>,
    listener: UnixListener,
}

/// The engines of a switch. Dropping this removes their socket files.
pub(crate) struct EnginePorts {
    prepared: Vec<Prepared>,
    _files: Vec<SocketFile>,
}

impl EnginePorts {
    /// Creates engines without SAs. All engines of a process share the sequence numbers on disk, which keeps two
    /// engines from using the same key.
    ///
    /// # Errors
    /// The state directory cannot be used, or the kernel returns an error.
    pub(crate) fn prepare(
        sockets: Sockets,
        state_directory: &Path,
        workers: u8,
    ) -> anyhow::Result<Self> {
        let (mut prepared, mut files) = (Vec::new(), Vec::new());
        if sockets.0.is_empty() {
            return Ok(Self {
                prepared,
                _files: files,
            });
        }
        let reservations = Reservations::open(state_directory)
            .with_context(|| format!("--engine-state-directory {}", state_directory.display()))?;
        let reservations = Arc::new(reservations);
        for (number, listener, file) in sockets.0 {
            let name = format!("{ENGINE}{}", file.path().display());
            let counters = Arc::default();
            let EnginePort {
                receiver,
                transmitters,
                engine,
            } = sluice_esp_port::port(number, workers.into(), &counters)?;
            let halves = transmitters.into_iter().map(|one| Box::new(one) as Box<_>);
            let port = Port::new(number, name, counters, Box::new(receiver), halves.collect());
            let admin = Arc::new(Admin {
                engine,
                reservations: Arc::clone(&reservations),
                allow_no_integrity: false,
            });
            prepared.push(Prepared {
                number,
                port,
                admin,
                listener,
            });
            files.push(file);
        }
        Ok(Self {
            prepared,
            _files: files,
        })
    }

    /// Returns handles to all engines, for metrics.
    pub(crate) fn engines(&self) -> Engines {
        let engine = |one: &Prepared| (one.number, one.admin.engine.clone());
        self.prepared.iter().map(engine).collect()
    }

    /// Attaches the ports and serves their sockets. When an engine ends, the link of its port goes down.
    ///
    /// # Errors
    /// The number of a port is already in use, or the kernel returns an error.
    pub(crate) fn attach(&mut self, device: &Arc<Device>) -> anyhow::Result<()> {
        for Prepared {
            number,
            port,
            admin,
            listener,
        } in self.prepared.drain(..)
        {
            let name = port.name.clone();
            device
                .add_port(port)
                .with_context(|| format!("--engine-port {number}"))?;
            let of: Weak<Device> = Arc::downgrade(device);
            command::tick(admin.engine.clone(), move || {
                if let Some(device) = of.upgrade() {
                    device.port_ended(number, &name);
                }
            })?;
            admin::serve(listener, admin)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_a_number_and_maybe_a_socket() {
        assert_eq!(parse("9"), Ok((9, None)));
        assert_eq!(parse("9@/run/x.sock"), Ok((9, Some("/run/x.sock".into()))));
        let relative = parse("9@x.sock").unwrap().1.unwrap();
        assert!(relative.is_absolute() && relative.ends_with("x.sock"));
        for wrong in ["", "x", "9:/run/x.sock", "@/run/x.sock", "9@", "70000"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(socket_of("engine:/a/b"), Some(Path::new("/a/b")));
        assert_eq!(socket_of("eth0"), None);
    }
}
