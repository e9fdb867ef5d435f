// SPDX-License-Identifier: Apache-2.0
//! `GET /metrics` of a switch, for Prometheus: on loopback, or on a Unix socket (mode 0660).
//!
//! * [`Source`]: the switch that is told of, as text in Prometheus' exposition format 0.0.4;
//! * [`Server`]: HTTP, one path, bounded in connections, time and size.
//!
//! Names begin with `sluice_dataplane_`, so that they meet neither the controller's nor those of others. Conventions are
//! Prometheus': base units, `_total` for what only rises, what differs as labels. Labels are bounded: by the ports, the
//! program's tables, the engines' drops, and constants here.
//!
//! Depends on admin, p4runtime, device, tables and esp-control. Promises: packets wait for a scrape no longer than a worker takes to
//! report its counters between two batches; one scrape is made at a time; a client that does not read costs a bounded
//! buffer for a bounded time.

mod engines;
mod family;
mod packets;
mod program;
mod server;
mod source;

pub use engines::Engines;
pub use server::Server;
pub use source::Source;
