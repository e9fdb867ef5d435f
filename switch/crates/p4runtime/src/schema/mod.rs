// SPDX-License-Identifier: Apache-2.0
//! P4Info bound to a program: what clients name by P4Info ids, and what the switch calls it.
//!
//! A P4Info that does not fit the program is refused as a whole, naming the object; after that every look-up here succeeds
//! or is the client's mistake. Objects of the program that P4Info does not list (tables that p4c made up) are invisible.
//! Tables, action profiles and digests that only P4Info lists are ones that p4c found unused and left out of the program:
//! they have no state, and naming them is an error that says so.

mod binding;
mod header;
mod plan;
mod ports;
mod table;

pub use header::{ControllerHeader, HeaderField};
pub use plan::{ActionPlan, FieldPlan, ParamPlan, Plans, TablePlan};
pub use ports::PortType;
pub use table::{ActionSchema, MatchField, ParamSchema, Scope, TableSchema};

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_program::{CounterId, MeterId, ProfileId, Program, RegisterId, TableId, ValueSetId};

use crate::error::{UpdateError, UpdateResult};
use crate::names::{InUse, Names};
use crate::proto::config::v1 as config;

/// Why a P4Info cannot be used with a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// P4Info lists something that the program does not have.
    #[error("P4Info does not fit the device config: {kind} {name:?} is not in the program")]
    Absent {
        /// What kind of object.
        kind: &'static str,
        /// Its name in P4Info.
        name: String,
    },
    /// Both have it, and differ.
    #[error("P4Info does not fit the device config: {kind} {name:?}: {difference}")]
    Different {
        /// What kind of object.
        kind: &'static str,
        /// Its name in P4Info.
        name: String,
        /// What differs, how.
        difference: String,
    },
    /// P4Info contradicts itself.
    #[error("malformed P4Info: {0}")]
    Malformed(String),
    /// P4Info asks for something that this server does not do.
    #[error("unsupported in P4Info: {0}")]
    Unsupported(String),
}

/// An action profile or selector.
#[derive(Debug)]
pub struct ProfileSchema {
    /// Id in the program.
    pub id: ProfileId,
    /// Name, for messages.
    pub name: String,
    /// A table that uses it; all of them have the same actions.
    pub table: u32,
    /// It is a selector: it has groups.
    pub with_selector: bool,
    /// Largest size of a group; 0 where there is no limit.
    pub max_group_size: u32,
    /// The size of a group is its number of members, not the sum of their weights.
    pub size_is_members: bool,
    /// Largest weight where the size is the number of members; 0 where there is no limit.
    pub max_member_weight: u32,
    /// Members have no weights.
    pub weights_disallowed: bool,
}

/// An indirect counter, meter or register array.
#[derive(Debug)]
pub struct ArraySchema<Id> {
    /// Id in the program.
    pub id: Id,
    /// Name, for messages.
    pub name: String,
    /// Number of cells.
    pub size: usize,
}

/// A register array.
#[derive(Debug)]
pub struct RegisterSchema {
    /// Its cells.
    pub array: ArraySchema<RegisterId>,
    /// Width of a cell in bits.
    pub width: usize,
    /// The strings that clients see.
    pub names: Option<Arc<Names>>,
}

/// A meter's kind, as P4Info has it.
pub type MeterType = config::meter_spec::Type;

/// A digest: the layout of its messages.
#[derive(Debug)]
pub struct DigestSchema {
    /// Name, for messages.
    pub name: String,
    /// Its members in order: their widths in bits, and the strings that clients see.
    pub members: Vec<(usize, Option<Arc<Names>>)>,
    /// Its type is a struct (or tuple) and not a plain bitstring.
    pub is_struct: bool,
}

/// A parser value set.
#[derive(Debug)]
pub struct ValueSetSchema {
    /// Id in the program.
    pub id: ValueSetId,
    /// Name, for messages.
    pub name: String,
    /// Its match fields.
    pub fields: Vec<MatchField>,
}

/// All that clients can name, by P4Info id, in the order of ids.
#[derive(Debug, Default)]
pub struct Schema {
    /// Tables.
    pub tables: BTreeMap<u32, TableSchema>,
    /// Actions.
    pub actions: BTreeMap<u32, ActionSchema>,
    /// Action profiles and selectors.
    pub profiles: BTreeMap<u32, ProfileSchema>,
    /// Indirect counters.
    pub counters: BTreeMap<u32, ArraySchema<CounterId>>,
    /// Indirect meters and their types.
    pub meters: BTreeMap<u32, (ArraySchema<MeterId>, MeterType)>,
    /// Registers.
    pub registers: BTreeMap<u32, RegisterSchema>,
    /// Digests.
    pub digests: BTreeMap<u32, DigestSchema>,
    /// Value sets.
    pub value_sets: BTreeMap<u32, ValueSetSchema>,
    /// What only P4Info lists: kind and name.
    pub unused: BTreeMap<u32, String>,
    /// The roles that objects are given to by `@p4runtime_role`.
    pub roles: BTreeMap<u32, Vec<String>>,
    /// The header before packets to the controller.
    pub packet_in: Option<ControllerHeader>,
    /// The header before packets from the controller.
    pub packet_out: Option<ControllerHeader>,
    /// The type of ports in replicas and watch ports.
    pub ports: PortType,
    /// The types that are strings for clients.
    pub names: InUse,
}

impl Schema {
    /// Binds a P4Info to a program.
    pub fn bind(p4info: &config::P4Info, program: &Program) -> Result<Self, SchemaError> {
        binding::bind(p4info, program)
    }

    /// The table with this P4Info id.
    pub fn table(&self, id: u32) -> UpdateResult<&TableSchema> {
        self.tables
            .get(&id)
            .ok_or_else(|| self.missing("table", id))
    }

    /// The action with this P4Info id.
    pub fn action(&self, id: u32) -> UpdateResult<&ActionSchema> {
        self.actions.get(&id).ok_or_else(|| unknown("action", id))
    }

    /// The action profile with this P4Info id.
    pub fn profile(&self, id: u32) -> UpdateResult<&ProfileSchema> {
        self.profiles
            .get(&id)
            .ok_or_else(|| self.missing("action profile", id))
    }

    fn missing(&self, kind: &str, id: u32) -> UpdateError {
        match self.unused.get(&id) {
            Some(what) => UpdateError::invalid(format!(
                "{what} is not in the device config: no packet can use it"
            )),
            None => unknown(kind, id),
        }
    }

    /// The table that the program knows by this id, with its P4Info id.
    pub fn table_of(&self, id: TableId) -> Option<(u32, &TableSchema)> {
        self.tables
            .iter()
            .find(|(_, table)| table.id == id)
            .map(|(id, table)| (*id, table))
    }

    /// The digest with this name, with its P4Info id. The program has an id for every call of `digest()`, all with
    /// P4Info's name.
    pub fn digest_named(&self, name: &str) -> Option<(u32, &DigestSchema)> {
        self.digests
            .iter()
            .find(|(_, digest)| digest.name == name)
            .map(|(id, digest)| (*id, digest))
    }
}

/// The error for an id that P4Info does not have. 0 is never valid where an object must be named.
pub fn unknown(kind: &str, id: u32) -> UpdateError {
    UpdateError::invalid(match id {
        0 => format!("no {kind} is named (id 0)"),
        _ => format!("P4Info has no {kind} with id {id:#010x}"),
    })
}
