// SPDX-License-Identifier: Apache-2.0
//! Defines the outcomes of cases and of their steps, and checks.

use tonic::Status;

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server violated the specification.
    Failed(String),
    /// The case could not be tested, for this reason.
    Skipped(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Failed(format!("{:?}: {}", status.code(), status.message()))
    }
}

/// The outcome of a case, or of one of its steps.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Converts a status into the failure of a step that must succeed.
pub(crate) fn failed(what: &str, status: &Status) -> Failure {
    let (code, message) = (status.code(), status.message());
    Failure::Failed(format!("{what}: {code:?}: {message}"))
}

/// Fails unless `found` is `expected`.
pub fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T, what: &str) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let message = format!("{what}: expected {expected:?}, found {found:?}");
    Err(Failure::Failed(message))
}

/// Fails with the message `what` unless `it` is true.
pub fn holds(it: bool, what: impl Into<String>) -> Outcome {
    if it {
        Ok(())
    } else {
        Err(Failure::Failed(what.into()))
    }
}
