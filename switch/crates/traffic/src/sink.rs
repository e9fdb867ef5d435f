// SPDX-License-Identifier: Apache-2.0
//! Receives the packets of a run from one or more interfaces, until the caller ends it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context;
use sluice_ports::af_packet::RingReceiver;
use sluice_ports::poller::Poller;
use sluice_ports::{PortCounters, PortId, Receiver};

use crate::clock;
use crate::tally::Tally;

/// Maximum number of frames that are taken from one interface before the next interface has its turn.
const BUDGET: usize = 256;
/// Interval at which the end condition is checked while no packets arrive.
const TICK: Duration = Duration::from_millis(5);

/// One interface, and its counts.
struct Input {
    name: String,
    receiver: RingReceiver,
    counters: Arc<PortCounters>,
    /// Undamaged packets of the run.
    packets: u64,
}

/// The interfaces of a sink, and the poller that waits for them.
pub(crate) struct Sink {
    inputs: Vec<Input>,
    poller: Poller,
}

/// Counts of one interface.
#[derive(Debug)]
pub(crate) struct InputReport {
    pub(crate) name: String,
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
}

impl Sink {
    /// Opens the interfaces, with rings of `ring` slots. From now on, arriving packets wait in the rings.
    pub(crate) fn open(interfaces: &[String], ring: usize) -> anyhow::Result<Self> {
        let poller = Poller::new().context("cannot create an epoll set")?;
        let mut inputs = Vec::new();
        for (token, name) in interfaces.iter().enumerate() {
            let counters = Arc::new(PortCounters::default());
            let receiver = RingReceiver::open(name, token as PortId, ring, Arc::clone(&counters))
                .with_context(|| format!("cannot open {name} for receiving"))?;
            if let Some(descriptor) = receiver.readiness() {
                poller
                    .add(descriptor, token as u64)
                    .context("cannot add the interface to the epoll set")?;
            }
            inputs.push(Input {
                name: name.clone(),
                receiver,
                counters,
                packets: 0,
            });
        }
        Ok(Self { inputs, poller })
    }

    /// Receives packets and counts them in `tally`. Ends when `is_over` returns true for the tally and the time, or
    /// when `stop` is set.
    pub(crate) fn receive(
        &mut self,
        tally: &mut Tally,
        stop: &AtomicBool,
        is_over: impl Fn(&Tally, u64) -> bool,
    ) -> io::Result<()> {
        while !stop.load(Relaxed) && !is_over(tally, clock::now()) {
            if self.drain(tally) == 0 {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Returns the counts of each interface.
    pub(crate) fn reports(&self) -> Vec<InputReport> {
        let report = |input: &Input| InputReport {
            name: input.name.clone(),
            packets: input.packets,
            dropped: input.counters.read().rx_dropped,
        };
        self.inputs.iter().map(report).collect()
    }

    fn drain(&mut self, tally: &mut Tally) -> usize {
        let mut frames = 0;
        for input in &mut self.inputs {
            let packets = &mut input.packets;
            frames += input.receiver.receive(BUDGET, &mut |_, frame| {
                *packets += u64::from(tally.receive(&frame, clock::now()));
            });
        }
        frames
    }

    fn wait(&mut self) -> io::Result<()> {
        let failed: Vec<u64> = self
            .poller
            .wait(Some(TICK))?
            .filter(|event| event.error)
            .map(|event| event.token)
            .collect();
        for token in failed {
            self.inputs[token as usize].receiver.clear_error();
        }
        Ok(())
    }
}
