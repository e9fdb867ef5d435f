// SPDX-License-Identifier: Apache-2.0
//! Where a worker's packets go: the ports' sending halves, and the control plane.

use std::sync::Arc;

use sluice_engine::Sink;
use sluice_ports::{PortId, Transmitter};
use sluice_program::DigestId;

use crate::Handler;
use crate::clock::Clock;
use crate::counters::{DeviceCounters, count};
use crate::trace::{KnownPorts, Tracing};

/// What workers share.
pub(crate) struct Shared {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) counters: DeviceCounters,
    pub(crate) clock: Clock,
    pub(crate) cpu_port: Option<u32>,
    pub(crate) tracing: Arc<Tracing>,
}

/// A port's sending half.
struct Port {
    transmitter: Box<dyn Transmitter>,
    /// It has frames that have not been flushed.
    dirty: bool,
}

/// Where processed packets go.
pub(crate) struct Outputs {
    pub(crate) shared: Arc<Shared>,
    /// By port number.
    ports: Vec<Option<Port>>,
    /// Ports with frames that have not been flushed.
    dirty: Vec<usize>,
}

impl Outputs {
    /// No ports yet.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            ports: Vec::new(),
            dirty: Vec::new(),
        }
    }

    /// A port's sending half, in place of the one there was.
    pub(crate) fn add(&mut self, port: PortId, transmitter: Box<dyn Transmitter>) {
        let index = usize::from(port);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.dirty.retain(|dirty| *dirty != index);
        self.ports[index] = Some(Port {
            transmitter,
            dirty: false,
        });
    }

    /// Drops a port's sending half.
    pub(crate) fn remove(&mut self, port: PortId) {
        if let Some(port) = self.ports.get_mut(usize::from(port)) {
            *port = None;
        }
    }

    /// The ports that there are.
    pub(crate) fn known_ports(&self) -> KnownPorts {
        let ports = self.ports.iter().enumerate();
        KnownPorts {
            attached: ports
                .filter(|(_, port)| port.is_some())
                .map(|(number, _)| number as u32)
                .collect(),
            cpu: self.shared.cpu_port,
        }
    }

    /// Sends what ports have queued.
    pub(crate) fn flush(&mut self) {
        for index in self.dirty.drain(..) {
            if let Some(Some(port)) = self.ports.get_mut(index) {
                port.dirty = false;
                port.transmitter.flush();
            }
        }
    }

    /// A packet for a port.
    #[inline]
    fn push(&mut self, port: u32, headers: &[u8], payload: &[u8]) {
        let index = port as usize;
        let Some(Some(port)) = self.ports.get_mut(index) else {
            return count(&self.shared.counters.no_such_port);
        };
        port.transmitter.push_parts(headers, payload);
        if !port.dirty {
            port.dirty = true;
            self.dirty.push(index);
        }
    }

    /// A packet for the control plane.
    fn packet_in(&self, data: &[u8]) {
        let shared = &self.shared;
        count(&shared.counters.packet_in);
        if !shared.handler.packet_in(data) {
            count(&shared.counters.packet_in_dropped);
        }
    }
}

impl Sink for Outputs {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        if self.shared.cpu_port == Some(port) {
            self.packet_in(data);
        } else {
            self.push(port, data, &[]);
        }
    }

    #[inline]
    fn transmit_parts(&mut self, port: u32, headers: &mut Vec<u8>, payload: &[u8]) {
        if self.shared.cpu_port == Some(port) {
            headers.extend_from_slice(payload);
            self.packet_in(headers);
        } else {
            self.push(port, headers, payload);
        }
    }

    fn digest(&mut self, digest: DigestId, fields: &[u8]) {
        if !self.shared.handler.digest(digest, fields) {
            count(&self.shared.counters.digest_dropped);
        }
    }

    fn log(&mut self, message: &str) {
        tracing::info!("{message}");
    }
}
