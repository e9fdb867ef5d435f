// SPDX-License-Identifier: Apache-2.0
//! Defines errors in the form in which clients see them (P4Runtime specification, "Error Reporting Messages").
//!
//! If a request fails as a whole, the answer is one gRPC status. If single updates of a batch fail, the status is
//! UNKNOWN, and its details hold exactly one `p4.v1.Error` for each update, in the order of the updates.

use prost::Message;
use sluice_tables::TableError;
use tonic::{Code, Status};

use crate::proto::{rpc, v1};

/// The reason why one update or read request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UpdateError {
    /// The canonical code.
    pub code: Code,
    /// Says what is wrong and where, for the developer of the client.
    pub message: String,
}

macro_rules! constructors {
    ($($name:ident: $code:ident),* $(,)?) => {
        impl UpdateError {
            $(
                #[doc = concat!("An error with code ", stringify!($code), ".")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self { code: Code::$code, message: message.into() }
                }
            )*
        }
    };
}

constructors! {
    invalid: InvalidArgument,
    not_found: NotFound,
    out_of_range: OutOfRange,
    permission_denied: PermissionDenied,
    unimplemented: Unimplemented,
    aborted: Aborted,
}

impl UpdateError {
    /// Returns the same error with `what` in front of its message. `what` names the object that the error concerns.
    pub fn of(self, what: &str) -> Self {
        Self {
            message: format!("{what}: {}", self.message),
            ..self
        }
    }
}

impl From<TableError> for UpdateError {
    fn from(error: TableError) -> Self {
        let message = error.to_string();
        let code = match error {
            TableError::NotFound(_) => Code::NotFound,
            TableError::AlreadyExists(_) => Code::AlreadyExists,
            TableError::InvalidArgument(_) => Code::InvalidArgument,
            TableError::OutOfRange(_) => Code::OutOfRange,
            TableError::PermissionDenied(_) => Code::PermissionDenied,
            TableError::ResourceExhausted(_) => Code::ResourceExhausted,
            TableError::FailedPrecondition(_) => Code::FailedPrecondition,
            TableError::Unimplemented(_) => Code::Unimplemented,
        };
        Self { code, message }
    }
}

/// The outcome of one update or read request.
pub type UpdateResult<T = ()> = Result<T, UpdateError>;

const TYPE_URL: &str = "type.googleapis.com/p4.v1.Error";

/// Returns OK if all results are OK. Otherwise returns the status UNKNOWN, with one error for each result.
pub fn batch_status<T>(results: &[UpdateResult<T>]) -> Result<(), Status> {
    if results.iter().all(Result::is_ok) {
        return Ok(());
    }
    let failed = results.iter().filter(|result| result.is_err()).count();
    let message = format!(
        "{failed} of {} updates or entities failed; see the error details",
        results.len()
    );
    let details = results.iter().map(|result| {
        let error = match result {
            Ok(_) => v1::Error::default(),
            Err(error) => v1::Error {
                canonical_code: error.code.into(),
                message: error.message.clone(),
                space: "sluice".into(),
                ..v1::Error::default()
            },
        };
        prost_types::Any {
            type_url: TYPE_URL.into(),
            value: error.encode_to_vec(),
        }
    });
    let status = rpc::Status {
        code: Code::Unknown.into(),
        message: message.clone(),
        details: details.collect(),
    };
    Err(Status::with_details(
        Code::Unknown,
        message,
        status.encode_to_vec().into(),
    ))
}

/// Extracts the errors from the status of a batch, as a client does.
pub fn batch_errors(status: &Status) -> Vec<v1::Error> {
    let details = rpc::Status::decode(status.details())
        .unwrap_or_default()
        .details;
    details
        .iter()
        .filter_map(|any| v1::Error::decode(any.value.as_slice()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_error_for_each_update_in_order() {
        let results = [
            Err(UpdateError::not_found("a")),
            Ok(()),
            Err(UpdateError::invalid("c")),
        ];
        let status = batch_status(&results).unwrap_err();
        assert_eq!(status.code(), Code::Unknown);
        let codes: Vec<_> = batch_errors(&status)
            .iter()
            .map(|e| e.canonical_code)
            .collect();
        assert_eq!(codes, [5, 0, 3]);
        assert!(batch_status::<()>(&[Ok(())]).is_ok());
    }
}
