// SPDX-License-Identifier: Apache-2.0
//! Holds the receivers of a worker, and waits for any of them and for commands.
//!
//! A receiver is removed when its port was removed, or when it has finished. Its descriptor is then removed from the
//! poller too. A descriptor that stays open elsewhere and readable would otherwise end every wait at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use sluice_ports::poller::{Poller, Waker};
use sluice_ports::{PortId, Receiver};

/// Token of the worker's own waker. Receivers have their indices as tokens.
const COMMANDS: u64 = u64::MAX;
/// Token of congested ports. The worker waits until one of them becomes writable.
const ROOM: u64 = u64::MAX - 1;

/// A receiver, and the port with which it was added.
pub(crate) struct Input {
    port: PortId,
    pub(crate) receiver: Box<dyn Receiver>,
}

/// The receivers of a worker; see the module's documentation.
pub(crate) struct Inputs {
    poller: Poller,
    inputs: Vec<Option<Input>>,
}

impl Inputs {
    /// Creates a set without receivers. `commands` interrupts [`Inputs::wait`].
    pub(crate) fn new(commands: &Waker) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(commands.as_fd(), COMMANDS)?;
        Ok(Self {
            poller,
            inputs: Vec::new(),
        })
    }

    /// Iterates over the receivers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Input> {
        self.inputs.iter_mut().flatten()
    }

    /// Adds a receiver. If the receiver cannot be polled, logs an error and does not add it.
    pub(crate) fn add(&mut self, port: PortId, receiver: Box<dyn Receiver>) {
        let free = self.inputs.iter().position(Option::is_none);
        let index = free.unwrap_or(self.inputs.len());
        if let Some(fd) = receiver.readiness()
            && let Err(error) = self.poller.add(fd, index as u64)
        {
            tracing::error!(port, %error, "the port receives nothing, because its receiver cannot be polled");
            return;
        }
        if index == self.inputs.len() {
            self.inputs.push(None);
        }
        self.inputs[index] = Some(Input { port, receiver });
    }

    /// Removes the receivers that were added with this port.
    pub(crate) fn remove(&mut self, port: PortId) {
        for index in 0..self.inputs.len() {
            if matches!(&self.inputs[index], Some(input) if input.port == port) {
                self.take_out(index);
            }
        }
    }

    /// Makes the next wait end when this port becomes writable.
    pub(crate) fn end_when_writable(&self, port: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.add_writable(port, ROOM)
    }

    /// Waits for packets or commands, at most for `time`. Returns true if there are commands. Precondition: the caller
    /// has just polled all receivers and found no packet.
    pub(crate) fn wait(&mut self, time: Option<Duration>) -> io::Result<bool> {
        let mut commands = false;
        let mut ended = Vec::new();
        for event in self.poller.wait(time)? {
            if event.token == COMMANDS {
                commands = true;
                continue;
            }
            if event.token == ROOM {
                continue;
            }
            let index = event.token as usize;
            let Some(Some(input)) = self.inputs.get_mut(index) else {
                continue;
            };
            if event.error {
                input.receiver.clear_error();
            }
            if input.receiver.finished() {
                ended.push(index);
            }
        }
        for index in ended {
            self.take_out(index);
        }
        Ok(commands)
    }

    fn take_out(&mut self, index: usize) {
        let Some(input) = self.inputs[index].take() else {
            return;
        };
        if let Some(fd) = input.receiver.readiness()
            && let Err(error) = self.poller.remove(fd)
        {
            tracing::error!(port = input.port, %error, "the receiver of a removed port is still polled");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use sluice_ports::files::{self, Input as FileInput};
    use sluice_ports::pcap::Writer;
    use sluice_ports::{PortCounters, memory};

    use super::*;

    /// Returns whether no receiver is ready. Ignores pending commands.
    fn quiet(inputs: &mut Inputs) -> bool {
        let events = inputs.poller.wait(Some(Duration::ZERO)).unwrap();
        events.filter(|event| event.token != COMMANDS).count() == 0
    }

    #[test]
    fn files_that_have_ended_wake_nobody_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("p0");
        let file = File::create(directory.path().join("p0_in.pcap")).unwrap();
        Writer::new(file).unwrap().write(&[7]).unwrap();
        let input = FileInput {
            port: 0,
            base,
            counters: Default::default(),
        };
        let waker = Waker::new().unwrap();
        let mut inputs = Inputs::new(&waker).unwrap();
        inputs.add(
            0,
            Box::new(files::read(vec![input], Duration::ZERO).unwrap()),
        );
        let mut seen = 0;
        while inputs.iter_mut().next().is_some() {
            assert!(!inputs.wait(None).unwrap());
            for input in inputs.iter_mut() {
                seen += input
                    .receiver
                    .receive(8, &mut |_, frame| assert_eq!(*frame, [7]));
            }
        }
        assert_eq!(seen, 1);
        assert!(quiet(&mut inputs));
        waker.wake();
        assert!(inputs.wait(None).unwrap());
    }

    #[test]
    fn a_port_that_was_removed_wakes_nobody_though_its_wire_is_held() {
        let waker = Waker::new().unwrap();
        let mut inputs = Inputs::new(&waker).unwrap();
        let counters = std::sync::Arc::new(PortCounters::default());
        let port = memory::port(3, 8, &counters).unwrap();
        inputs.add(3, Box::new(port.receiver));
        assert!(port.handle.send(&[1]));
        assert!(!quiet(&mut inputs));
        inputs.remove(3);
        assert!(quiet(&mut inputs));
    }
}
