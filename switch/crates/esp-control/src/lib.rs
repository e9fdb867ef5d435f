// SPDX-License-Identifier: Apache-2.0
//! Administers an ESP engine, in `sluice-esp` or inside the switch. Clients add, delete and list SAs over a Unix
//! socket. Keys are never shown.
//!
//! ```text
//!   ctl ──► Unix socket ──► admin (a thread for each connection): prepares SAs, writes their numbers to disk
//!                             │ commands, run between batches
//!                             ▼
//!                           the engine's thread
//! ```
//!
//! * [`protocol`] defines requests as JSON lines.
//! * [`admin`] serves a socket.
//! * [`command`] sends commands to the engine's thread.
//! * [`ctl`] is the client, as a command line.
//! * [`sas`] reads files of SAs.
//! * [`hardening`] disables core files and tracing by other processes.
//!
//! Depends on esp and unix-socket, not on interfaces or the pipeline. Promises: no answer, log or command line contains
//! a key. Buffers that held a key are erased. A refused request changes nothing.

pub mod admin;
pub mod command;
pub mod ctl;
pub mod hardening;
pub mod protocol;
pub mod sas;
