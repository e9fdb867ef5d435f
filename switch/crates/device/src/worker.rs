// SPDX-License-Identifier: Apache-2.0
//! Runs a worker: one thread that receives packets, runs the program on them and sends the results.
//!
//! The loop takes a batch from one receiver after the other. It waits only if no receiver has packets. Between batches,
//! it executes commands, such as loading a program or adding a port.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_ports::{Frame, PortId};

use crate::counters::count;
use crate::inputs::Inputs;
use crate::mailbox::{CloseOnDrop, Command, Mailbox};
use crate::outputs::{Outputs, Shared};
use crate::running::{BATCH, Running};

/// Pause after a failed poll, so that the loop does not spin. Polling fails if kernel memory is short.
const PAUSE: Duration = Duration::from_millis(10);

/// The state of a worker's thread.
pub(crate) struct Worker {
    mailbox: Arc<Mailbox>,
    inputs: Inputs,
    outputs: Outputs,
    running: Option<Box<Running>>,
}

impl Worker {
    pub(crate) fn new(mailbox: Arc<Mailbox>, shared: Arc<Shared>) -> io::Result<Self> {
        let inputs = Inputs::new(&mailbox.waker)?;
        let outputs = Outputs::new(shared, mailbox.congestion.clone());
        Ok(Self {
            mailbox,
            inputs,
            outputs,
            running: None,
        })
    }

    /// Runs until a command stops the worker.
    pub(crate) fn run(mut self) {
        let _close = CloseOnDrop(self.mailbox.clone());
        // The first check finds commands that were sent before the thread started.
        let mut commands = true;
        loop {
            if commands {
                self.mailbox.waker.reset();
                while let Some(command) = self.mailbox.take() {
                    let go_on = self.obey(command);
                    self.mailbox.finish();
                    if !go_on {
                        return;
                    }
                }
            }
            // While packets arrive, the mailbox is checked without a system call. So commands are not delayed.
            let packets = self.serve();
            if self.outputs.are_congested() {
                self.drain();
            }
            commands = if packets > 0 {
                self.mailbox.pending()
            } else {
                self.poll()
            };
        }
    }

    /// Processes a batch from each receiver, all with one version of the tables. Returns the number of packets.
    fn serve(&mut self) -> usize {
        let outputs = &mut self.outputs;
        let mut receivers = self.inputs.iter_mut().map(|input| &mut input.receiver);
        let Some(running) = &mut self.running else {
            let counters = &outputs.shared.counters;
            let mut drop_it = |_: PortId, _: Frame<'_, '_>| count(&counters.no_program);
            return receivers
                .map(|receiver| receiver.receive(BATCH, &mut drop_it))
                .sum();
        };
        let packets = running.serve(&mut receivers, outputs);
        outputs.flush();
        packets
    }

    /// Sends packets from the queues of ports that accept frames again.
    fn drain(&mut self) {
        match &mut self.running {
            Some(running) => running.drain(&mut self.outputs),
            // Without a program, the queues are empty. But transmitters may still hold frames.
            None => {
                self.outputs.try_again();
                self.outputs.settle();
            }
        }
    }

    /// Waits for packets or commands. Returns true if there are commands.
    fn poll(&mut self) -> bool {
        let Self {
            inputs, outputs, ..
        } = self;
        let waited = match outputs.are_congested() {
            false => inputs.wait(None),
            true => wait_for_room(inputs, outputs),
        };
        waited.unwrap_or_else(|error| {
            tracing::error!(%error, "waiting for packets failed");
            std::thread::sleep(PAUSE);
            true
        })
    }

    /// Executes a command. Returns false if the worker must stop.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Load(running) => {
                // Packets in queues belong to the old program.
                self.outputs.drop_queued();
                self.running = running;
            }
            Command::QueuesChanged => self.outputs.look_at_queues(),
            Command::AddPort(port, receiver, transmitter, levels) => {
                // The interface has reappeared. The old halves of the port belong to the interface that is gone.
                self.inputs.remove(port);
                if let Some(receiver) = receiver {
                    self.inputs.add(port, receiver);
                }
                self.outputs.add(port, transmitter, levels);
            }
            Command::RemovePort(port) => {
                self.inputs.remove(port);
                self.outputs.remove(port);
            }
            Command::Report(report) => {
                if let Some(running) = &mut self.running {
                    running.report(&mut report.lock());
                }
            }
            Command::BeginProfile(every, code) => {
                if let Some(running) = &mut self.running {
                    running.begin_profile(every, code);
                }
            }
            Command::EndProfile(report) => {
                if let Some(running) = &mut self.running {
                    running.end_profile(&mut report.lock());
                }
            }
            Command::DryRun(dry_run) => {
                if let Some(running) = &mut self.running {
                    let ports = self.outputs.known_ports();
                    running.dry_run(&mut dry_run.lock(), ports);
                }
            }
            Command::Stop => return false,
        }
        true
    }
}

/// Waits for packets, commands, a port that becomes writable, or the time at which a packet may leave its queue.
fn wait_for_room(inputs: &mut Inputs, outputs: &Outputs) -> io::Result<bool> {
    let (ports, until) = outputs.waited_for();
    for port in ports {
        inputs.end_when_writable(port)?;
    }
    inputs.wait(until.map(|until| until.saturating_duration_since(Instant::now())))
}
