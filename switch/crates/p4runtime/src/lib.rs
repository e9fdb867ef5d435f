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
//! * [`proto`]: the generated messages
//! * [`arbitration`], [`digest`]: pure state machines
//! * [`role`]: the rights of a role
//! * [`schema`]: P4Info bound to a program; [`bytestring`]: integers on the wire; [`names`]: strings for numbers; [`error`]: per-update errors
//! * [`entity`]: one file for each kind of entity
//! * [`request`], [`batch`], [`shape`], [`wire`]: Write requests from their bytes, entries of usual tables in one step
//! * [`write`], [`read`], [`reconcile`], [`pipeline`], [`control`]: requests, without gRPC
//! * [`p4info`]: files; [`hub`]: streams; [`service`], [`server`], [`tls`]: gRPC
//! * [`listen`]: sockets and connections; [`admission`]: limits on requests and bytes in flight
//!
//! Promises: a request either does what it says, or is refused with the specification's code, in the specification's
//! order of checks. Nothing is half-applied. Whatever a client sends or fails to read, other clients and packets are
//! not affected.

// Older clients still send fields that P4Runtime has deprecated.
#![allow(deprecated)]

pub mod admission;
pub mod arbitration;
pub mod batch;
pub mod bytestring;
pub mod control;
mod device_config;
pub mod digest;
pub mod digest_task;
pub mod entity;
pub mod error;
pub mod hub;
pub mod listen;
pub mod names;
pub mod p4info;
pub mod pipeline;
pub mod proto;
pub mod read;
pub mod reconcile;
pub mod request;
pub mod role;
pub mod schema;
pub mod server;
pub mod service;
pub mod shape;
pub mod tls;
pub mod wire;
pub mod write;

pub use hub::Hub;
pub use server::{ServeError, Server};
pub use tls::Tls;
