// SPDX-License-Identifier: Apache-2.0
//! Runs the switch: ports and workers around the engine.
//!
//! ```text
//!   ports ──► Receiver ─┐                                   ┌─► Transmitter ──► ports
//!                       ├─► worker: TrafficManager::process(packet) ┼─► Handler::packet_in   (the CPU port)
//!   packet_out ─► queue ┘        on a pinned version        └─► Handler::digest
//! ```
//!
//! Workers are threads. Each worker owns the halves of its ports and a [`sluice_engine::TrafficManager`]. An idle
//! worker waits in epoll. Each worker swaps programs, and adds and removes ports, between two of its batches. The
//! caller that requests such a change waits until all workers have made it. Depends on engine, ports, tables and
//! program, but not on P4Runtime or async code.
//!
//! While a port accepts no more frames, packets wait between ingress and egress in queues like BMv2's (`port_queues`,
//! `levels`). While no port is congested, workers do not check the queues.
//!
//! [`trace`] reports each step of a packet.
//!
//! Promises: a worker blocks only in its poller. Queues are bounded. Packets that do not fit are dropped and counted.
//! When [`Device::load`] returns, the old program processes no packet any more.

mod attach;
mod clock;
mod control;
mod counters;
mod device;
mod dry_run;
mod inputs;
mod levels;
mod mailbox;
mod outputs;
mod port_queues;
mod priority;
mod running;
mod sweeper;
pub mod trace;
mod worker;

pub use attach::{InterfaceOptions, Port, file_ports, memory_port, named_port, replay_port};
pub use clock::Clock;
pub use counters::{DeviceCounters, DeviceStatistics};
pub use device::{Config, Device, DeviceError, PortInfo, ProfileReport, QueueChange, QueueInfo};
pub use sluice_engine::{EngineKind, ProfiledPoint};
pub use sluice_ports::PortId;
pub use sluice_tables::Limits;

use sluice_program::{DigestId, TableId};
use sluice_tables::Entry;

/// Receives notifications of the switch for the control plane. Methods run on workers and housekeeping threads, so they
/// must not block.
pub trait Handler: Send + Sync {
    /// Receives a packet that was sent to the CPU port. Returns true if the packet is accepted, false if the packet
    /// must be dropped.
    fn packet_in(&self, packet: &[u8]) -> bool;

    /// Receives a digest that the program sent. Each field in `fields` is big-endian and padded to whole bytes. Returns
    /// true if the digest is accepted.
    fn digest(&self, digest: DigestId, fields: &[u8]) -> bool;

    /// Receives entries whose idle timeouts have passed without a hit.
    fn idle(&self, entries: Vec<(TableId, Entry)>);
}
