// SPDX-License-Identifier: Apache-2.0
//! `sluice._native`: the Sluice controller's I/O, which passes data to Python in batches.
//!
//! * [`p4runtime`]: one P4Runtime session (stream, Write, Read, pipeline) over tonic,
//! * [`tap`]: the router's host interfaces,
//! * [`fpm`]: the server that zebra's `dplane_fpm_nl` connects to, framing only,
//! * [`routes`]: the table of all routes, and bulk operations on it,
//! * `python`: the classes of the Python module; its types are in `src/sluice/_native.pyi`,
//! * [`fast_path`]: forwards packets between the first two without Python,
//! * [`mailbox`]: queues from these threads to Python's event loop,
//! * [`runtime`]: the one tokio thread that P4Runtime and FPM share.
//!
//! Invariants:
//!
//! * The crate contains no P4 names. Only [`fast_path`] makes decisions, by tables from Python.
//! * Every queue is bounded. A full queue either blocks its writer or drops and counts.
//! * No input, from the wire or from Python, causes a panic.
//! * Only `python` depends on Python. The rest builds and is tested without it (`--no-default-features`).

pub mod fast_path;
pub mod fpm;
pub mod mailbox;
pub mod p4runtime;
pub mod routes;
pub mod runtime;
pub mod tap;

#[cfg(feature = "python")]
mod python;
