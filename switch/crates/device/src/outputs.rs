// SPDX-License-Identifier: Apache-2.0
//! Holds the destinations of a worker's packets: the transmitters and queues of ports, and the control plane.
//!
//! Invariant: a port is *congested* while one of these conditions holds: the port accepts no more frames, packets wait
//! in its queues, or a queue of the port has a rate or a depth of 0. Only congested ports are checked for each packet
//! and after each batch.

use std::sync::Arc;

use std::os::fd::BorrowedFd;
use std::time::Instant;

use sluice_engine::{Admission, Arrival, Congestion, Queued, Sink};
use sluice_ports::{PortId, Retry, Transmitter};
use sluice_program::DigestId;

use crate::clock::Clock;
use crate::counters::{DeviceCounters, add, count};
use crate::handler::Handler;
use crate::levels::PortLevels;
use crate::port_queues::{Leaving, PortQueues, Spares};
use crate::trace::{KnownPorts, Tracing};

/// State that workers share.
pub(crate) struct Shared {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) counters: DeviceCounters,
    pub(crate) clock: Clock,
    pub(crate) cpu_port: Option<u32>,
    pub(crate) tracing: Arc<Tracing>,
}

/// A port's sending half, with its queues.
struct OutputPort {
    transmitter: Box<dyn Transmitter>,
    /// Whether the port has frames that were not flushed.
    dirty: bool,
    /// Whether the port accepts no more frames.
    blocked: bool,
    /// Whether the port is in the list of congested ports.
    congested: bool,
    queues: PortQueues,
}

impl OutputPort {
    /// Flushes the port if it is blocked and need not wait for a later retry time.
    fn try_again(&mut self) {
        let wait =
            matches!(self.transmitter.retry(), Some(Retry::At(time)) if Instant::now() < time);
        if self.blocked && !wait {
            self.blocked = !self.transmitter.flush();
        }
    }
}

/// Error of [`Outputs::next_of`]: there is no congested port at this position.
pub(crate) struct NoMorePorts;

/// The destinations of processed packets.
pub(crate) struct Outputs {
    pub(crate) shared: Arc<Shared>,
    /// Ports, indexed by port number.
    ports: Vec<Option<OutputPort>>,
    /// Numbers of ports with frames that were not flushed.
    dirty: Vec<usize>,
    /// Numbers of congested ports.
    congested: Vec<usize>,
    /// Set while there are congested ports.
    congestion: Congestion,
    spares: Spares,
}

impl Outputs {
    /// Starts without ports.
    pub(crate) fn new(shared: Arc<Shared>, congestion: Congestion) -> Self {
        Self {
            shared,
            ports: Vec::new(),
            dirty: Vec::new(),
            congested: Vec::new(),
            congestion,
            spares: Spares::default(),
        }
    }

    /// Sets a port's sending half. Packets that wait in the port's queues stay.
    pub(crate) fn add(
        &mut self,
        port: PortId,
        transmitter: Box<dyn Transmitter>,
        levels: Arc<PortLevels>,
    ) {
        let index = usize::from(port);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.dirty.retain(|dirty| *dirty != index);
        let (queues, congested) = match self.ports[index].take() {
            Some(before) => (before.queues, before.congested),
            None => (PortQueues::new(levels), false),
        };
        self.ports[index] = Some(OutputPort {
            transmitter,
            dirty: false,
            blocked: false,
            congested,
            queues,
        });
        self.look_at_queues();
    }

    /// Drops a port's sending half and the packets in its queues.
    pub(crate) fn remove(&mut self, port: PortId) {
        let index = usize::from(port);
        if let Some(mut port) = self.ports.get_mut(index).and_then(Option::take) {
            let dropped = port.queues.clear();
            add(&self.shared.counters.queue_port_removed, dropped);
            self.settle();
        }
    }

    /// Drops all packets that wait in queues.
    pub(crate) fn drop_queued(&mut self) {
        let ports = self.ports.iter_mut().flatten();
        let dropped = ports.map(|port| port.queues.clear()).sum();
        add(&self.shared.counters.queue_program_replaced, dropped);
        self.spares.clear();
        self.settle();
    }

    /// Reads the queue settings of all ports again, and marks ports that are congested now.
    pub(crate) fn look_at_queues(&mut self) {
        for index in 0..self.ports.len() {
            if matches!(&self.ports[index], Some(port) if port.queues.are_restricted()) {
                self.congest(index);
            }
        }
        self.settle();
    }

