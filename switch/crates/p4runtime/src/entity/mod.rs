// SPDX-License-Identifier: Apache-2.0
//! Translates P4Runtime's entities to and from the types of the tables crate. There is one file for each kind of
//! entity.
//!
//! Decoding checks the form of a message, as the specification requires. The transaction checks what depends on the
//! content of the tables. Encoding uses the specification's canonical form, so a client can write back unchanged
//! what it has read.

pub(crate) mod action;
pub(crate) mod array;
pub(crate) mod cell;
pub(crate) mod direct;
pub(crate) mod key;
pub(crate) mod profile;
pub(crate) mod replication;
pub(crate) mod requested;
pub(crate) mod stored_entry;
pub(crate) mod table;
pub(crate) mod value_set;

use sluice_program::{Program, Table};

use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::update;
use crate::schema::{Schema, TableSchema};

/// What decoding and encoding need to know.
pub struct Context<'a> {
    /// The objects that clients can name.
    pub schema: &'a Schema,
    /// The program that these objects belong to.
    pub program: &'a Program,
    /// Returns whether a port with this number exists.
    pub port_exists: &'a dyn Fn(u32) -> bool,
}

impl Context<'_> {
    /// Returns the program's table.
    pub fn table(&self, table: &TableSchema) -> &Table {
        self.program.table(table.id)
    }
}

/// The operation of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The entity must not exist yet.
    Insert,
    /// The entity must exist.
    Modify,
    /// The entity must exist. The message's other fields than the key are ignored.
    Delete,
}

impl Operation {
    /// Decodes the type of an update.
    pub fn decode(update_type: update::Type) -> UpdateResult<Self> {
        match update_type {
            update::Type::Insert => Ok(Self::Insert),
            update::Type::Modify => Ok(Self::Modify),
            update::Type::Delete => Ok(Self::Delete),
            update::Type::Unspecified => Err(UpdateError::invalid(
                "the field `type` of the update is not set",
            )),
        }
    }

    /// Refuses all operations except MODIFY, for entities that always exist.
    pub fn modify_only(self, what: &str) -> UpdateResult {
        match self {
            Self::Modify => Ok(()),
            _ => Err(UpdateError::invalid(format!(
                "a {what} can only be modified"
            ))),
        }
    }
}
