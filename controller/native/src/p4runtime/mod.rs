// SPDX-License-Identifier: Apache-2.0
//! Implements the client of one P4Runtime session (specification 1.5).
//!
//! Python encodes the requests and decodes the answers. This module passes both as serialized bytes
//! ([`codec`]). It decodes only:
//!
//! * packet-ins and packet-outs ([`packet`], for the fast path),
//! * the kind of a stream message ([`stream`]),
//! * the errors of single updates of a Write ([`status`]),
//! * messages that P4Runtime lacks: the switch's ports ([`ports`]) and dry runs of packets
//!   ([`dry_run`]).
//!
//! This module encodes only packet-outs and the updates of flows ([`flow_update`]).
//!
//! [`inbox`] queues events for Python. [`inlet`] and [`outlet`] connect the session to the fast
//! path. [`target`] parses the server's address, [`session`] runs the connection, and [`client`] is
//! Python's handle. [`shared`] is the state that these modules share.

pub mod client;
mod codec;
pub mod dry_run;
pub mod flow_update;
pub mod inbox;
mod inlet;
mod outlet;
pub mod packet;
pub mod ports;
pub mod role;
mod session;
mod shared;
pub mod status;
mod stream;
pub mod target;

/// Generated from the .proto files by build.rs.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    pub mod p4 {
        pub mod config {
            pub mod v1 {
                include!(concat!(env!("OUT_DIR"), "/p4.config.v1.rs"));
            }
        }
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/p4.v1.rs"));
        }
    }
    pub mod sluice {
        pub mod admin {
            pub mod v1 {
                include!(concat!(env!("OUT_DIR"), "/sluice.admin.v1.rs"));
            }
        }
    }
    pub mod google {
        pub mod rpc {
            include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
        }
    }
}
