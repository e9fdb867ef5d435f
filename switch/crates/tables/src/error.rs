// SPDX-License-Identifier: Apache-2.0
//! Errors of refused operations. Each variant corresponds to one gRPC status code.

/// Error of a refused operation. Invariant: a refused operation has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The entry, member, group or session does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// There is already an entry with this key, or a member, group or session with this id.
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// The operation is invalid for this program.
    #[error("{0}")]
    InvalidArgument(String),
    /// A value is empty or too wide, or an index is beyond an array.
    #[error("{0}")]
    OutOfRange(String),
    /// The program forbids the operation.
    #[error("{0}")]
    PermissionDenied(String),
    /// The table, profile or group is full.
    #[error("{0}")]
    ResourceExhausted(String),
    /// Another object must be changed first.
    #[error("{0}")]
    FailedPrecondition(String),
    /// This switch does not support the operation.
    #[error("{0}")]
    Unimplemented(String),
}

/// Result of an operation that may be refused.
pub(crate) type Result<T> = std::result::Result<T, TableError>;

pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(TableError::InvalidArgument(message.into()))
}
