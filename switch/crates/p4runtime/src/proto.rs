// SPDX-License-Identifier: Apache-2.0
//! The protobuf messages and the service, generated from the P4Runtime project's files at build time.

#![allow(missing_docs, unreachable_pub, clippy::all)]

pub use google::rpc;
pub use p4::{config, v1};

/// `package p4`.
pub mod p4 {
    /// The service and its messages.
    pub mod v1 {
        tonic::include_proto!("p4.v1");
    }

    /// P4Info.
    pub mod config {
        pub mod v1 {
            tonic::include_proto!("p4.config.v1");
        }
    }
}

/// `package google`.
pub mod google {
    /// The status that error details travel in.
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}
