// SPDX-License-Identifier: Apache-2.0
//! Binds P4Info to a program: maps P4Info ids to the program's objects.
//!
//! A P4Info that does not fit the program is refused as a whole, and the error has the object's name. After that, a
//! lookup here fails only because of a client's mistake. Clients do not see objects of the program that P4Info does not
//! list (tables that p4c created). Some tables, action profiles and digests are only in P4Info, because p4c leaves
//! unused objects out of the program. Such objects have no state. If a client names such an object, the error says that
//! the program does not use it.

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
