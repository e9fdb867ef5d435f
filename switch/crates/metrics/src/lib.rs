// SPDX-License-Identifier: Apache-2.0
//! Serves `GET /metrics` of a switch for Prometheus, on loopback or on a Unix socket (mode 0660).
//!
//! * [`Source`] collects the metrics of a switch, as text in Prometheus' exposition format 0.0.4.
//! * [`Server`] serves this text over HTTP at one path, with limits for connections, time and size.
//!
//! Names begin with `sluice_dataplane_`, so that they cannot collide with metrics of the controller or other software.
//! Names follow Prometheus' conventions: base units, `_total` for values that only rise, labels for variants. The
//! number of label values is limited by the number of ports, tables and drop reasons, and by constants in this crate.
//!
//! Depends on admin, p4runtime, device, tables and esp-control. Promises:
//!
//! * A scrape delays packets only while each worker reports its counters, between two batches.
//! * Metrics are collected for one scrape at a time.
//! * For a client that does not read, the server holds a bounded buffer for a bounded time.

mod engines;
mod family;
mod packets;
mod program;
mod server;
mod source;

pub use engines::Engines;
pub use server::Server;
pub use source::Source;
