// SPDX-License-Identifier: Apache-2.0
//! Contains the generated messages, client and server of `proto/sluice/admin/v1/admin.proto`.

#![allow(missing_docs, unreachable_pub, clippy::all)]

tonic::include_proto!("sluice.admin.v1");
