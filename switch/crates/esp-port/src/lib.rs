// SPDX-License-Identifier: Apache-2.0
//! The ESP engine as a port inside the switch: frames that the pipeline sends to the port are encrypted or decrypted, and
//! come in by it again.
//!
//! ```text
//!   worker 0 ── Transmitter ─► queue 0 ─┐
//!   worker 1 ── Transmitter ─► queue 1 ─┼─► Receiver: Engine ──► pipeline of the worker that receives from this port
//!                                       │     ▲
//!                 sluice-esp-control ───┴─────┘ commands, between batches
//! ```
//!
//! The worker that receives from the port runs the engine, when it asks the port for a batch. Sending to the port only puts
//! a copy into a queue: nothing recurs, whatever the pipeline does with what comes back.
//!
//! Locks: one for each queue, taken once a batch by its worker and once a batch by the receiving one, for a copy or an
//! exchange of two buffers. Nobody holds two, and nobody waits or calls out while holding one, so there is no deadlock.
//!
//! Depends on esp, esp-control and ports. Promises: no packet allocates; queues are bounded, and frames that find no room
//! are dropped and counted (`tx_queue_full` of the port); frames come back in the order in which a worker sent them; an
//! engine that panics ends with all its keys and leaves nothing but drops (`tx_link_down`), and the switch goes on.

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

/// Both halves of the port, and the way to its engine.
pub struct EnginePort {
    /// The half that has the engine.
    pub receiver: EngineReceiver,
    /// One for each worker.
    pub transmitters: Vec<EngineTransmitter>,
    /// Reaches the engine.
    pub engine: Handle,
}

/// Makes a port with an engine without SAs, for a device with so many workers.
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
