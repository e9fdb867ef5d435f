// SPDX-License-Identifier: Apache-2.0
//! Lists the mutations of updates, and the codes with which a server may refuse a damaged update.

use tonic::Code;

/// Kind of damage to an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    TableId,
    ActionId,
    MatchFieldId,
    MissingMatchField,
    DuplicateMatchField,
    MatchFieldType,
    TableImplementation,
    SelectorWeight,
    DuplicateInsert,
    NonexistingDelete,
    Port,
    QosQueue,
    ReferredMember,
    ReferredGroup,
    WideValue,
    EmptyValue,
    BitsOutsideMask,
    PrefixLength,
    ReversedRange,
    Priority,
    MissingParameter,
    DuplicateParameter,
    ParameterId,
    ForeignAction,
    CellIndex,
    NegativeCounter,
    ReversedMeter,
    IsConst,
    Timeout,
    ZeroId,
    UpdateType,
    NoEntity,
    Extern,
    Bytes,
}

pub(super) const ALL: [Mutation; 34] = [
    Mutation::TableId,
    Mutation::ActionId,
    Mutation::MatchFieldId,
    Mutation::MissingMatchField,
    Mutation::DuplicateMatchField,
    Mutation::MatchFieldType,
    Mutation::TableImplementation,
    Mutation::SelectorWeight,
    Mutation::DuplicateInsert,
    Mutation::NonexistingDelete,
    Mutation::Port,
    Mutation::QosQueue,
    Mutation::ReferredMember,
    Mutation::ReferredGroup,
    Mutation::WideValue,
    Mutation::EmptyValue,
    Mutation::BitsOutsideMask,
    Mutation::PrefixLength,
    Mutation::ReversedRange,
    Mutation::Priority,
    Mutation::MissingParameter,
    Mutation::DuplicateParameter,
    Mutation::ParameterId,
    Mutation::ForeignAction,
    Mutation::CellIndex,
    Mutation::NegativeCounter,
    Mutation::ReversedMeter,
    Mutation::IsConst,
    Mutation::Timeout,
    Mutation::ZeroId,
    Mutation::UpdateType,
    Mutation::NoEntity,
    Mutation::Extern,
    Mutation::Bytes,
];

/// Result that is allowed for a damaged update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// The update must be refused with one of these codes.
    Refused(&'static [Code]),
    /// The model predicts the result, which depends on the current state.
    Foreseen,
    /// The update may still be valid. All codes that the specification has for updates are allowed.
    Any,
}

pub(super) const INVALID: Damage = Damage::Refused(&[Code::InvalidArgument]);
pub(super) const UNKNOWN_ID: Damage = Damage::Refused(&[Code::InvalidArgument, Code::NotFound]);
pub(super) const BAD_VALUE: Damage = Damage::Refused(&[Code::OutOfRange, Code::InvalidArgument]);

pub(super) const NO_SUCH_REFERENCE: u32 = 99_999;
