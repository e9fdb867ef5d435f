// SPDX-License-Identifier: Apache-2.0
//! Implements the Python module `sluice._native`: the I/O of the Sluice controller. Passes data to
//! Python in batches.
//!
//! * [`p4runtime`]: runs P4Runtime sessions (stream, Write, Read, pipeline) over tonic,
//! * [`tap`]: reads and writes the router's host interfaces,
//! * [`fpm`]: runs the server for zebra's `dplane_fpm_nl`. It splits the stream into frames but
//!   does not parse them,
//! * [`routes`]: stores all routes and applies bulk operations to them,
//! * [`rules`]: searches ordered lists of rules,
//! * [`flows`]: records the flows in the switch, and queues their writes,
//! * `python`: contains the classes of the Python module, documented in `src/sluice/_native.pyi`,
//! * [`fast_path`]: forwards packets between [`p4runtime`] and [`tap`] without Python,
//! * [`punts`]: queues the packets that the switch punts to Python, and reads their selectors,
//! * [`mailbox`]: passes data from these threads to Python's event loop,
//! * [`runtime`]: runs the tokio thread that P4Runtime and FPM share.
//!
//! Invariants:
//!
//! * The crate contains no P4 names. Only [`fast_path`] makes decisions, using tables from Python.
//! * Every queue is bounded. If a queue is full, its writer waits, or data is dropped and counted.
//! * No input from the network or from Python causes a panic.
//! * Only `python` depends on Python. The other modules are built and tested without Python
//!   (`--no-default-features`).

pub mod fast_path;
pub mod flows;
pub mod fpm;
pub mod mailbox;
pub mod p4runtime;
pub mod punts;
pub mod routes;
pub mod rules;
pub mod runtime;
pub mod tap;

#[cfg(feature = "python")]
mod python;
