// SPDX-License-Identifier: Apache-2.0
//! Defines the expected status of a step.

use tonic::Code;

use crate::outcome::{Failure, Outcome};

/// The code that a step expects. If the specification leaves the code open, several codes.
pub trait Expected: std::fmt::Debug + Copy {
    /// Returns whether the code is an expected one.
    fn has(self, code: Code) -> bool;
    /// Returns whether the tested feature is optional. If so, UNIMPLEMENTED skips the case instead of
    /// failing it.
    fn optional(self) -> bool {
        false
    }
}

impl Expected for Code {
    fn has(self, code: Code) -> bool {
        self == code
    }
}

impl<const N: usize> Expected for [Code; N] {
    fn has(self, code: Code) -> bool {
        self.contains(&code)
    }
}

/// The code for a feature that the specification makes optional.
#[derive(Debug, Clone, Copy)]
pub struct Optional(pub Code);

impl Expected for Optional {
    fn has(self, code: Code) -> bool {
        self.0 == code
    }

    fn optional(self) -> bool {
        true
    }
}

pub(super) fn check(
    found: Code,
    expected: impl Expected,
    what: impl FnOnce() -> String,
) -> Outcome {
    if expected.has(found) {
        return Ok(());
    }
    if expected.optional() && found == Code::Unimplemented {
        return Err(Failure::Skipped("optional, and UNIMPLEMENTED here".into()));
    }
    let what = what();
    Err(Failure::Failed(format!(
        "expected {expected:?}, found {found:?}, of {what}"
    )))
}
