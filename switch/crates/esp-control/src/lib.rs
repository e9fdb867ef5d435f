// SPDX-License-Identifier: Apache-2.0
//! How an ESP engine is administered, wherever it runs: SAs come and go over a Unix socket, and are shown without their
//! keys.
//!
//! ```text
//!   ctl ──► Unix socket ──► admin (a thread for each connection): prepares SAs, writes their numbers to disk
//!                             │ commands, done between batches
//!                             ▼
//!                           the thread that has the engine
//! ```
//!
//! * [`protocol`]: requests as JSON lines
//! * [`admin`]: the server of a socket
//! * [`command`]: the way from there to the engine's thread
//! * [`ctl`]: the client, as a command line
//! * [`sas`]: files of SAs
//! * [`hardening`]: no core file, no tracing by others
//!
//! Depends on esp and unix-socket; knows no interface and no pipeline. Promises: a key is in no answer, log or
//! command line; buffers that held one are erased; a request that is refused changes nothing.

pub mod admin;
pub mod command;
pub mod ctl;
pub mod hardening;
pub mod protocol;
pub mod sas;
