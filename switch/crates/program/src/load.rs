// SPDX-License-Identifier: Apache-2.0
//! Reads BMv2 JSON. Each submodule reads one part of a program. [`Loader`] holds the objects to which later parts
//! refer.

mod actions;
mod cursor;
mod expressions;
mod externs;
mod headers;
mod loader;
mod parsers;
mod pipelines;
mod priority;
mod references;
mod replaceable_hashes;
mod zero_width;

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::error::LoadError;
use crate::ids::*;
use crate::program::{CoreErrors, Program};
use cursor::{Cursor, Result};
use loader::Loader;

const MAJOR_VERSION: u32 = 2;
const MAX_MINOR_VERSION: u32 = 24;

/// Maximum nesting depth of JSON values.
const MAX_NESTING: usize = 800;

/// Upper limit (exclusive) for the numbers of errors. p4c numbers errors from 0.
const MAX_ERROR: u32 = 1 << 16;

impl Program {
    /// Loads a program from p4c's BMv2 JSON.
    ///
    /// # Errors
    /// Names the malformed or unsupported construct. Includes its location in the JSON and, if p4c recorded one, in the
    /// P4 source.
    pub fn from_json(json: &[u8]) -> std::result::Result<Self, LoadError> {
        let mut value = parse(json).map_err(|what| LoadError::new(what, String::new(), None))?;
        zero_width::remove(&mut value);
        let mut program = load(&Cursor::root(&value))?;
        priority::note(&mut program);
        replaceable_hashes::note(&mut program);
        Ok(program)
    }
}

/// Reads all parts of a program.
fn load(root: &Cursor<'_>) -> Result<Program> {
    check_version(root)?;
    refuse_architectures(root)?;

    let headers = headers::load(root)?;
    let externs = externs::load(root, &headers)?;
    let loader = Loader {
        counters: by_name(&externs.counters, |counter| &counter.name, CounterId::new),
        meters: by_name(&externs.meters, |meter| &meter.name, MeterId::new),
        registers: externs
            .registers
            .iter()
            .enumerate()
            .map(|(index, register)| {
                (
                    register.name.clone(),
                    (RegisterId::new(index), register.width),
                )
            })
            .collect(),
        calculations: by_name(&externs.calculations, |calc| &calc.name, CalculationId::new),
        digests: externs.digest_ids,
        field_lists: externs.field_list_ids,
        headers,
    };
    let errors = load_errors(root)?;
    let actions = loader.actions(root)?;
    let parsers = loader.parsers(root)?;
    let deparser = loader.deparser(root)?;
    let pipelines = loader.pipelines(root, &actions, externs.counters, externs.meters)?;
    let checksums = loader.checksums(root)?;
    let standard_metadata = loader.headers.standard_metadata(root)?;
    refuse_externs(root)?;

    Ok(Program {
        name: root
            .get("program")
            .map_or(Ok(""), |name| name.str())?
            .to_owned(),
        header_types: loader.headers.types,
        headers: loader.headers.headers,
        stacks: loader.headers.stacks,
        unions: loader.headers.unions,
        union_stacks: loader.headers.union_stacks,
        phv_bytes: loader.headers.phv_bytes,
        metadata_bytes: loader.headers.metadata_bytes,
        core_errors: core_errors(&errors),
        errors,
        parser: parsers.parser,
        states: parsers.states,
        value_sets: parsers.value_sets,
        deparser,
        actions: actions.actions,
        ingress: pipelines.ingress,
        egress: pipelines.egress,
        tables: pipelines.tables,
        conditionals: pipelines.conditionals,
        profiles: pipelines.profiles,
        counters: pipelines.counters,
        meters: pipelines.meters,
        registers: externs.registers,
        calculations: externs.calculations,
        checksums,
        digests: externs.digests,
        field_lists: externs.field_lists,
        standard_metadata,
    })
}

