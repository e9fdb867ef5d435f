// SPDX-License-Identifier: Apache-2.0
//! The operator's side of a switch: a small gRPC service on a Unix socket (mode 0660) or on loopback.
//!
//! * [`Server`]: listens until it is stopped; [`questions`]: its harmless, read-only part, for another server's
//!   address;
//! * [`find`]: finds the switches on this machine, for the client;
//! * [`proto`]: the messages, and the client.
//!
//! Depends on `device` and `tables`; knows nothing of P4Runtime. Promises:
//!
//! * Only root and the socket's group can change a switch.
//! * Only this machine, and clients that can reach P4Runtime, can query it.
//! * A client that stops reading costs a bounded buffer.

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
