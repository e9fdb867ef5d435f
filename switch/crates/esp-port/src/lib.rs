// SPDX-License-Identifier: Apache-2.0
//! The ESP engine as a port inside the switch: frames that the pipeline sends to the port are encrypted or decrypted, and
//! received from it again.
//!
//! ```text
//!   worker 0 ── Transmitter ─► queue 0 ─┐
//!   worker 1 ── Transmitter ─► queue 1 ─┼─► Receiver: Engine ──► pipeline of the worker that receives from this port
//!                                       │     ▲
//!                 sluice-esp-control ───┴─────┘ commands, between batches
//! ```
//!
//! The worker that receives from the port runs the engine when it polls the port for a batch. Sending to the port only
//! copies a frame into a queue, so there is no recursion, whatever the pipeline does with the results.
//!
//! Locks: one for each queue, taken once a batch by its worker and once a batch by the receiving worker, to copy frames
//! or to swap two buffers. Invariant: no thread holds two of them, or waits or calls out while it holds one. So
//! there is no deadlock.
//!
//! Depends on esp, esp-control and ports. Promises:
//!
//! * No packet allocates.
//! * Queues are bounded; frames that find a queue full are dropped and counted (`tx_queue_full` of the port).
//! * Frames come back in the order in which a worker sent them.
//! * An engine that panics is dropped with all its keys, and the port drops all frames (`tx_link_down`). The switch
//!   goes on.

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

/// Both halves of the port, and the handle of its engine.
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
/// The kernel's.
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
