// SPDX-License-Identifier: Apache-2.0
//! Finds the type of port numbers in replicas and watch ports (P4Runtime specification, "Translation of Port Numbers").
//! These fields hold ports as the controller defines them, but P4Info does not give their type.
//!
//! So the type is taken from another place that holds a port, and whose type P4Info gives:
//!
//! 1. the type of a match field that is a port of `standard_metadata`;
//! 2. the type of an action's parameter that becomes `egress_spec`;
//! 3. the type of `ingress_port` or `egress_port` in a packet-in or packet-out header.
//!
//! Of these types, the first one that is a string for clients is used. If none of them is a string, ports are numbers.

use std::sync::Arc;

use sluice_program::action::LValue;
use sluice_program::control::KeySource;
use sluice_program::expr::Data;
use sluice_program::{Action, FieldSlot, Op, Program};

use super::Schema;
use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};
use crate::schema::names::{self, Names};

/// The type of ports in replicas and watch ports.
#[derive(Debug, Default)]
pub struct PortType(Option<(Arc<Names>, usize)>);

impl PortType {
    /// Finds the type. Order: tables, actions and controller headers must be bound first.
    pub(super) fn find(schema: &Schema, program: &Program) -> Self {
        let names = of_match_fields(schema, program)
            .or_else(|| of_parameters(schema, program))
            .or_else(|| of_headers(schema));
        let width = usize::from(program.standard_metadata.egress_spec.width);
        Self(names.map(|names| (names.clone(), width)))
    }

    /// Returns the strings that clients see, and the width of their numbers.
    pub(super) fn strings(&self) -> Option<(&Arc<Names>, usize)> {
        self.0.as_ref().map(|(names, width)| (names, *width))
    }

    /// Decodes a port. Some strings have a number only because a client wrote the string. Such a string does not name a
    /// port, and is refused.
    pub fn decode(&self, port: &[u8]) -> UpdateResult<u32> {
        let Some((names, width)) = self.strings() else {
            return bytestring::to_u32(port);
        };
        if !names.fixes(port) {
            let text = String::from_utf8_lossy(port);
            return Err(UpdateError::invalid(format!(
                "{text:?} is not a port: write a decimal number, or map the string by @p4runtime_translation_mappings"
            )));
        }
        bytestring::to_u32(&names::decode(Some(names), port, width)?)
    }

    /// Encodes a port.
    pub fn encode(&self, port: u32) -> Vec<u8> {
        let names = self.strings().map(|(names, _)| names);
        names::encode(names, &port.to_be_bytes())
    }
}

fn of_match_fields<'s>(schema: &'s Schema, program: &Program) -> Option<&'s Arc<Names>> {
    let metadata = &program.standard_metadata;
    let ports = [
        metadata.ingress_port,
        metadata.egress_spec,
        metadata.egress_port,
    ];
    schema.tables.values().find_map(|table| {
        let keys = &program.table(table.id).key;
        let mut fields = table.fields.iter().zip(keys);
        fields.find_map(|(field, key)| match key.source {
            KeySource::Metadata(slot) if ports.contains(&slot) => field.names.as_ref(),
            _ => None,
        })
    })
}

fn of_parameters<'s>(schema: &'s Schema, program: &Program) -> Option<&'s Arc<Names>> {
    let egress_spec = program.standard_metadata.egress_spec;
    let bound = |table: &'s super::TableSchema| table.actions.iter();
    schema
        .tables
        .values()
        .flat_map(bound)
        .find_map(|(id, (program_id, _))| {
            let action = program.action(*program_id);
            let params = &schema.actions.get(id)?.params;
            let mut strings = params.iter().filter(|param| param.names.is_some());
            strings
                .find(|param| becomes(action, &param.name, egress_spec))
                .and_then(|param| param.names.as_ref())
        })
}

/// Returns whether an action copies this parameter to a field unchanged. For a cast between types of one width, p4c
/// adds a mask, but the loader of the program has already removed it.
fn becomes(action: &Action, param: &str, field: FieldSlot) -> bool {
    let Some(param) = action.params.iter().find(|other| other.name == param) else {
        return false;
    };
    action.ops.iter().any(|op| match op {
        Op::Assign(LValue::Field(target), value) => {
            *target == field && value.data == Data::Param(param.slot)
        }
        _ => false,
    })
}

fn of_headers(schema: &Schema) -> Option<&Arc<Names>> {
    let headers = schema.packet_in.iter().chain(&schema.packet_out);
    let mut fields = headers.flat_map(|header| header.fields());
    fields.find_map(|field| match field.name.as_str() {
        "ingress_port" | "egress_port" => field.names(),
        _ => None,
    })
}
