// SPDX-License-Identifier: Apache-2.0
//! Loads p4c's BMv2 JSON into a typed, checked program.
//!
//! [`Program::from_json`] reads the whole file, resolves every name and id to an index newtype ([`TableId`],
//! [`ActionId`], ...), and determines all widths. It refuses what the switch cannot run, by name and source location.
//! Later stages use neither JSON nor names.
//!
//! * [`layout`]: layout of headers and fields in the packet header vector (PHV);
//! * [`expr`]: expressions of unbounded integers, each with its number class;
//! * [`action`], [`parser`], [`control`], [`externs`]: the program's parts;
//! * `load`: one module per part, reading JSON through a cursor that tracks its path.
//!
//! Depends on no other crate of the switch. Invariants: a `Program` can be run; every index in it is in range; control
//! flow has no cycle except inside parsers and actions, whose steps the engine bounds.
//!
//! The format: p4lang/behavioral-model, docs/JSON_format.md, major version 2, minor up to 24.

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

pub use action::{Action, Op, Param, ParamSlot};
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
pub use layout::{Header, HeaderType, Slot, Stack, Union, UnionStack};
pub use parser::{Deparser, Parser};
pub use program::{Program, StandardMetadata};
