// SPDX-License-Identifier: Apache-2.0
//! Serves P4Runtime 1.5: translates requests to the types of the switch, and results back. Besides the crates `admin`
//! and `metrics`, this is the only async code of the switch.
//!
//! ```text
//!   service ──► control ──► write ──► batch ───────► tables     (Write: entries of the usual tables)
//!      │           │           └────► entity/* ──► tables     (Write: all else; Read, pipeline configuration)
//!      │           └──────► read  ──► entity/*
//!      └──► hub ──► arbitration                               (streams: arbitration, packets, digests, timeouts)
//! ```
//!
//! Public modules:
//!
//! * [`proto`] has the generated messages, and [`error`] the errors of single updates.
//! * [`control`] handles requests, without gRPC.
//! * [`hub`] holds the streams, [`listen`] opens sockets and accepts connections, and [`p4info`] reads files.
//!
//! Private modules:
//!
//! * `arbitration` and `digest` are state machines without I/O.
//! * `role` has the rights of a role.
//! * `schema` binds P4Info to a program, `bytestring` reads integers, and `names` maps strings to numbers.
//! * `entity` has one file for each kind of entity.
//! * `request`, `batch`, `shape` and `wire` decode Write requests. They decode entries of most tables in one step.
//! * `write`, `read`, `reconcile` and `pipeline` handle one kind of request each.
//! * `service`, `server` and `tls` implement gRPC, and `admission` limits the requests and bytes in flight.
//!
//! Promises: a request either succeeds, or is refused with the code of the specification. Checks are made in the order
//! of the specification. No update is applied partly. A client that sends bad requests or does not read its stream
//! affects neither other clients nor packets.

// Older clients still send fields that P4Runtime has deprecated.
#![allow(deprecated)]

mod admission;
mod arbitration;
mod batch;
mod bytestring;
pub mod control;
mod device_config;
mod digest;
mod digest_task;
mod entity;
pub mod error;
pub mod hub;
pub mod listen;
mod names;
pub mod p4info;
mod pipeline;
pub mod proto;
mod read;
mod reconcile;
mod request;
mod role;
mod schema;
mod server;
mod service;
mod shape;
mod tls;
mod wire;
mod write;

pub use arbitration::{MAX_ROLE_CONFIG, MAX_ROLE_NAME, MAX_ROLES};
pub use hub::Hub;
pub use role::CONFIG_TYPE as ROLE_CONFIG_TYPE;
pub use server::{ServeError, Server};
pub use tls::Tls;
