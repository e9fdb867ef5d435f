// SPDX-License-Identifier: Apache-2.0
//! Administers an ESP engine, in `sluice-esp` or inside the switch. Adds, deletes and shows SAs over a Unix socket;
//! keys are never shown.
//!
//! ```text
//!   ctl ──► Unix socket ──► admin (a thread for each connection): prepares SAs, writes their numbers to disk
//!                             │ commands, run between batches
//!                             ▼
//!                           the engine's thread
//! ```
//!
//! * [`protocol`]: requests as JSON lines
//! * [`admin`]: the server of a socket
//! * [`command`]: commands to the engine's thread
//! * [`ctl`]: the client, as a command line
//! * [`sas`]: files of SAs
//! * [`hardening`]: no core file, no tracing by other processes
//!
//! Depends on esp and unix-socket; knows no interface and no pipeline. Promises: no key is in an answer, a log or a
//! command line. Buffers that held a key are erased. A refused request changes nothing.

pub mod admin;
pub mod command;
pub mod ctl;
pub mod hardening;
pub mod protocol;
pub mod sas;
