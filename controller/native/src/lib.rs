// SPDX-License-Identifier: Apache-2.0
//! `sluice._native`: the byte-moving half of the Sluice controller, handed to Python in batches.
//!
//! * [`p4runtime`]: one P4Runtime session (stream, Write, Read, pipeline) over tonic,
//! * [`tap`]: the router's host interfaces,
//! * [`fpm`]: the server that zebra's `dplane_fpm_nl` connects to, framing only,
//! * [`routes`]: the table of all routes, and what happens to many of them alike,
//! * `python`: the classes of the Python module; its types are in `src/sluice/_native.pyi`,
//! * [`fast_path`]: what passes between the first two without Python,
//! * [`mailbox`]: how the threads here hand things to Python's event loop,
//! * [`runtime`]: the one tokio thread that P4Runtime and FPM share.
//!
//! Promises: nothing here knows a P4 name, and only [`fast_path`] decides anything, by tables that
//! Python gives. Every queue is bounded; what a full
//! queue costs is either waiting (whoever can wait) or a drop with a counter of its own. No input,
//! from the wire or from Python, makes it panic. Only `python` knows Python: the rest builds and is
//! tested without it (`--no-default-features`).

pub mod fast_path;
pub mod fpm;
pub mod mailbox;
pub mod p4runtime;
pub mod routes;
pub mod runtime;
pub mod tap;

#[cfg(feature = "python")]
mod python;
