// SPDX-License-Identifier: Apache-2.0
//! Contains the protobuf messages and the service, which the build generates from the files of the P4Runtime project
//! and of this project.

#![allow(missing_docs, unreachable_pub, clippy::all)]

pub use google::rpc;
pub use p4::{config, v1};
pub use sluice::p4runtime::v1 as role;

/// `package p4`.
pub mod p4 {
    /// The service and its messages.
    pub mod v1 {
        tonic::include_proto!("p4.v1");
        // The P4Runtime service, which takes write requests as bytes.
        tonic::include_proto!("p4.v1.P4Runtime");
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
    /// The status message that carries error details.
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}

/// `package sluice`.
pub mod sluice {
    pub mod p4runtime {
        /// Role configurations.
        pub mod v1 {
            tonic::include_proto!("sluice.p4runtime.v1");
        }
    }
}

/// Descriptors of the protobuf files from which the messages were generated, and of all files that they import, as a
/// serialized FileDescriptorSet.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
