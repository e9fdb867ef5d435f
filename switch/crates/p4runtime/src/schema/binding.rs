// SPDX-License-Identifier: Apache-2.0
//! Finds the program's object for each object of P4Info, one kind of objects after another.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_program::{ActionId, Key, MatchKind, Program, Table};

use super::{
    ActionSchema, ArraySchema, ControllerHeader, DigestSchema, MatchField, MeterType, ParamSchema,
    ProfileSchema, RegisterSchema, Schema, SchemaError, Scope, TableSchema, ValueSetSchema,
    annotations, port_search,
};
use crate::proto::config::v1 as config;
use crate::schema::names::{self, Names};
use config::p4_data_type_spec::TypeSpec;

type Result<T> = std::result::Result<T, SchemaError>;

fn absent(kind: &'static str, name: &str) -> SchemaError {
    SchemaError::Absent {
        kind,
        name: name.into(),
    }
}

fn different(kind: &'static str, name: &str, difference: String) -> SchemaError {
    SchemaError::Different {
        kind,
        name: name.into(),
        difference,
    }
}

/// Inserts an object under its P4Info id. The id must not be 0 or already in use.
fn insert<T>(map: &mut BTreeMap<u32, T>, id: u32, name: &str, object: T) -> Result<()> {
    if id == 0 {
        return Err(SchemaError::Malformed(format!("{name:?} has id 0")));
    }
    if map.insert(id, object).is_some() {
        return Err(SchemaError::Malformed(format!(
            "two objects have id {id:#010x}: {name:?}"
        )));
    }
    Ok(())
}

/// Returns an object's id and name.
fn preamble(preamble: &Option<config::Preamble>) -> Result<(u32, &str)> {
    match preamble {
        Some(preamble) => Ok((preamble.id, &preamble.name)),
        None => Err(SchemaError::Malformed("an object has no preamble".into())),
    }
}

impl Schema {
    /// Binds a P4Info to a program.
    pub fn bind(p4info: &config::P4Info, program: &Program) -> Result<Self> {
        let mut binder = Binder {
            p4info,
            program,
            types: names::types(p4info)?,
            schema: Schema::default(),
        };
        binder.actions()?;
        binder.tables()?;
        binder.profiles()?;
        binder.arrays()?;
        binder.digests()?;
        binder.value_sets()?;
        binder.controller_headers()?;
        binder.ports();
        binder.roles();
        if let Some(extern_) = p4info.externs.first() {
            let name = &extern_.extern_type_name;
            return Err(SchemaError::Unsupported(format!("extern type {name:?}")));
        }
        Ok(binder.schema)
    }
}

struct Binder<'a> {
    p4info: &'a config::P4Info,
    program: &'a Program,
    types: names::Types,
    schema: Schema,
}

