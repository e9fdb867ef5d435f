// SPDX-License-Identifier: Apache-2.0
//! Plans how to translate a table entry from P4Runtime's form to the tables' form in one step. A plan says where each
//! field and each parameter is in the tables' form.
//!
//! A table has a plan if three things hold: it has only exact and longest-prefix fields, its entries name actions
//! directly (no action profile), and it has no direct meter.

use std::ops::Range;

use sluice_program::{ActionId, MatchKind, Program, TableId};

use super::objects::Schema;
use super::table::{Scope, TableSchema};

/// Largest width in bits of a field that the tables store in a FIB.
const MAX_LPM_WIDTH: usize = 128;

/// A key field.
#[derive(Debug, Clone, Copy)]
pub struct FieldPlan {
    /// Id in P4Info.
    pub id: u32,
    /// Width in bits.
    pub width: usize,
    /// Offset of the field's first byte in the key.
    pub offset: usize,
    /// Whether the field is a longest-prefix field, which may be omitted.
    pub is_lpm: bool,
}

impl FieldPlan {
    /// Returns the range of the field's bytes in the key.
    pub fn place(&self) -> Range<usize> {
        self.offset..self.offset + self.width.div_ceil(8)
    }
}

/// A parameter of up to 64 bits.
#[derive(Debug, Clone, Copy)]
pub struct ParamPlan {
    /// Id in P4Info.
    pub id: u32,
    /// Width in bits.
    pub width: usize,
    /// Index of the parameter's word among the words of the action.
    pub word: usize,
}

/// The plan of an action.
#[derive(Debug)]
pub struct ActionPlan {
    /// Id in P4Info.
    pub id: u32,
    /// The table's own copy of the action.
    pub action: ActionId,
    /// Parameters.
    pub params: Vec<ParamPlan>,
    /// Number of words of all parameters.
    pub words: usize,
}

/// The plan of a table.
#[derive(Debug)]
pub struct TablePlan {
    /// Id in P4Info.
    pub id: u32,
    /// Id in the program.
    pub table: TableId,
    /// Fields of the key, at most 64.
    pub fields: Vec<FieldPlan>,
    /// Length of a key in bytes.
    pub key_bytes: usize,
    /// The actions whose parameters all have plans.
    pub actions: Vec<ActionPlan>,
    /// Whether entries of the table may have idle timeouts.
    pub idle_timeout: bool,
}

/// The plans of all tables that have one, by P4Info id.
#[derive(Debug, Default)]
pub struct Plans(Vec<TablePlan>);

impl Plans {
    /// Makes plans for all tables that clients can name.
    pub fn new(schema: &Schema, program: &Program) -> Self {
        let tables = schema.tables.iter();
        Self(
            tables
                .filter_map(|(id, table)| TablePlan::new(*id, table, schema, program))
                .collect(),
        )
    }

    /// Returns the plan of a table.
    pub fn of(&self, id: u32) -> Option<&TablePlan> {
        let found = self.0.binary_search_by_key(&id, |plan| plan.id);
        found.ok().map(|index| &self.0[index])
    }
}

impl TablePlan {
    fn new(id: u32, schema: &TableSchema, all: &Schema, program: &Program) -> Option<Self> {
        let table = program.table(schema.id);
        let usual = !schema.is_const
            && !table.const_entries
            && !schema.fields.is_empty()
            && schema.fields.len() <= 64
            && schema.fields.len() == table.key.len()
            && schema.implementation.is_none()
            && table.profile.is_none()
            && schema.direct_meter.is_none();
        if !usual {
            return None;
        }
        let mut fields = Vec::with_capacity(schema.fields.len());
        for (field, key) in schema.fields.iter().zip(&table.key) {
            let is_lpm = key.kind == MatchKind::Lpm;
            let known = field.kind == key.kind
                && field.names.is_none()
                && field.width == usize::from(key.width)
                && key.mask.is_none()
                && (key.kind == MatchKind::Exact || is_lpm && field.width <= MAX_LPM_WIDTH);
            if !known {
                return None;
            }
            fields.push(FieldPlan {
                id: field.id,
                width: field.width,
                offset: key.offset,
                is_lpm,
            });
        }
        let actions = schema.actions.iter();
        let actions = actions.filter_map(|(id, (action, scope))| {
            let action = program.action_for(table, *action)?;
            let allowed = *scope != Scope::DefaultOnly;
            allowed.then(|| ActionPlan::new(*id, action, all, program))?
        });
        Some(Self {
            id,
            table: schema.id,
            fields,
            key_bytes: table.key_bytes,
            actions: actions.collect(),
            idle_timeout: schema.idle_timeout && table.support_timeout,
        })
    }
}

impl ActionPlan {
    fn new(id: u32, action: ActionId, all: &Schema, program: &Program) -> Option<Self> {
        let schema = all.actions.get(&id)?;
        let declared = program.action(action);
        if schema.params.len() != declared.params.len() {
            return None;
        }
        let params = schema.params.iter().zip(&declared.params);
        let params = params.map(|(param, declared)| {
            let known = !param.unused
                && param.names.is_none()
                && param.width == usize::from(declared.slot.width)
                && (1..=64).contains(&param.width);
            known.then(|| ParamPlan {
                id: param.id,
                width: param.width,
                word: usize::from(declared.slot.word),
            })
        });
        Some(Self {
            id,
            action,
            params: params.collect::<Option<_>>()?,
            words: declared.param_words,
        })
    }
}
