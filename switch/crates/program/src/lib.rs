// SPDX-License-Identifier: Apache-2.0
//! Loads p4c's BMv2 JSON into a typed, checked program.
//!
//! [`Program::from_json`] reads the whole file, replaces every name and id by an index of its own type ([`TableId`],
//! [`ActionId`], ...), and determines all widths. It refuses constructs that the switch cannot run, and reports their
//! name and source location. After loading, the switch uses neither the JSON nor names.
//!
//! * [`layout`]: layout of headers and fields in the packet header vector (PHV), and of action parameters;
//! * [`expr`]: expressions over unbounded integers, each with its number class;
//! * [`action`], [`parser`], [`control`], [`externs`]: the program's parts;
//! * `load`: one module for each part, which reads JSON through a cursor that tracks its path.
//!
//! Depends on no other crate of the switch. Invariants: the switch can run every `Program`. Every index in a `Program`
//! is in range. Control flow has no cycle except inside parsers and actions, where the engine limits the number of
//! steps.
//!
//! The format is specified in p4lang/behavioral-model, docs/JSON_format.md: major version 2, minor versions up to 24.

pub mod action;
pub mod control;
mod error;
pub mod expr;
pub mod externs;
mod ids;
pub mod layout;
mod load;
pub mod parser;
mod program;

pub use action::{Action, Op, Param};
pub use control::{
    Conditional, Key, MatchKind, Next, Node, Pipeline, Profile, Selector, Table, TableDefault,
    TableEntry, TableKeyValue,
};
pub use error::{LoadError, SourceInfo};
pub use externs::{
    Calculation, CalculationInput, Checksum, Counter, Digest, FieldList, HashAlgorithm, Meter,
    MeterUnit, Register, ValueSet,
};
pub use ids::*;
pub use layout::{FieldSlot, Header, HeaderType, ParamSlot, Stack, Union, UnionStack};
pub use parser::{Deparser, Parser};
pub use program::{Program, StandardMetadata};
