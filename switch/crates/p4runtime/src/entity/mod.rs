// SPDX-License-Identifier: Apache-2.0
//! P4Runtime's entities, translated to what the tables crate understands, and back. One file for each kind.
//!
//! Decoding checks everything that the specification says about the form of a message; what depends on the state of
//! tables is checked by the transaction. Encoding is canonical: what is read can be written back as it is.

pub mod action;
pub mod array;
pub mod direct;
pub mod key;
pub mod profile;
pub mod replication;
pub mod table;
pub mod value_set;

use sluice_program::{Program, Table};

use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::update;
use crate::schema::{Schema, TableSchema};

/// What decoding needs to know.
pub struct Context<'a> {
    /// The objects that clients can name.
    pub schema: &'a Schema,
    /// The program that they belong to.
    pub program: &'a Program,
    /// Whether there is a port with this number.
    pub port_exists: &'a dyn Fn(u32) -> bool,
}

impl Context<'_> {
    /// The program's table.
    pub fn table(&self, table: &TableSchema) -> &Table {
        self.program.table(table.id)
    }
}

/// What an update does to an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Must not exist yet.
    Insert,
    /// Must exist.
    Modify,
    /// Must exist; only the key counts.
    Delete,
}

impl Operation {
    /// Reads the type of an update.
    pub fn decode(update_type: update::Type) -> UpdateResult<Self> {
        match update_type {
            update::Type::Insert => Ok(Self::Insert),
            update::Type::Modify => Ok(Self::Modify),
            update::Type::Delete => Ok(Self::Delete),
            update::Type::Unspecified => Err(UpdateError::invalid("the update has no type")),
        }
    }

    /// For entities that are always there: only MODIFY makes sense.
    pub fn modify_only(self, what: &str) -> UpdateResult {
        match self {
            Self::Modify => Ok(()),
            _ => Err(UpdateError::invalid(format!(
                "a {what} can only be modified"
            ))),
        }
    }
}
