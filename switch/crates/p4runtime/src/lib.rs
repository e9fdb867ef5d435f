// SPDX-License-Identifier: Apache-2.0
//! Serves P4Runtime 1.5. Translates requests to the types of the switch, and the results back to messages. Only this
//! crate, `admin` and `metrics` have async code.
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
//! * [`proto`] has the generated messages, and [`error`] the errors of single updates.
//! * [`control`] handles requests, without gRPC.
//! * [`hub`] holds the streams, [`listen`] opens sockets and accepts connections, and [`p4info`] reads files.
//!
//! Private modules:
//!
//! * `grpc` has sockets, TLS, limits on requests in flight, and the services.
//! * `stream` has arbitration, digests, and the queues of the streams.
//! * `write` handles Write requests, from their bytes to the tables; `read` handles Read requests.
//! * `pipeline` handles pipeline configs, and carries state from one pipeline to the next.
//! * `entity` has one file for each kind of entity.
//! * `schema` binds P4Info to a program, and maps the strings of translated types to numbers.
//! * `bytestring` reads integers. `role` has the rights of a role.
//!
//! Promises: a request either succeeds, or is refused with the code that the specification requires. Checks are made
//! in the order of the specification. No update is applied partly. A client that sends bad requests, or does not read
//! its stream, affects no other client and no packet.

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
