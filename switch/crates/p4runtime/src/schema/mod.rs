// SPDX-License-Identifier: Apache-2.0
//! Binds P4Info to a program: finds the program's object for each P4Info id.
//!
//! A P4Info that does not fit the program is refused as a whole, and the error names the object that does not fit. So a
//! later lookup fails only if the client made a mistake. Clients cannot see objects of the program that P4Info does not
//! list, such as tables that p4c created. The reverse also occurs: p4c leaves unused tables, action profiles and
//! digests out of the program, but lists them in P4Info. They have no state. If a client names such an object, the
//! error says that the program does not use it.

mod binding;
mod error;
pub(crate) mod header;
pub(crate) mod names;
mod plan;
mod ports;
mod table;

pub(crate) use error::SchemaError;
pub(crate) use header::ControllerHeader;
pub(crate) use plan::{ActionPlan, FieldPlan, Plans, TablePlan};
pub(crate) use ports::PortType;
pub(crate) use table::{ActionSchema, MatchField, ParamSchema, Scope, TableSchema};

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_program::{CounterId, MeterId, ProfileId, Program, RegisterId, TableId, ValueSetId};

use self::names::{InUse, Names};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::config::v1 as config;

/// An action profile or selector.
#[derive(Debug)]
pub struct ProfileSchema {
    /// Id in the program.
    pub id: ProfileId,
    /// Name, for error messages.
    pub name: String,
    /// P4Info id of a table that uses the profile. All tables that use the profile have the same actions.
    pub table: u32,
    /// Whether the profile is a selector, with groups.
    pub with_selector: bool,
    /// Largest size of a group; 0 means no limit.
    pub max_group_size: u32,
    /// Whether the size of a group is its number of members. Otherwise the size is the sum of the members' weights.
    pub size_is_members: bool,
    /// Largest weight of a member, if the size is the number of members; 0 means no limit.
    pub max_member_weight: u32,
    /// Whether members have no weights.
    pub weights_disallowed: bool,
}

/// An indirect counter, meter or register array.
#[derive(Debug)]
pub struct ArraySchema<Id> {
    /// Id in the program.
    pub id: Id,
    /// Name, for error messages.
    pub name: String,
    /// Number of cells.
    pub size: usize,
}

/// A register array.
#[derive(Debug)]
pub struct RegisterSchema {
    /// The array of cells.
    pub array: ArraySchema<RegisterId>,
    /// Width of a cell in bits.
    pub width: usize,
    /// The strings that clients see instead of numbers.
    pub names: Option<Arc<Names>>,
}

/// A meter's type, as P4Info defines it.
pub(crate) type MeterType = config::meter_spec::Type;

/// A digest, with the layout of its messages.
#[derive(Debug)]
pub struct DigestSchema {
    /// Name, for error messages.
    pub name: String,
    /// Members in order: their widths in bits, and the strings that clients see instead of numbers.
    pub members: Vec<(usize, Option<Arc<Names>>)>,
    /// Whether the digest's type is a struct (or tuple) and not a plain bitstring.
    pub is_struct: bool,
}

/// A parser value set.
#[derive(Debug)]
pub struct ValueSetSchema {
    /// Id in the program.
    pub id: ValueSetId,
    /// Name, for error messages.
    pub name: String,
    /// Match fields.
    pub fields: Vec<MatchField>,
}

/// All objects that clients can name, in the order of their P4Info ids.
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
    /// Objects that P4Info lists and the program lacks, by P4Info id: kind and name.
    pub unused: BTreeMap<u32, String>,
    /// The roles to which `@p4runtime_role` assigns an object, by the object's P4Info id.
    pub roles: BTreeMap<u32, Vec<String>>,
    /// The header in front of packet-ins.
    pub packet_in: Option<ControllerHeader>,
    /// The header in front of packet-outs.
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

    /// Returns the table with this P4Info id.
    pub fn table(&self, id: u32) -> UpdateResult<&TableSchema> {
        self.tables
            .get(&id)
            .ok_or_else(|| self.missing("table", id))
    }

    /// Returns the action with this P4Info id.
    pub fn action(&self, id: u32) -> UpdateResult<&ActionSchema> {
        self.actions.get(&id).ok_or_else(|| unknown("action", id))
    }

    /// Returns the action profile with this P4Info id.
    pub fn profile(&self, id: u32) -> UpdateResult<&ProfileSchema> {
        self.profiles
            .get(&id)
            .ok_or_else(|| self.missing("action profile", id))
    }

    fn missing(&self, kind: &str, id: u32) -> UpdateError {
        match self.unused.get(&id) {
            Some(what) => UpdateError::invalid(format!(
                "{what} is not in the device config, so no packet can use it"
            )),
            None => unknown(kind, id),
        }
    }

    /// Returns the P4Info id and the schema of the table with this id in the program.
    pub fn table_of(&self, id: TableId) -> Option<(u32, &TableSchema)> {
        self.tables
            .iter()
            .find(|(_, table)| table.id == id)
            .map(|(id, table)| (*id, table))
    }

    /// Returns the P4Info id and the schema of the digest with this name. In the program, every call of `digest()` has
    /// an id of its own; all calls of one digest share the name, which P4Info also uses.
    pub fn digest_named(&self, name: &str) -> Option<(u32, &DigestSchema)> {
        self.digests
            .iter()
            .find(|(_, digest)| digest.name == name)
            .map(|(id, digest)| (*id, digest))
    }
}

/// Returns the error for an id that P4Info does not have. Id 0 is never valid where an object must be named.
pub(crate) fn unknown(kind: &str, id: u32) -> UpdateError {
    UpdateError::invalid(match id {
        0 => format!("the id of the {kind} is 0 or not set"),
        _ => format!("P4Info has no {kind} with id {id:#010x}"),
    })
}
