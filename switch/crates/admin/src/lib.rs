// SPDX-License-Identifier: Apache-2.0
//! The operator's side of a switch: a small gRPC service on a Unix socket (mode 0660) or on loopback.
//!
//! * [`Server`]: listening, until told to stop; [`questions`]: its harmless half, for another server's address;
//! * [`find`]: which switches run on this machine, for the client;
//! * [`proto`]: the messages, and the client.
//!
//! Depends on `device` and `tables`; knows nothing of P4Runtime. Promises: nobody but root and the
//! socket's group can change a switch; nobody but this machine, and those who reach P4Runtime, can ask
//! it; a client that stops reading costs a bounded buffer.

mod fib;
pub mod find;
mod listen;
#[allow(clippy::all)]
pub mod proto;
mod service;
mod state;
mod trace;

pub use listen::{Address, Server};
pub use service::{About, PortPolicy, questions};
