// SPDX-License-Identifier: Apache-2.0
//! Describes tables and actions as clients see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_program::{ActionId, MatchKind, TableId};

use crate::error::{UpdateError, UpdateResult};
use crate::proto::config::v1 as config;
use crate::schema::names::Names;

/// A meter's type, as P4Info defines it.
pub(crate) type MeterType = config::meter_spec::Type;

/// Purposes for which a table may use an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In entries and as the default action.
    TableAndDefault,
    /// In entries only.
    TableOnly,
    /// Only as the default action.
    DefaultOnly,
}

/// A key field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchField {
    /// Id in P4Info.
    pub id: u32,
    /// Name, for error messages.
    pub name: String,
    /// Match kind.
    pub kind: MatchKind,
    /// Whether the program matches the field as ternary. p4c expresses "optional" in this way.
    pub as_ternary: bool,
    /// Width in bits.
    pub width: usize,
    /// Whether clients see the field's values in another form than the program: as strings, or with another width.
    pub translated: bool,
    /// The strings that clients see instead of numbers.
    pub names: Option<Arc<Names>>,
}

/// An action's parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamSchema {
    /// Id in P4Info.
    pub id: u32,
    /// Name, for error messages.
    pub name: String,
    /// Width in bits.
    pub width: usize,
    /// The strings that clients see instead of numbers.
    pub names: Option<Arc<Names>>,
    /// Whether the program lacks the parameter. p4c leaves parameters out of P4_14 programs, but not out of P4Info.
    /// Clients must send such a parameter, and a read returns 0 for it.
    pub unused: bool,
}

/// An action, independent of the table that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionSchema {
    /// Name, for error messages.
    pub name: String,
    /// Parameters in the program's order.
    pub params: Vec<ParamSchema>,
}

/// A table.
#[derive(Debug)]
pub struct TableSchema {
    /// Id in the program.
    pub id: TableId,
    /// Name, for error messages.
    pub name: String,
    /// Key fields in the program's order.
    pub fields: Vec<MatchField>,
    /// Id in the program and scope of each action, by P4Info id. p4c may copy actions for each table.
    pub actions: BTreeMap<u32, (ActionId, Scope)>,
    /// P4Info id of the action profile or selector that implements the table.
    pub implementation: Option<u32>,
    /// Whether the table has a direct counter.
    pub direct_counter: bool,
    /// Type of the direct meter, if the table has one.
    pub direct_meter: Option<MeterType>,
    /// Whether entries of the table may have idle timeouts.
    pub idle_timeout: bool,
    /// Whether clients cannot change the table's entries.
    pub is_const: bool,
    /// Whether clients cannot change the table's default action.
    pub const_default: bool,
}

impl TableSchema {
    /// Returns whether entries of the table have a priority.
    pub fn needs_priority(&self) -> bool {
        self.fields.iter().any(|field| field.kind.needs_priority())
    }

    /// Returns the id in the program of one of the table's actions. Fails if the action may not be used in this
    /// scope.
    pub fn action(&self, id: u32, as_default: bool) -> UpdateResult<ActionId> {
        let Some((action, scope)) = self.actions.get(&id) else {
            let message = format!("table {:?} has no action with id {id:#010x}", self.name);
            return Err(UpdateError::invalid(message));
        };
        let allowed = match scope {
            Scope::TableAndDefault => true,
            Scope::TableOnly => !as_default,
            Scope::DefaultOnly => as_default,
        };
        if !allowed {
            let place = if as_default {
                "as the default"
            } else {
                "in entries"
            };
            let message = format!(
                "table {:?} does not permit action {id:#010x} {place}",
                self.name
            );
            return Err(UpdateError::permission_denied(message));
        }
        Ok(*action)
    }
}
