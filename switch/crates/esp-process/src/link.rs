// SPDX-License-Identifier: Apache-2.0
//! Controls the engine's interface: closes it to the host's network stack, checks it while the engine runs, and
//! restores it at the end.

use std::io;

use anyhow::bail;
use rustix::net::{self, AddressFamily, SocketType};
use sluice_ports::host_filter::Checked;
use sluice_ports::interface::{self, SilentInterface};

/// An interface that the engine uses exclusively until this is dropped.
pub(crate) struct Link {
    interface: SilentInterface,
    name: String,
    /// Last link state that was logged.
    is_up: bool,
}

impl Link {
    /// Closes the interface to the host and brings it up.
    ///
    /// # Errors
    /// Describes the obstacle, such as a missing interface.
    pub(crate) fn take(name: &str) -> io::Result<Self> {
        Ok(Self {
            interface: SilentInterface::take(name)?,
            name: name.to_owned(),
            is_up: true,
        })
    }

    /// Keeps the interface closed to the host, and logs when the link goes down or comes up.
    ///
    /// # Errors
    /// The interface is gone, or its name now belongs to another interface.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let interface = self.name.as_str();
        // Does not use /sys, which may show another network namespace than the process's.
        let socket = net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let index = net::netdevice::name_to_index(&socket, interface).ok();
        if index.and_then(|index| i32::try_from(index).ok()) != Some(self.interface.index()) {
            bail!("the interface {interface} is gone");
        }
        match self.interface.check() {
            Ok(Checked::Intact) => {}
            Ok(_) => tracing::warn!(
                interface,
                "the interface was open to the host: closed again"
            ),
            Err(error) => {
                tracing::error!(interface, %error, "the interface cannot be closed to the host and is down")
            }
        }
        let is_up = interface::is_running(interface);
        if is_up != self.is_up {
            self.is_up = is_up;
            if is_up {
                tracing::info!(interface, "the link is up again");
            } else {
                tracing::warn!(
                    interface,
                    "the link is down, at this end or the other, so no packet passes"
                );
            }
        }
        Ok(())
    }
}
