// SPDX-License-Identifier: Apache-2.0
//! Binds P4Info to a program: finds the program's object for each P4Info id.
//!
//! A P4Info that does not fit the program is refused as a whole, and the error names the object that does not fit. So a
//! later lookup fails only if the client made a mistake. Clients cannot see objects of the program that P4Info does not
//! list, such as tables that p4c created. The reverse also occurs: p4c leaves unused tables, action profiles and
//! digests out of the program, but lists them in P4Info. They have no state. If a client names such an object, the
//! error says that the program does not use it.

mod annotations;
mod binding;
mod error;
pub(crate) mod header;
pub(crate) mod names;
mod objects;
mod plan;
mod port_search;
mod ports;
mod table;

pub(crate) use error::SchemaError;
pub(crate) use header::ControllerHeader;
pub(crate) use objects::{
    ArraySchema, DigestSchema, ProfileSchema, RegisterSchema, Schema, ValueSetSchema, unknown,
};
pub(crate) use plan::{ActionPlan, FieldPlan, Plans, TablePlan};
pub(crate) use ports::PortType;
pub(crate) use table::{ActionSchema, MatchField, MeterType, ParamSchema, Scope, TableSchema};
