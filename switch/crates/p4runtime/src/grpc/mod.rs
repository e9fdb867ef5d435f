// SPDX-License-Identifier: Apache-2.0
//! Serves gRPC: sockets, TLS, limits on requests in flight, and the services.

mod admission;
pub mod listen;
mod server;
mod service;
mod tls;

pub use server::{ServeError, Server};
pub use tls::Tls;
