// SPDX-License-Identifier: Apache-2.0
//! `GET /metrics` of a switch, for Prometheus: on loopback, or on a Unix socket (mode 0660).
//!
//! * [`Source`]: the metrics of a switch, as text in Prometheus' exposition format 0.0.4;
//! * [`Server`]: HTTP, one path, bounded in connections, time and size.
//!
//! Names begin with `sluice_dataplane_`, so that they cannot collide with the controller's or other software's. The
//! conventions are Prometheus': base units, `_total` for values that only rise, labels for variants. Labels are
//! bounded: by the ports, the program's tables, the engines' drops, and constants here.
//!
//! Depends on admin, p4runtime, device, tables and esp-control. Promises:
//!
//! * A scrape delays packets only while a worker reports its counters between two batches.
//! * One scrape is made at a time.
//! * A client that does not read costs a bounded buffer for a bounded time.

mod engines;
mod family;
mod packets;
mod program;
mod server;
mod source;

pub use engines::Engines;
pub use server::Server;
pub use source::Source;
