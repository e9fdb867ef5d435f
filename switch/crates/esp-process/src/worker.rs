// SPDX-License-Identifier: Apache-2.0
//! The thread that moves packets. It alone has the engine, so no packet takes a lock; other threads send commands, which
//! are done between batches.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver as Commands, Sender, bounded};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sluice_esp::batch::BATCH;
use sluice_esp::engine::{CountersView, Sa, SaStatus};
use sluice_esp::{Batch, Engine};
use sluice_ports::af_packet::{BatchTransmitter, RingReceiver};
use sluice_ports::poller::{Poller, Waker};
use sluice_ports::{PortCounters, PortStatistics, Receiver, Transmitter, privilege};

const WAITING_COMMANDS: usize = 64;
/// How often SAs look at the clock without a packet, in nanoseconds.
const TICK: u64 = 1_000_000_000;

/// Nanoseconds since the machine started, time asleep included.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// A request of another thread. SAs that end go back, to be dropped there.
pub(crate) enum Command {
    Add(Sa, Sender<Result<(), (Sa, String)>>),
    RemoveOutbound(u32, Sender<Option<Sa>>),
    RemoveInbound(u16, u32, Sender<Option<Sa>>),
    Status(Sender<Status>),
    Stop,
}

/// Describes the engine: its SAs, counters and port.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) sas: Vec<SaStatus>,
    /// Of packets that met no SA.
    pub(crate) others: CountersView,
    pub(crate) port: Port,
}

/// The interface's frames.
#[derive(Debug, Serialize)]
pub(crate) struct Port {
    pub(crate) received: u64,
    pub(crate) receive_dropped: u64,
    pub(crate) sent: u64,
    pub(crate) send_dropped: u64,
}

impl From<PortStatistics> for Port {
    fn from(read: PortStatistics) -> Self {
        Self {
            received: read.rx_packets,
            receive_dropped: read.rx_dropped + read.rx_errors,
            sent: read.tx_packets,
            send_dropped: read.tx_dropped,
        }
    }
}

/// Reaches the worker.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    waker: Waker,
}

impl Handle {
    /// Has a command done, and returns the answer; none if the worker has ended.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = bounded(1);
        self.commands.send(command(answer)).ok()?;
        self.waker.wake();
        answered.recv().ok()
    }

    /// Has the worker end.
    pub(crate) fn stop(&self) {
        if self.commands.send(Command::Stop).is_ok() {
            self.waker.wake();
        }
    }
}

/// The worker's own side.
pub(crate) struct Worker {
    engine: Engine,
    receiver: RingReceiver,
    transmitter: BatchTransmitter,
    counters: Arc<PortCounters>,
    commands: Commands<Command>,
    waker: Waker,
    poller: Poller,
    batch: Batch,
}

const PORT_TOKEN: u64 = 0;
const WAKER_TOKEN: u64 = 1;

impl Worker {
    /// Opens both halves of an interface.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open(interface: &str) -> io::Result<(Self, Handle)> {
        let counters = Arc::new(PortCounters::default());
        let frames = sluice_ports::af_packet::DEFAULT_RING_FRAMES;
        let receiver = RingReceiver::open(interface, 0, frames, Arc::clone(&counters))?;
        let transmitter = BatchTransmitter::open(interface, Arc::clone(&counters))?;
        let waker = Waker::new()?;
        let poller = Poller::new()?;
        if let Some(readable) = receiver.readiness() {
            poller.add(readable, PORT_TOKEN)?;
        }
        poller.add(waker.as_fd(), WAKER_TOKEN)?;
        let (commands, waiting) = bounded(WAITING_COMMANDS);
        let worker = Self {
            engine: Engine::default(),
            receiver,
            transmitter,
            counters,
            commands: waiting,
            waker: waker.clone(),
            poller,
            batch: Batch::default(),
        };
        Ok((worker, Handle { commands, waker }))
    }

    /// Moves packets until told to stop.
    ///
    /// # Errors
    /// The kernel's, from waiting.
    pub(crate) fn run(mut self) -> io::Result<()> {
        privilege::renounce();
        let mut ticked = now();
        loop {
            let now = now();
            if now - ticked >= TICK {
                self.engine.tick(now);
                ticked = now;
            }
            let moved = self.move_batch(now);
            while let Ok(command) = self.commands.try_recv() {
                if !self.obey(command, now) {
                    return Ok(());
                }
            }
            if moved == 0 {
                self.wait()?;
            }
        }
    }

    fn move_batch(&mut self, now: u64) -> usize {
        let batch = &mut self.batch;
        batch.clear();
        let moved = self.receiver.receive(BATCH, &mut |_, frame| {
            batch.push(&frame, &[]);
        });
        self.engine.process_batch(batch, now);
        for answer in batch.answers() {
            self.transmitter.push(answer);
        }
        self.transmitter.flush();
        moved
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut port_error = false;
        for event in self.poller.wait(Some(Duration::from_nanos(TICK)))? {
            match event.token {
                WAKER_TOKEN => self.waker.reset(),
                _ => port_error |= event.error,
            }
        }
        if port_error {
            self.receiver.clear_error();
        }
        Ok(())
    }

    /// Does a command; false to end. Where the client has gone, its answer is dropped.
    fn obey(&mut self, command: Command, now: u64) -> bool {
        match command {
            Command::Add(sa, answer) => drop(answer.send(self.engine.add(sa))),
            Command::RemoveOutbound(sa, answer) => {
                drop(answer.send(self.engine.remove_outbound(sa)));
            }
            Command::RemoveInbound(vrf, spi, answer) => {
                drop(answer.send(self.engine.remove_inbound(vrf, spi)));
            }
            Command::Status(answer) => {
                let status = Status {
                    sas: self.engine.status(now),
                    others: self.engine.counters().into(),
                    port: self.counters.read().into(),
                };
                drop(answer.send(status));
            }
            Command::Stop => return false,
        }
        true
    }
}
