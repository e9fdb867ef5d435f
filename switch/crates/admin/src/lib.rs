// SPDX-License-Identifier: Apache-2.0
//! Serves a switch's operator through a small gRPC service, on a Unix socket (mode 0660) or on loopback.
//!
//! * [`Server`] listens until it is stopped. [`questions`] returns a service that answers only read requests. Another
//!   server can offer this service at its own address.
//! * [`find`] finds the switches on this machine, for the client.
//! * [`proto`] contains messages, client and server stubs.
//!
//! Depends on `device` and `tables`; knows nothing of P4Runtime. Promises:
//!
//! * Only root and the group of the socket can change a switch.
//! * Only users of this machine, and clients that can reach P4Runtime, can query a switch.
//! * If a client stops reading, the server keeps at most a bounded buffer for this client.

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
