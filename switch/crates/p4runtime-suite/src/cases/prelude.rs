// SPDX-License-Identifier: Apache-2.0
//! Imports for the cases.

pub(super) use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action as Set;
pub(super) use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
pub(super) use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
pub(super) use sluice_p4runtime::proto::v1::write_request::Atomicity;
pub(super) use sluice_p4runtime::proto::v1::*;
pub(super) use tonic::Code;

pub(super) use crate::bench::{Frame, Optional, Walk};
pub(super) use crate::entity::*;
pub(super) use crate::outcome::{Failure, holds, same};
pub(super) use crate::program::{self, UNKNOWN_ID, id};

pub(super) const OK: Code = Code::Ok;
pub(super) const INVALID: Code = Code::InvalidArgument;
pub(super) const NOT_FOUND: Code = Code::NotFound;
pub(super) const EXISTS: Code = Code::AlreadyExists;
pub(super) const DENIED: Code = Code::PermissionDenied;
pub(super) const RANGE: Code = Code::OutOfRange;
pub(super) const FULL: Code = Code::ResourceExhausted;
pub(super) const PRECONDITION: Code = Code::FailedPrecondition;
pub(super) const UNIMPLEMENTED: Code = Code::Unimplemented;
