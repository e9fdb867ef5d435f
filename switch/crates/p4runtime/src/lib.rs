// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime server: thin translations between P4Runtime 1.5 and the switch. The only async code of the switch.
//!
//! ```text
//!   grpc ──► control ──► write ──► batch ───────► tables     (Write: entries of the usual tables)
//!    │          │           └────► entity/* ──► tables     (Write: all else; Read, pipeline configuration)
//!    │          └──────► read  ──► entity/*
//!    └──► stream/hub ──► stream/arbitration                (streams: arbitration, packets, digests, timeouts)
//! ```
//!
//! Public modules:
//!
//! * [`proto`]: the generated messages; [`error`]: per-update errors
//! * [`control`]: requests, without gRPC
//! * [`hub`]: streams; [`listen`]: sockets and connections; [`p4info`]: files
//!
//! Private modules:
//!
//! * `grpc`: sockets, TLS, limits and services; `stream`: arbitration, digests and the queues of streams
//! * `write`: Write requests, from their bytes to the tables; `read`: Read requests
//! * `pipeline`: pipeline configs, and the state that is carried from one to the next
//! * `entity`: one file for each kind of entity
//! * `schema`: P4Info bound to a program, with the strings of translated types; `bytestring`: integers on the wire
//! * `role`: the rights of a role
//!
//! Promises: a request either does what it says, or is refused with the specification's code, in the specification's
//! order of checks. Nothing is half-applied. Whatever a client sends or fails to read, other clients and packets are
//! not affected.

// Older clients still send fields that P4Runtime has deprecated.
#![allow(deprecated)]

mod bytestring;
pub mod control;
mod entity;
pub mod error;
mod grpc;
pub mod p4info;
mod pipeline;
pub mod proto;
mod read;
mod role;
mod schema;
mod stream;
mod write;

pub use grpc::{ServeError, Server, Tls, listen};
pub use role::CONFIG_TYPE as ROLE_CONFIG_TYPE;
pub use stream::arbitration::{MAX_ROLE_CONFIG, MAX_ROLE_NAME, MAX_ROLES};
pub use stream::hub::{self, Hub};
