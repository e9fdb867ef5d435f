// SPDX-License-Identifier: Apache-2.0
//! `--engine-port`: ESP engines as ports of the switch, each with an admin socket of its own.
//!
//! Keys are in the memory of the whole process then, so it writes no core file and cannot be traced, whatever thread has
//! them. Without the option nothing of this happens.

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

use crate::options::Options;

/// Names of engine ports begin with this: no interface has a colon in its name.
const ENGINE: &str = "engine:";

/// An engine port as it is asked for: its number, and the path of its admin socket if one is named.
pub(crate) type Asked = (PortId, Option<PathBuf>);

/// Reads PORT or PORT@SOCKET.
pub(crate) fn asked(argument: &str) -> Result<Asked, String> {
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

/// The admin socket of an engine port, by the port's name; none if it is another port.
pub(crate) fn socket_of(name: &str) -> Option<&Path> {
    name.strip_prefix(ENGINE).map(Path::new)
}

/// Sockets that are listened on, before capabilities are given up.
pub(crate) struct Sockets(Vec<(PortId, UnixListener, SocketFile)>);

impl Sockets {
    /// Listens for those who administer the engines, and closes the process to others.
    ///
    /// # Errors
    /// Says what stands in the way, and where.
    pub(crate) fn open(options: &Options) -> anyhow::Result<Self> {
        if options.engine_ports.is_empty() {
            return Ok(Self(Vec::new()));
        }
        no_core().context("cannot switch core files off")?;
        let open = |(number, socket): &Asked| -> anyhow::Result<_> {
            let path = socket.clone().unwrap_or_else(|| default_socket(*number));
            let opened = admin::listen(&path);
            let (listener, file) =
                opened.with_context(|| format!("--engine-port {number}@{}", path.display()))?;
            Ok((*number, listener, file))
        };
        Ok(Self(
            options
                .engine_ports
                .iter()
                .map(open)
                .collect::<Result<_, _>>()?,
        ))
    }
}

/// Beside the socket of `ctl`, under a name that is not a process's.
fn default_socket(number: PortId) -> PathBuf {
    let process = std::process::id();
    find::directory().join(format!("{process}-engine-{number}.sock"))
}

/// An engine whose port is not attached yet.
struct Prepared {
    number: PortId,
    port: Port,
    admin: Arc<Admin>,
    listener: UnixListener,
}

/// The engines of a switch. Their sockets' files are removed with this.
pub(crate) struct EnginePorts {
    prepared: Vec<Prepared>,
    _files: Vec<SocketFile>,
}

impl EnginePorts {
    /// Makes engines without SAs. Engines of one process share the sequence numbers on disk, so that no two have one key.
    ///
    /// # Errors
    /// The state directory cannot be used; the kernel's.
    pub(crate) fn prepare(sockets: Sockets, options: &Options) -> anyhow::Result<Self> {
        let (mut prepared, mut files) = (Vec::new(), Vec::new());
        if sockets.0.is_empty() {
            return Ok(Self {
                prepared,
                _files: files,
            });
        }
        let directory = &options.engine_state_directory;
        let reservations = Reservations::open(directory)
            .with_context(|| format!("--engine-state-directory {}", directory.display()))?;
        let reservations = Arc::new(reservations);
        for (number, listener, file) in sockets.0 {
            let name = format!("{ENGINE}{}", file.path().display());
            let counters = Arc::default();
            let workers = usize::from(options.workers);
            let EnginePort {
                receiver,
                transmitters,
                engine,
            } = sluice_esp_port::port(number, workers, &counters)?;
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

    /// Returns the way to each engine, for metrics.
    pub(crate) fn engines(&self) -> Engines {
        let engine = |one: &Prepared| (one.number, one.admin.engine.clone());
        self.prepared.iter().map(engine).collect()
    }

    /// Attaches the ports and serves their sockets. Should an engine end, its port's link is down.
    ///
    /// # Errors
    /// A port's number is in use; the kernel's.
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
        assert_eq!(asked("9"), Ok((9, None)));
        assert_eq!(asked("9@/run/x.sock"), Ok((9, Some("/run/x.sock".into()))));
        let relative = asked("9@x.sock").unwrap().1.unwrap();
        assert!(relative.is_absolute() && relative.ends_with("x.sock"));
        for wrong in ["", "x", "9:/run/x.sock", "@/run/x.sock", "9@", "70000"] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
        assert_eq!(socket_of("engine:/a/b"), Some(Path::new("/a/b")));
        assert_eq!(socket_of("eth0"), None);
    }
}
