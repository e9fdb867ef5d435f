// SPDX-License-Identifier: Apache-2.0
//! Moves packets between the interface and the engine. Only this thread accesses the engine, so packets are served
//! without a lock. Other threads send commands, which run between batches.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use sluice_esp::batch::BATCH;
use sluice_esp::{Batch, Engine};
use sluice_esp_control::command::{self, Commands, Frames, Handle, now};
use sluice_ports::af_packet::{BatchTransmitter, RingReceiver};
use sluice_ports::poller::{Poller, Waker};
use sluice_ports::{PortCounters, PortStatistics, Receiver, Transmitter, privilege};

/// Interval in nanoseconds at which lifetimes are checked even if no packets arrive.
const TICK: u64 = 1_000_000_000;

/// Converts the port's counters to the engine's point of view.
fn frames(read: PortStatistics) -> Frames {
    Frames {
        received: read.rx_packets,
        receive_dropped: read.rx_dropped + read.rx_errors,
        sent: read.tx_packets,
        send_dropped: read.tx_dropped,
    }
}

/// State of the worker's thread.
pub(crate) struct Worker {
    engine: Engine,
    receiver: RingReceiver,
    transmitter: BatchTransmitter,
    counters: Arc<PortCounters>,
    commands: Commands,
    waker: Waker,
    poller: Poller,
    batch: Batch,
}

const PORT_TOKEN: u64 = 0;
const WAKER_TOKEN: u64 = 1;

impl Worker {
    /// Opens receiver and transmitter of an interface. Returns the worker and the handle to its engine.
    ///
    /// # Errors
    /// The kernel's error.
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
        let wakes = waker.clone();
        let (handle, commands) = command::channel(move || wakes.wake());
        let worker = Self {
            engine: Engine::default(),
            receiver,
            transmitter,
            counters,
            commands,
            waker,
            poller,
            batch: Batch::default(),
        };
        Ok((worker, handle))
    }

    /// Moves packets until a command stops the worker.
    ///
    /// # Errors
    /// The kernel's error, if waiting for packets fails.
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
            let counters = &self.counters;
            let counted = || frames(counters.read());
            if !self.commands.serve(&mut self.engine, now, counted) {
                return Ok(());
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
                WAKER_TOKEN => {
                    self.waker.reset();
                }
                _ => port_error |= event.error,
            }
        }
        if port_error {
            self.receiver.clear_error();
        }
        Ok(())
    }
}