    /// Marks a port as congested.
    #[cold]
    fn congest(&mut self, index: usize) {
        if let Some(Some(port)) = self.ports.get_mut(index)
            && !port.congested
        {
            port.congested = true;
            self.congested.push(index);
            self.congestion.set(true);
        }
    }

    /// Marks a port as blocked, because it accepts no more frames.
    #[cold]
    fn block(&mut self, index: usize) {
        if let Some(Some(port)) = self.ports.get_mut(index) {
            port.blocked = true;
            self.congest(index);
        }
    }

    /// Returns whether any port is congested.
    #[inline]
    pub(crate) fn are_congested(&self) -> bool {
        !self.congested.is_empty()
    }

    /// Flushes the blocked ports, except those whose next retry time is in the future.
    pub(crate) fn try_again(&mut self) {
        for &index in &self.congested {
            if let Some(port) = &mut self.ports[index] {
                port.try_again();
            }
        }
    }

    /// Returns the next packet to leave the queues of a congested port. `place` is the port's index in the list of
    /// congested ports. Returns an error if the list has no such index.
    pub(crate) fn next_of(&mut self, place: usize) -> Result<Option<Leaving>, NoMorePorts> {
        let &index = self.congested.get(place).ok_or(NoMorePorts)?;
        let port = self.ports[index].as_mut().filter(|port| !port.blocked);
        Ok(port.and_then(|port| port.queues.next(self.shared.clock.now_ns())))
    }

    /// Recycles the buffers of a packet that has left.
    pub(crate) fn take_back(&mut self, queued: Box<Queued>) {
        self.spares.put(queued);
    }

    /// Removes ports that are no longer congested from the list of congested ports.
    pub(crate) fn settle(&mut self) {
        let ports = &mut self.ports;
        self.congested.retain(|index| {
            let Some(port) = &mut ports[*index] else {
                return false;
            };
            port.congested = port.blocked || !port.queues.are_idle();
            port.congested
        });
        self.congestion.set(self.are_congested());
    }

    /// Returns what the worker must wait for while ports are congested: descriptors that become writable, and the
    /// earliest departure or retry time.
    pub(crate) fn waited_for(&self) -> (Vec<BorrowedFd<'_>>, Option<Instant>) {
        let (mut writable, mut until) = (Vec::new(), None::<Instant>);
        let ports = self.congested.iter().map(|index| &self.ports[*index]);
        for port in ports.flatten() {
            let time = match port.transmitter.retry() {
                Some(Retry::Writable(fd)) => {
                    writable.push(fd);
                    None
                }
                Some(Retry::At(time)) => Some(time),
                None => port.queues.due_ns().map(|ns| self.shared.clock.at_ns(ns)),
            };
            until = until.into_iter().chain(time).min();
        }
        (writable, until)
    }

    /// Returns the ports that traces can name.
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

    /// Sends the frames that wait in transmitters.
    pub(crate) fn flush(&mut self) {
        while let Some(index) = self.dirty.pop() {
            if let Some(Some(port)) = self.ports.get_mut(index) {
                port.dirty = false;
                // A blocked port is left to `try_again`.
                if !port.blocked && !port.transmitter.flush() {
                    self.block(index);
                }
            }
        }
    }

    /// Pushes a packet to a port.
    #[inline(always)]
    fn push(&mut self, port: u32, headers: &[u8], payload: &[u8]) {
        let index = port as usize;
        let Some(Some(port)) = self.ports.get_mut(index) else {
            return count(&self.shared.counters.no_such_port);
        };
        let takes_more = port.transmitter.push_parts(headers, payload);
        if !port.dirty {
            port.dirty = true;
            self.dirty.push(index);
        }
        if !takes_more {
            self.block(index);
        }
    }

    /// Sends a packet to the control plane.
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

    // Inlined into the code that processes packets, because a call would cost more than the function's own work.
    #[inline(always)]
    fn transmit_parts(&mut self, port: u32, headers: &mut Vec<u8>, payload: &[u8]) {
        if self.shared.cpu_port == Some(port) {
            headers.extend_from_slice(payload);
            self.packet_in(headers);
        } else {
            self.push(port, headers, payload);
        }
    }

    fn queue(&mut self, arrival: &mut Arrival<'_>) -> Admission {
        let to_controllers = self.shared.cpu_port == Some(arrival.port);
        let port = self.ports.get_mut(arrival.port as usize);
        match port.and_then(Option::as_mut) {
            Some(port) if port.congested && !to_controllers => {
                port.queues.offer(arrival, port.blocked, &mut self.spares)
            }
            _ => Admission::Pass,
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

#[cfg(test)]
mod tests;
