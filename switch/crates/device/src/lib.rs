// SPDX-License-Identifier: Apache-2.0
//! The running switch: ports and workers around the engine.
//!
//! ```text
//!   ports ──► Receiver ─┐                                   ┌─► Transmitter ──► ports
//!                       ├─► worker: TrafficManager::process(packet) ┼─► Handler::packet_in   (the CPU port)
//!   packet_out ─► queue ┘        on a pinned version        └─► Handler::digest
//! ```
//!
//! Workers are threads that own their ports' halves and a [`sluice_engine::TrafficManager`]; idle workers wait in epoll.
//! Programs are swapped, and ports are added and removed, between two batches; the caller waits until all workers have
//! done it. Depends on engine, ports, tables and program; knows neither P4Runtime nor async code.
//!
//! While a port takes no more frames, packets wait between ingress and egress in BMv2's queues (`port_queues`,
//! `levels`). While no port is congested, a worker does not look at queues.
//!
//! [`trace`] reports what happens to packets, step by step.
//!
//! Promises: a worker never blocks on anything but its poller; queues are bounded, and what does not fit is dropped and
//! counted; when [`Device::load`] returns, no packet is processed by the old program any more.

mod attach;
mod clock;
mod control;
mod counters;
mod device;
mod inputs;
mod levels;
mod mailbox;
mod outputs;
mod port_queues;
mod priority;
mod rehearsal;
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

/// Notifications from the switch to the control plane. Called on worker and housekeeping threads: must not block.
pub trait Handler: Send + Sync {
    /// A packet was sent to the CPU port. True if it was taken, false if it had to be dropped.
    fn packet_in(&self, packet: &[u8]) -> bool;

    /// The program sent a digest: its fields in order, each big-endian in whole bytes. True if it was taken.
    fn digest(&self, digest: DigestId, fields: &[u8]) -> bool;

    /// These entries were not hit for as long as their idle timeouts.
    fn idle(&self, entries: Vec<(TableId, Entry)>);
}
