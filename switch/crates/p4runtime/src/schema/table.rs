// SPDX-License-Identifier: Apache-2.0
//! Tables and actions in the schema of clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_program::{ActionId, MatchKind, TableId};

use crate::error::{UpdateError, UpdateResult};
use crate::schema::names::Names;

/// Uses that a table may make of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In entries and as the default.
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
    /// The program matches it as ternary, which is how p4c expresses "optional".
    pub as_ternary: bool,
    /// Width in bits.
    pub width: usize,
    /// The field's type has another representation for clients.
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
    /// The program does not have it (p4c leaves it out of P4_14 programs). Clients must send it, and read back 0.
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
    /// For each action by its P4Info id: its id in the program (p4c may copy actions for each table) and its scope.
    pub actions: BTreeMap<u32, (ActionId, Scope)>,
    /// P4Info id of the action profile or selector that implements it.
    pub implementation: Option<u32>,
    /// It has a direct counter.
    pub direct_counter: bool,
    /// It has a direct meter, of this type.
    pub direct_meter: Option<super::MeterType>,
    /// Whether entries of the table may have idle timeouts.
    pub idle_timeout: bool,
    /// Clients cannot change its entries.
    pub is_const: bool,
    /// Clients cannot change its default action.
    pub const_default: bool,
}

impl TableSchema {
    /// Whether entries of the table have a priority.
    pub fn needs_priority(&self) -> bool {
        self.fields.iter().any(|field| field.kind.needs_priority())
    }

    /// Returns the program's id of one of the table's actions, if the action may be used in this scope.
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
            let message = format!("table {:?} does not allow this action {place}", self.name);
            return Err(UpdateError::permission_denied(message));
        }
        Ok(*action)
    }
}
