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
mod handler;
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
pub use device::queues::{QueueChange, QueueInfo};
pub use device::{Config, Device, DeviceError, PortInfo, ProfileReport};
pub use handler::Handler;
pub use sluice_engine::{EngineKind, ProfiledPoint};
pub use sluice_ports::PortId;
pub use sluice_tables::Limits;
