// SPDX-License-Identifier: Apache-2.0
//! Holds the part of the ports' state that no worker owns, and reacts to changes of the ports' links.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_ports::host_filter::Checked;
use sluice_ports::link_monitor::LinkObserver;
use sluice_ports::{PortCounters, PortId, Receiver, Transmitter};
use sluice_tables::Store;

use crate::attach::Attachment;
use crate::counters::count;
use crate::levels::{PortLevels, QueueSetting};
use crate::mailbox::{Command, Mailbox};
use crate::outputs::Shared;
use crate::running::Engines;

/// An attached port.
pub(crate) struct PortState {
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) counters: Arc<PortCounters>,
    pub(crate) attachment: Option<Attachment>,
    /// Index of the worker that receives from the port.
    pub(crate) receiving: usize,
    /// Fill levels and settings of the port's queues.
    pub(crate) levels: Arc<PortLevels>,
}

/// State that requests of the control plane read and change. One lock protects it.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) ports: BTreeMap<PortId, PortState>,
    /// Store of the running program, if there is one.
    pub(crate) store: Option<Arc<Store>>,
    /// Factory for the engines of the running program.
    pub(crate) engines: Option<Engines>,
    /// Queue settings for ports that are added later, by priority.
    pub(crate) queues: Vec<QueueSetting>,
}

impl Control {
    /// Returns the worker that receives from the fewest ports. One worker receives all packets of a port, so the
    /// packets stay in order.
    pub(crate) fn least_busy(&self, workers: usize) -> usize {
        let load = |worker: &usize| {
            self.ports
                .values()
                .filter(|port| port.receiving == *worker)
                .count()
        };
        (0..workers).min_by_key(load).unwrap_or(0)
    }
}

/// Sends the halves of a port to the workers. The new halves replace those that the workers already have for this port
/// number.
pub(crate) fn hand_out(
    mailboxes: &[Arc<Mailbox>],
    number: PortId,
    receiving: usize,
    mut receiver: Option<Box<dyn Receiver>>,
    transmitters: Vec<Box<dyn Transmitter>>,
    levels: &Arc<PortLevels>,
) {
    for (index, (mailbox, transmitter)) in mailboxes.iter().zip(transmitters).enumerate() {
        let receiver = if index == receiving {
            receiver.take()
        } else {
            None
        };
        mailbox.send(Command::AddPort(
            number,
            receiver,
            transmitter,
            Arc::clone(levels),
        ));
    }
}

/// Records that a link went up or down. If a name is given, does nothing unless the port still has this name: the
/// number may belong to another port by now.
pub(crate) fn port_status(control: &Mutex<Control>, port: PortId, name: Option<&str>, up: bool) {
    let mut control = control.lock();
    let found = control.ports.get_mut(&port);
    let Some(state) = found.filter(|state| name.is_none_or(|name| state.name == name)) else {
        return;
    };
    if state.up != up {
        tracing::info!(port, name = state.name, up, "link");
    }
    state.up = up;
    if let Some(store) = &control.store {
        store.port_status(u32::from(port), up);
    }
}

/// Observes the links of all ports that are interfaces.
pub(crate) struct Links {
    pub(crate) control: Weak<Mutex<Control>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailboxes: Arc<[Arc<Mailbox>]>,
}

impl LinkObserver for Links {
    fn state(&mut self, port: PortId, up: bool) {
        if let Some(control) = self.control.upgrade() {
            port_status(&control, port, None, up);
        }
    }

    fn appeared(&mut self, port: PortId) -> io::Result<()> {
        let Some(control) = self.control.upgrade() else {
            return Ok(());
        };
        let mut control = control.lock();
        let Some(state) = control.ports.get_mut(&port) else {
            return Ok(());
        };
        if let Some(attachment) = &mut state.attachment {
            let halves = attachment.reopen(port, self.mailboxes.len())?;
            let receiver = Some(halves.receiver);
            hand_out(
                &self.mailboxes,
                port,
                state.receiving,
                receiver,
                halves.transmitters,
                &state.levels,
            );
            tracing::info!(port, name = state.name, "the interface is back");
        }
        Ok(())
    }

    fn check(&mut self, port: PortId) {
        let Some(control) = self.control.upgrade() else {
            return;
        };
        let mut control = control.lock();
        let Some(state) = control.ports.get_mut(&port) else {
            return;
        };
        let (name, attachment) = (&state.name, &mut state.attachment);
        if let Some(attachment) = attachment {
            follow_qdisc(port, name, attachment);
        }
        match attachment.as_mut().map(|found| found.interface.check()) {
            None | Some(Ok(Checked::Intact)) => {}
            Some(Ok(Checked::Restored)) => {
                count(&self.shared.counters.port_closed_again);
                tracing::warn!(
                    port,
                    name,
                    "the interface was open to the host: closed again"
                );
            }
            Some(Err(error)) => {
                tracing::error!(port, name, %error, "the interface cannot be closed to the host and is down");
            }
        }
    }
}

/// Updates the send path of a port, according to the qdisc that its interface has now.
fn follow_qdisc(port: PortId, name: &str, attachment: &mut Attachment) {
    match attachment.follow_qdisc() {
        Ok(false) => {}
        Ok(true) => {
            let qdisc = attachment.qdisc.as_deref().unwrap_or("none");
            tracing::info!(port, name, qdisc, "the interface's qdisc changed");
        }
        Err(error) => {
            tracing::warn!(port, name, %error, "the port keeps its send path, although the interface's qdisc changed");
        }
    }
}
