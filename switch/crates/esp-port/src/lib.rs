// SPDX-License-Identifier: Apache-2.0
//! Provides the ESP engine as a port inside the switch. The engine encrypts or decrypts the frames that the pipeline
//! sends to the port. The switch receives the results from the same port.
//!
//! ```text
//!   worker 0 ── Transmitter ─► queue 0 ─┐
//!   worker 1 ── Transmitter ─► queue 1 ─┼─► Receiver: Engine ──► pipeline of the worker that receives from this port
//!                                       │     ▲
//!                 sluice-esp-control ───┴─────┘ commands, between batches
//! ```
//!
//! One worker receives from the port. When it polls the port for a batch, it runs the engine. All other workers only
//! send: sending copies a frame into a queue. So the engine never runs recursively, even if the pipeline sends the
//! engine's results back to the port.
//!
//! Locks: each queue has one lock. The sending worker and the receiving worker each take it once for a batch, to copy
//! frames or to swap two buffers. Invariant: while a thread holds one of these locks, it takes no other lock, does not
//! wait, and calls no other component. So there is no deadlock.
//!
//! Depends on esp, esp-control and ports. Promises:
//!
//! * Serving a packet allocates no memory.
//! * Queues are bounded. Frames that find a queue full are dropped and counted (`tx_queue_full` of the port).
//! * Frames from one worker return in the order in which it sent them.
//! * If an engine panics, it is dropped with all its keys. The port then drops all frames (`tx_link_down`). The switch
//!   continues to run.

mod queue;
mod receiver;
mod signal;
mod transmitter;

use std::io;
use std::sync::Arc;

use sluice_esp_control::command::{self, Handle};
use sluice_ports::{PortCounters, PortId};

use crate::queue::Queues;
pub use crate::receiver::EngineReceiver;
pub use crate::transmitter::EngineTransmitter;

/// Both halves of the port, and the handle to its engine.
pub struct EnginePort {
    /// The receiving half, which runs the engine.
    pub receiver: EngineReceiver,
    /// The sending halves, one for each worker.
    pub transmitters: Vec<EngineTransmitter>,
    /// Sends commands to the engine.
    pub engine: Handle,
}

/// Creates a port whose engine has no SAs, for a device with this number of workers.
///
/// # Errors
/// The kernel's error.
pub fn port(
    number: PortId,
    workers: usize,
    counters: &Arc<PortCounters>,
) -> io::Result<EnginePort> {
    let queues = Arc::new(Queues::new(workers)?);
    let (engine, commands) = command::channel({
        let queues = Arc::clone(&queues);
        move || queues.signal.raise()
    });
    let transmitter = |worker| EngineTransmitter::new(&queues, worker, counters);
    Ok(EnginePort {
        transmitters: (0..workers).map(transmitter).collect(),
        receiver: EngineReceiver::new(number, queues, commands, Arc::clone(counters)),
        engine,
    })
}