impl Binder<'_> {
    /// Returns the strings of a type, and records that the type is in use.
    fn names(
        &mut self,
        what: &str,
        type_name: Option<&config::P4NamedType>,
        width: usize,
    ) -> Result<Option<Arc<Names>>> {
        let names = type_name
            .and_then(|named| self.types.get(&named.name))
            .cloned();
        if names.is_some() && width > names::MAX_WIDTH {
            let message = format!("{what}: a type of {width} bits cannot be a string for clients");
            return Err(SchemaError::Unsupported(message));
        }
        self.schema.names.add(names.as_ref(), width);
        Ok(names)
    }

    fn actions(&mut self) -> Result<()> {
        for action in &self.p4info.actions {
            let (id, name) = preamble(&action.preamble)?;
            let program_action = self.program.action_by_name(name);
            let mut schemas = Vec::with_capacity(action.params.len());
            for param in &action.params {
                let params = program_action.map(|id| &self.program.action(id).params);
                let program_param =
                    params.and_then(|params| params.iter().find(|p| p.name == param.name));
                let program_width = program_param.map_or(0, |param| usize::from(param.slot.width));
                let translated = param.type_name.is_some();
                let width = width(param.bitwidth, translated, program_width);
                schemas.push(ParamSchema {
                    id: param.id,
                    name: param.name.clone(),
                    width,
                    names: self.names(name, param.type_name.as_ref(), width)?,
                    unused: program_action.is_some() && program_param.is_none(),
                });
            }
            let schema = ActionSchema {
                name: name.into(),
                params: schemas,
            };
            insert(&mut self.schema.actions, id, name, schema)?;
        }
        Ok(())
    }

    /// Records an object that p4c has left out of the program.
    fn unused(&mut self, kind: &'static str, id: u32, name: &str) -> Result<()> {
        tracing::warn!(
            kind,
            name,
            "P4Info lists an object that the program does not use"
        );
        insert(
            &mut self.schema.unused,
            id,
            name,
            format!("{kind} {name:?}"),
        )
    }

    /// Returns whether a table that clients should see is missing in P4Info. If so, the P4Info belongs to another
    /// program. Tables that p4c itself creates may be missing: they have no key, or only constant entries.
    fn is_unlisted(&self, table: &Table) -> bool {
        let listed = |info: &config::Table| {
            let preamble = info.preamble.as_ref();
            preamble.is_some_and(|preamble| preamble.name == table.name)
        };
        !table.key.is_empty() && !table.const_entries && !self.p4info.tables.iter().any(listed)
    }

    fn tables(&mut self) -> Result<()> {
        for table in &self.p4info.tables {
            let (id, name) = preamble(&table.preamble)?;
            let Some(program_id) = self.program.table_by_name(name) else {
                if self
                    .program
                    .tables
                    .iter()
                    .any(|table| self.is_unlisted(table))
                {
                    return Err(absent("table", name));
                }
                self.unused("table", id, name)?;
                continue;
            };
            let program_table = self.program.table(program_id);
            let meter = |id: &u32| {
                let meters = self.p4info.direct_meters.iter();
                let mut of = meters.filter(|m| m.preamble.as_ref().is_some_and(|p| p.id == *id));
                of.next().map(|meter| {
                    meter
                        .spec
                        .as_ref()
                        .map_or(MeterType::TwoRateThreeColor, |spec| spec.r#type())
                })
            };
            let counter = |id: &u32| {
                let mut counters = self.p4info.direct_counters.iter();
                counters.any(|c| c.preamble.as_ref().is_some_and(|p| p.id == *id))
            };
            let mut fields = match_fields("table", name, &table.match_fields, &program_table.key)?;
            self.name_fields(name, &mut fields, &table.match_fields)?;
            let schema = TableSchema {
                id: program_id,
                name: name.into(),
                fields,
                actions: self.table_actions(name, table, program_table)?,
                implementation: (table.implementation_id != 0).then_some(table.implementation_id),
                direct_counter: table.direct_resource_ids.iter().any(counter),
                direct_meter: table.direct_resource_ids.iter().find_map(meter),
                idle_timeout: table.idle_timeout_behavior()
                    == config::table::IdleTimeoutBehavior::NotifyControl,
                is_const: table.is_const_table,
                const_default: table.const_default_action_id != 0,
            };
            // P4Info may lack a meter or profile that the program has, because p4c leaves them out of the P4Info of
            // P4_14 programs. Clients cannot use these.
            if schema.direct_meter.is_some() && program_table.meter.is_none() {
                let difference = "only P4Info has a direct meter".into();
                return Err(different("table", name, difference));
            }
            if schema.implementation.is_some() && program_table.profile.is_none() {
                let difference = "only P4Info has an action profile".into();
                return Err(different("table", name, difference));
            }
            insert(&mut self.schema.tables, id, name, schema)?;
        }
        Ok(())
    }

    /// Adds to each field the strings of its type, if the type is a string for clients.
    fn name_fields(
        &mut self,
        name: &str,
        fields: &mut [MatchField],
        described: &[config::MatchField],
    ) -> Result<()> {
        for field in fields {
            let described = described.iter().find(|other| other.id == field.id);
            let type_name = described.and_then(|field| field.type_name.as_ref());
            field.names = self.names(name, type_name, field.width)?;
        }
        Ok(())
    }

    /// Finds a table's actions by name. Searches only the table's own actions, because p4c may have made a copy of an
    /// action for each table.
    fn table_actions(
        &self,
        name: &str,
        table: &config::Table,
        program_table: &Table,
    ) -> Result<BTreeMap<u32, (ActionId, Scope)>> {
        let mut actions = BTreeMap::new();
        for reference in &table.action_refs {
            let Some(action) = self.schema.actions.get(&reference.id) else {
                let message = format!(
                    "table {name:?} refers to action {:#010x}, which P4Info does not list",
                    reference.id
                );
                return Err(SchemaError::Malformed(message));
            };
            let default = program_table.default.iter().map(|default| &default.action);
            let id = program_table
                .actions
                .iter()
                .chain(default)
                .find(|id| self.program.action(**id).name == action.name)
                .ok_or_else(|| absent("action", &action.name))?;
            self.check_params(action, *id)?;
            let scope = match reference.scope() {
                config::action_ref::Scope::TableAndDefault => Scope::TableAndDefault,
                config::action_ref::Scope::TableOnly => Scope::TableOnly,
                config::action_ref::Scope::DefaultOnly => Scope::DefaultOnly,
            };
            insert(&mut actions, reference.id, &action.name, (*id, scope))?;
        }
        Ok(actions)
    }

    fn check_params(&self, action: &ActionSchema, id: ActionId) -> Result<()> {
        let params = &self.program.action(id).params;
        let used = || action.params.iter().filter(|param| !param.unused);
        let same = used().zip(params).all(|(ours, theirs)| {
            ours.name == theirs.name && ours.width == usize::from(theirs.slot.width)
        });
        if !same || used().count() != params.len() {
            let difference = "parameters differ in number, name or width".into();
            return Err(different("action", &action.name, difference));
        }
        Ok(())
    }

    fn profiles(&mut self) -> Result<()> {
        for profile in &self.p4info.action_profiles {
            let (id, name) = preamble(&profile.preamble)?;
            let Some(program_id) = self.program.profile_by_name(name) else {
                self.unused("action profile", id, name)?;
                continue;
            };
            let table = profile.table_ids.iter().find(|id| {
                let table = self.schema.tables.get(id);
                table.is_some_and(|t| self.program.table(t.id).profile == Some(program_id))
            });
            let Some(&table) = table else {
                return Err(different("action profile", name, "no table uses it".into()));
            };
            if profile.with_selector != self.program.profile(program_id).selector.is_some() {
                let difference = "it is a selector in only one of P4Info and program".into();
                return Err(different("action profile", name, difference));
            }
            use config::action_profile::SelectorSizeSemantics as Semantics;
            let max_member_weight = match &profile.selector_size_semantics {
                Some(Semantics::SumOfMembers(members)) => Some(members.max_member_weight),
                _ => None,
            };
            let schema = ProfileSchema {
                id: program_id,
                name: name.into(),
                table,
                with_selector: profile.with_selector,
                max_group_size: u32::try_from(profile.max_group_size).unwrap_or(0),
                size_is_members: max_member_weight.is_some(),
                max_member_weight: u32::try_from(max_member_weight.unwrap_or(0)).unwrap_or(0),
                weights_disallowed: profile.weights_disallowed,
            };
            insert(&mut self.schema.profiles, id, name, schema)?;
        }
        for (id, table) in &self.schema.tables {
            if table
                .implementation
                .is_some_and(|p| !self.schema.profiles.contains_key(&p))
            {
                let message = format!(
                    "table {id:#010x} refers to an action profile that P4Info does not list"
                );
                return Err(SchemaError::Malformed(message));
            }
        }
        Ok(())
    }

    fn arrays(&mut self) -> Result<()> {
        for counter in &self.p4info.counters {
            let (id, name) = preamble(&counter.preamble)?;
            let program_id = self
                .program
                .counter_by_name(name)
                .ok_or_else(|| absent("counter", name))?;
            let size = self.program.counter(program_id).size;
            let schema = ArraySchema {
                id: program_id,
                name: name.into(),
                size,
            };
            insert(&mut self.schema.counters, id, name, schema)?;
        }
        for meter in &self.p4info.meters {
            let (id, name) = preamble(&meter.preamble)?;
            let program_id = self
                .program
                .meter_by_name(name)
                .ok_or_else(|| absent("meter", name))?;
            let size = self.program.meter(program_id).size;
            let kind = meter
                .spec
                .as_ref()
                .map_or(MeterType::TwoRateThreeColor, |spec| spec.r#type());
            let schema = ArraySchema {
                id: program_id,
                name: name.into(),
                size,
            };
            insert(&mut self.schema.meters, id, name, (schema, kind))?;
        }
        for register in &self.p4info.registers {
            let (id, name) = preamble(&register.preamble)?;
            let program_id = self
                .program
                .register_by_name(name)
                .ok_or_else(|| absent("register", name))?;
            let program_register = self.program.register(program_id);
            let schema = ArraySchema {
                id: program_id,
                name: name.into(),
                size: program_register.size,
            };
            let width = usize::from(program_register.width);
            let spec = register.type_spec.as_ref();
            let schema = RegisterSchema {
                array: schema,
                width,
                names: self.names(name, new_type(spec), width)?,
            };
            insert(&mut self.schema.registers, id, name, schema)?;
        }
        Ok(())
    }

    fn digests(&mut self) -> Result<()> {
        for digest in &self.p4info.digests {
            let (id, name) = preamble(&digest.preamble)?;
            let Some(program_id) = self.program.digest_by_name(name) else {
                self.unused("digest", id, name)?;
                continue;
            };
            let fields = &self.program.digest(program_id).fields;
            let spec = digest
                .type_spec
                .as_ref()
                .and_then(|spec| spec.type_spec.as_ref());
            let specs = self.member_types(digest.type_spec.as_ref());
            let mut members = Vec::with_capacity(fields.len());
            for (index, (_, slot)) in fields.iter().enumerate() {
                let width = usize::from(slot.width);
                let type_name = specs.get(index).copied().flatten();
                members.push((width, self.names(name, type_name, width)?));
            }
            let schema = DigestSchema {
                name: name.into(),
                members,
                is_struct: !matches!(spec, Some(TypeSpec::Bitstring(_))),
            };
            insert(&mut self.schema.digests, id, name, schema)?;
        }
        Ok(())
    }

    /// Returns the new types (P4's keyword `type`) of a struct's members, or of the type itself if it has no members.
    fn member_types<'s>(
        &self,
        spec: Option<&'s config::P4DataTypeSpec>,
    ) -> Vec<Option<&'s config::P4NamedType>>
    where
        Self: 's,
    {
        let info = self.p4info.type_info.as_ref();
        match spec.and_then(|spec| spec.type_spec.as_ref()) {
            Some(TypeSpec::Struct(named)) => {
                let found = info.and_then(|info| info.structs.get(&named.name));
                let members = found.iter().flat_map(|found| &found.members);
                members.map(|m| new_type(m.type_spec.as_ref())).collect()
            }
            Some(TypeSpec::Tuple(tuple)) => tuple
                .members
                .iter()
                .map(|spec| new_type(Some(spec)))
                .collect(),
            _ => vec![new_type(spec)],
        }
    }

    fn value_sets(&mut self) -> Result<()> {
        for set in &self.p4info.value_sets {
            let (id, name) = preamble(&set.preamble)?;
            let program_id = self
                .program
                .value_set_by_name(name)
                .ok_or_else(|| absent("value set", name))?;
            let fields = set
                .r#match
                .iter()
                .map(|field| match_field("value set", name, field));
            let mut fields = fields.collect::<Result<Vec<_>>>()?;
            let components = &self.program.value_set(program_id).components;
            for (field, program_width) in fields.iter_mut().zip(components) {
                let program_width = usize::from(*program_width);
                if field.width == 0 || field.translated && field.width > program_width {
                    field.width = program_width;
                }
            }
            self.name_fields(name, &mut fields, &set.r#match)?;
            if let Some(field) = fields.iter().find(|field| field.width == 0) {
                let message = format!("value set {name:?}: field {:?} has no width", field.name);
                return Err(SchemaError::Unsupported(message));
            }
            let schema = ValueSetSchema {
                id: program_id,
                name: name.into(),
                fields,
            };
            insert(&mut self.schema.value_sets, id, name, schema)?;
        }
        Ok(())
    }

    /// Finds the type of ports, and records that it is in use.
    fn ports(&mut self) {
        let ports = port_search::find(&self.schema, self.program);
        if let Some((names, width)) = ports.strings() {
            self.schema.names.add(Some(names), width);
        }
        self.schema.ports = ports;
    }

    fn roles(&mut self) {
        let info = self.p4info;
        let tables = info.tables.iter().map(|o| &o.preamble);
        let preambles = tables
            .chain(info.action_profiles.iter().map(|o| &o.preamble))
            .chain(info.counters.iter().map(|o| &o.preamble))
            .chain(info.meters.iter().map(|o| &o.preamble))
            .chain(info.registers.iter().map(|o| &o.preamble))
            .chain(info.value_sets.iter().map(|o| &o.preamble))
            .chain(info.digests.iter().map(|o| &o.preamble));
        for preamble in preambles.flatten() {
            let roles = annotations::roles(&preamble.annotations);
            if !roles.is_empty() {
                self.schema.roles.insert(preamble.id, roles);
            }
        }
    }

    fn controller_headers(&mut self) -> Result<()> {
        for metadata in &self.p4info.controller_packet_metadata {
            let (_, name) = preamble(&metadata.preamble)?;
            let header = Some(ControllerHeader::bind(
                metadata,
                self.program,
                &self.types,
                &self.schema.names,
            )?);
            match name {
                "packet_in" => self.schema.packet_in = header,
                "packet_out" => self.schema.packet_out = header,
                _ => {
                    let message = format!(
                        "controller header {name:?}; only packet_in and packet_out are known"
                    );
                    return Err(SchemaError::Unsupported(message));
                }
            }
        }
        Ok(())
    }
}

/// Returns the name of a data type, if it is a new type (P4's keyword `type`).
fn new_type(spec: Option<&config::P4DataTypeSpec>) -> Option<&config::P4NamedType> {
    match spec.and_then(|spec| spec.type_spec.as_ref()) {
        Some(TypeSpec::NewType(named)) => Some(named),
        _ => None,
    }
}

/// Returns the width of values in bits. This is the width in P4Info. If P4Info gives none (type `error`, or a string
/// for clients, see [`names`]), it is the program's width. If a translated type is wider in P4Info than in the program,
/// it is the program's width too, because larger values do not fit.
fn width(p4info: i32, translated: bool, program: usize) -> usize {
    match usize::try_from(p4info) {
        Ok(0) => program,
        Ok(width) if translated && program > 0 => width.min(program),
        Ok(width) => width,
        Err(_) => 0,
    }
}

fn match_field(kind: &'static str, name: &str, field: &config::MatchField) -> Result<MatchField> {
    use config::match_field::{Match, MatchType};
    let unsupported = || {
        SchemaError::Unsupported(format!(
            "{kind} {name:?}: the match type of field {:?}",
            field.name
        ))
    };
    let Some(Match::MatchType(match_type)) = field.r#match else {
        return Err(unsupported());
    };
    let match_kind = match MatchType::try_from(match_type).unwrap_or_default() {
        MatchType::Exact => MatchKind::Exact,
        MatchType::Lpm => MatchKind::Lpm,
        MatchType::Ternary => MatchKind::Ternary,
        MatchType::Range => MatchKind::Range,
        MatchType::Optional => MatchKind::Optional,
        MatchType::Unspecified => return Err(unsupported()),
    };
    Ok(MatchField {
        id: field.id,
        name: field.name.clone(),
        kind: match_kind,
        as_ternary: false,
        width: width(field.bitwidth, false, 0),
        translated: field.type_name.is_some(),
        names: None,
    })
}

