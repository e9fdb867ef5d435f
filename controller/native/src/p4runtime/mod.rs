// SPDX-License-Identifier: Apache-2.0
//! One P4Runtime session as a controller's client sees it (specification 1.5).
//!
//! Requests and answers pass as serialized bytes ([`codec`]); Python owns their meaning. Looked
//! into are only packet-in and packet-out ([`packet`], the fast path), the kind of a stream message
//! ([`stream`]), the per-update errors of a Write ([`status`]), and what P4Runtime does not tell:
//! the switch's ports ([`ports`]) and rehearsals ([`rehearsal`]). [`inbox`] is what waits for
//! Python, [`outlet`] what the fast path sees, [`target`] the way to the server, [`session`] the
//! connection, [`client`] the handle that
//! Python holds.

pub mod client;
mod codec;
pub mod inbox;
mod outlet;
pub mod packet;
pub mod ports;
pub mod rehearsal;
pub mod role;
mod session;
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
