// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime server: thin translations between P4Runtime 1.5 and the switch. The only async code of the switch.
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
//! * [`proto`]: the generated messages; [`error`]: per-update errors
//! * [`control`]: requests, without gRPC
//! * [`hub`]: streams; [`listen`]: sockets and connections; [`p4info`]: files
//!
//! Private modules:
//!
//! * `arbitration`, `digest`: pure state machines
//! * `role`: the rights of a role
//! * `schema`: P4Info bound to a program; `bytestring`: integers on the wire; `names`: strings for numbers
//! * `entity`: one file for each kind of entity
//! * `request`, `batch`, `shape`, `wire`: Write requests from their bytes, entries of usual tables in one step
//! * `write`, `read`, `reconcile`, `pipeline`: requests of each kind
//! * `service`, `server`, `tls`: gRPC; `admission`: limits on requests and bytes in flight
//!
//! Promises: a request either does what it says, or is refused with the specification's code, in the specification's
//! order of checks. Nothing is half-applied. Whatever a client sends or fails to read, other clients and packets are
//! not affected.

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