/// Finds the program's key field for each match field of P4Info, by name, or by position if p4c has not kept the names.
/// Returns the fields in the program's order.
fn match_fields(
    kind: &'static str,
    name: &str,
    fields: &[config::MatchField],
    key: &[Key],
) -> Result<Vec<MatchField>> {
    let mut fields: Vec<_> = fields
        .iter()
        .map(|field| match_field(kind, name, field))
        .collect::<Result<_>>()?;
    if fields.len() != key.len() {
        let difference = format!(
            "P4Info has {} match fields, the program {} key fields",
            fields.len(),
            key.len()
        );
        return Err(different(kind, name, difference));
    }
    let position = |field: &MatchField| key.iter().position(|key| key.name == field.name);
    if fields.iter().all(|field| position(field).is_some()) {
        fields.sort_by_key(position);
    }
    for (field, key) in fields.iter_mut().zip(key) {
        let program_width = usize::from(key.width);
        if field.width == 0 || (field.translated && field.width > program_width) {
            field.width = program_width;
        }
        field.as_ternary = field.kind == MatchKind::Optional && key.kind == MatchKind::Ternary;
        if field.as_ternary && field.width == usize::from(key.width) {
            continue;
        }
        if field.kind != key.kind || field.width != usize::from(key.width) {
            let difference = format!(
                "match field {:?} is {:?} of {} bits in P4Info, but {:?} of {} bits in the program",
                field.name, field.kind, field.width, key.kind, key.width
            );
            return Err(different(kind, name, difference));
        }
    }
    Ok(fields)
}
