// SPDX-License-Identifier: Apache-2.0
//! Defines the reasons why a P4Info is refused.

/// Why a P4Info cannot be used with a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// P4Info lists an object that the program does not have.
    #[error("P4Info does not fit the device config: {kind} {name:?} is not in the program")]
    Absent {
        /// Kind of object.
        kind: &'static str,
        /// Name in P4Info.
        name: String,
    },
    /// P4Info and the program describe the object differently.
    #[error("P4Info does not fit the device config: {kind} {name:?}: {difference}")]
    Different {
        /// Kind of object.
        kind: &'static str,
        /// Name in P4Info.
        name: String,
        /// The property that differs, with both values.
        difference: String,
    },
    /// P4Info contradicts itself.
    #[error("malformed P4Info: {0}")]
    Malformed(String),
    /// P4Info requires a feature that this server does not have.
    #[error("unsupported in P4Info: {0}")]
    Unsupported(String),
}
