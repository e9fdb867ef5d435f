// SPDX-License-Identifier: Apache-2.0
//! Errors of refused operations. Each variant corresponds to one gRPC status code.

/// Error of a refused operation, which has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The entry, member, group or session does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// An entry with this key (or member, group, session with this id) exists.
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// The operation is invalid for this program.
    #[error("{0}")]
    InvalidArgument(String),
    /// A value is empty, too wide, or beyond an array.
    #[error("{0}")]
    OutOfRange(String),
    /// The program forbids it.
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

/// Shorthand used throughout the crate.
pub(crate) type Result<T> = std::result::Result<T, TableError>;

pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(TableError::InvalidArgument(message.into()))
}