/// Refuses programs of architectures other than v1model. Does this first, because otherwise reading another part would
/// fail with a less clear error. Recognizes such programs by the types of their intrinsic metadata, or by the names of
/// their parsers. The names are needed because some versions of p4c leave out unused metadata.
fn refuse_architectures(root: &Cursor<'_>) -> Result<()> {
    for part in ["headers", "header_types"] {
        for header in root.list(part)? {
            let name = header.name()?;
            match name.get(..4) {
                Some("psa_") if name.contains("_metadata") => {
                    return Err(other_architecture(&header, "PSA", &name));
                }
                Some("pna_") if name.contains("_metadata") => {
                    return Err(other_architecture(&header, "PNA", &name));
                }
                _ => (),
            }
        }
    }
    for parser in root.list("parsers")? {
        match parser.name().as_deref() {
            Ok(name @ ("ingress_parser" | "egress_parser")) => {
                return Err(other_architecture(&parser, "PSA", name));
            }
            Ok(name @ "main_parser") => return Err(other_architecture(&parser, "PNA", name)),
            _ => (),
        }
    }
    Ok(())
}

fn other_architecture(place: &Cursor<'_>, architecture: &str, name: &str) -> LoadError {
    place.error(format!(
        "this is a {architecture} program ({name}): sluice-switch runs v1model programs, as p4c-bm2-ss compiles them"
    ))
}

/// Parses JSON with a nesting limit of its own. serde_json's limit of 128 levels is too low for a long expression. The
/// limit still bounds the stack depth of the parser.
fn parse(json: &[u8]) -> std::result::Result<Value, String> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(format!(
                "the JSON is nested more than {MAX_NESTING} levels deep"
            ));
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.disable_recursion_limit();
    let value = Value::deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| format!("not JSON: {error}"))
}

fn by_name<T, I>(
    objects: &[T],
    name: impl Fn(&T) -> &String,
    id: impl Fn(usize) -> I,
) -> HashMap<String, I> {
    objects
        .iter()
        .enumerate()
        .map(|(index, object)| (name(object).clone(), id(index)))
        .collect()
}

fn check_version(root: &Cursor<'_>) -> Result<()> {
    let Some(version) = root.get("__meta__").and_then(|meta| meta.get("version")) else {
        return Ok(());
    };
    let (major, minor) = (version.nth(0)?.u32()?, version.nth(1)?.u32()?);
    if major == MAJOR_VERSION && minor <= MAX_MINOR_VERSION {
        return Ok(());
    }
    Err(version.error(format!(
        "BMv2 JSON version {major}.{minor}: this switch reads {MAJOR_VERSION}.0 to \
         {MAJOR_VERSION}.{MAX_MINOR_VERSION}; compile with a p4c that emits one of these"
    )))
}

fn load_errors(root: &Cursor<'_>) -> Result<Vec<(String, u32)>> {
    root.list("errors")?
        .iter()
        .map(|error| {
            let (name, value) = (error.nth(0)?.str()?, error.nth(1)?);
            match value.u32()? {
                small if small < MAX_ERROR => Ok((name.to_owned(), small)),
                large => Err(value.unsupported(format!("an error with the value {large}"))),
            }
        })
        .collect()
}

/// Returns the numbers of the core library's errors in this program. An error that the program does not declare gets a
/// number that no declared error has. The program cannot refer to such an error, so any unused number is right.
fn core_errors(errors: &[(String, u32)]) -> CoreErrors {
    let mut unused = errors
        .iter()
        .map(|(_, value)| *value)
        .max()
        .map_or(0, |max| max + 1);
    let mut value = |name: &str| {
        errors.iter().find(|(known, _)| known == name).map_or_else(
            || {
                unused += 1;
                unused - 1
            },
            |(_, value)| *value,
        )
    };
    CoreErrors {
        no_error: value("NoError"),
        packet_too_short: value("PacketTooShort"),
        no_match: value("NoMatch"),
        stack_out_of_bounds: value("StackOutOfBounds"),
        header_too_short: value("HeaderTooShort"),
        parser_timeout: value("ParserTimeout"),
        parser_invalid_argument: value("ParserInvalidArgument"),
    }
}

/// Refuses programs with extern objects. v1model's own externs, such as counters, are in other JSON arrays, so they are
/// not refused.
fn refuse_externs(root: &Cursor<'_>) -> Result<()> {
    match root.list("extern_instances")?.first() {
        Some(instance) => {
            let ty = instance.get("type").map_or(Ok("?"), |ty| ty.str())?;
            Err(instance.unsupported(format!("an extern of type {ty}")))
        }
        None => Ok(()),
    }
}
