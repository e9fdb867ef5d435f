// SPDX-License-Identifier: Apache-2.0
//! Reads header types, instances, stacks and unions, and lays out the PHV.
//!
//! Metadata comes first in the PHV, so that one fill resets all metadata between passes.

use std::collections::HashMap;

use super::cursor::{Cursor, Result};
use crate::ids::*;
use crate::layout::{Field, FieldSlot, Header, HeaderType, SLACK, Stack, Union, UnionStack};
use crate::program::StandardMetadata;

/// Maximum size of the PHV in bytes. A program that needs more is refused. Usual programs need a few kilobytes.
const MAX_PHV_BYTES: usize = 1 << 20;

/// Maximum width in bits of a field that the architecture reads or sets. The widest such field of v1model has 48 bits.
const MAX_STANDARD_BITS: u16 = 64;

#[derive(Default)]
pub(super) struct Headers {
    pub(super) types: Vec<HeaderType>,
    pub(super) headers: Vec<Header>,
    pub(super) stacks: Vec<Stack>,
    pub(super) unions: Vec<Union>,
    pub(super) union_stacks: Vec<UnionStack>,
    pub(super) phv_bytes: usize,
    pub(super) metadata_bytes: usize,
    pub(super) header_names: HashMap<String, HeaderId>,
    pub(super) stack_names: HashMap<String, StackId>,
    pub(super) union_names: HashMap<String, UnionId>,
    pub(super) union_stack_names: HashMap<String, UnionStackId>,
}

pub(super) fn load(root: &Cursor<'_>) -> Result<Headers> {
    let mut headers = Headers::default();
    let type_names = headers.load_types(root)?;
    let header_ids = headers.load_instances(root, &type_names)?;
    headers.lay_out(root)?;
    headers.load_stacks(root, &type_names, &header_ids)?;
    let union_types = load_union_types(root, &type_names)?;
    let union_ids = headers.load_unions(root, &header_ids)?;
    headers.load_union_stacks(root, &union_types, &union_ids)?;
    Ok(headers)
}

type TypeNames<'a> = HashMap<&'a str, HeaderTypeId>;
type UnionTypes<'a> = HashMap<&'a str, Vec<(String, HeaderTypeId)>>;

impl Headers {
    fn load_types<'a>(&mut self, root: &Cursor<'a>) -> Result<TypeNames<'a>> {
        let mut names = HashMap::new();
        for json in root.at("header_types")?.items()? {
            names.insert(json.at("name")?.str()?, HeaderTypeId::new(self.types.len()));
            self.types.push(load_type(&json)?);
        }
        Ok(names)
    }

    fn load_instances(
        &mut self,
        root: &Cursor<'_>,
        types: &TypeNames<'_>,
    ) -> Result<HashMap<u32, HeaderId>> {
        let mut ids = HashMap::new();
        for json in root.at("headers")?.items()? {
            let ty = find_type(&json.at("header_type")?, types)?;
            let id = HeaderId::new(self.headers.len());
            let name = json.name()?;
            if self.header_names.insert(name.clone(), id).is_some() {
                return Err(json.error(format!("there are two headers called {name}")));
            }
            ids.insert(json.at("id")?.u32()?, id);
            let metadata = json.flag("metadata")?;
            self.headers.push(Header {
                name,
                ty,
                metadata,
                offset: 0,
                bytes: 0,
                metadata_slots: Vec::new(),
                union: None,
            });
        }
        Ok(ids)
    }

    /// Assigns a position in the PHV to each instance. Metadata comes first, then packet headers.
    fn lay_out(&mut self, root: &Cursor<'_>) -> Result<()> {
        let mut offset = 0usize;
        for metadata in [true, false] {
            for header in self
                .headers
                .iter_mut()
                .filter(|header| header.metadata == metadata)
            {
                let ty = &self.types[header.ty.index()];
                header.offset = offset as u32;
                if metadata {
                    let mut byte = 0;
                    for field in &ty.fields {
                        let slot = FieldSlot::at(byte * 8, field.slot.width, field.slot.signed);
                        byte += slot.bytes();
                        // Metadata fields are right-aligned in whole bytes, so the unused bits come first.
                        let unused = slot.bytes() * 8 - usize::from(slot.width);
                        header.metadata_slots.push(FieldSlot::at(
                            slot.bit() + unused,
                            slot.width,
                            slot.signed,
                        ));
                    }
                    header.bytes = byte as u32;
                } else {
                    header.bytes = ty.storage_bytes as u32;
                }
                offset += header.bytes as usize;
                if offset > MAX_PHV_BYTES {
                    return Err(root.unsupported("a program whose headers exceed 1 MiB"));
                }
            }
            if metadata {
                self.metadata_bytes = offset;
            }
        }
        self.phv_bytes = offset + SLACK;
        Ok(())
    }

    fn load_stacks(
        &mut self,
        root: &Cursor<'_>,
        types: &TypeNames<'_>,
        ids: &HashMap<u32, HeaderId>,
    ) -> Result<()> {
        for json in root.list("header_stacks")? {
            let name = json.name()?;
            let ty = find_type(&json.at("header_type")?, types)?;
            let headers = members(&json.at("header_ids")?, ids, "header")?;
            if headers
                .iter()
                .any(|header| self.headers[header.index()].ty != ty)
            {
                return Err(json.error(format!("an element of stack {name} has another type")));
            }
            self.stack_names
                .insert(name.clone(), StackId::new(self.stacks.len()));
            self.stacks.push(Stack { name, ty, headers });
        }
        Ok(())
    }

    fn load_unions(
        &mut self,
        root: &Cursor<'_>,
        ids: &HashMap<u32, HeaderId>,
    ) -> Result<HashMap<u32, UnionId>> {
        let mut union_ids = HashMap::new();
        for json in root.list("header_unions")? {
            let name = json.name()?;
            let id = UnionId::new(self.unions.len());
            let headers = members(&json.at("header_ids")?, ids, "header")?;
            for header in &headers {
                self.headers[header.index()].union = Some(id);
            }
            union_ids.insert(json.at("id")?.u32()?, id);
            self.union_names.insert(name.clone(), id);
            self.unions.push(Union { name, headers });
        }
        Ok(union_ids)
    }

    fn load_union_stacks(
        &mut self,
        root: &Cursor<'_>,
        types: &UnionTypes<'_>,
        ids: &HashMap<u32, UnionId>,
    ) -> Result<()> {
        for json in root.list("header_union_stacks")? {
            let name = json.name()?;
            let ty = json.at("union_type")?;
            let ty_name = ty.str()?;
            let members_of = types
                .get(ty_name)
                .ok_or_else(|| ty.error(format!("there is no union type {ty_name}")))?;
            let unions = members(&json.at("header_union_ids")?, ids, "header union")?;
            if unions
                .iter()
                .any(|id| self.unions[id.index()].headers.len() != members_of.len())
            {
                return Err(json.error(format!("an element of {name} has another type")));
            }
            let id = UnionStackId::new(self.union_stacks.len());
            self.union_stack_names.insert(name.clone(), id);
            self.union_stacks.push(UnionStack {
                name,
                members: members_of.clone(),
                unions,
            });
        }
        Ok(())
    }

    /// Returns the absolute slot of a header's field.
    pub(super) fn slot(&self, header: HeaderId, field: usize) -> FieldSlot {
        let header = &self.headers[header.index()];
        let relative = match header.metadata_slots.get(field) {
            Some(slot) => *slot,
            None => self.types[header.ty.index()].fields[field].slot,
        };
        relative.moved(header.offset)
    }

    /// Finds the fields that the architecture uses. Looks up a field first by BMv2's name, which the JSON's
    /// `field_aliases` may map to another field. If there is none, looks up the name in `standard_metadata`.
    pub(super) fn standard_metadata(&self, root: &Cursor<'_>) -> Result<StandardMetadata> {
        let mut aliases = HashMap::new();
        for alias in root.list("field_aliases")? {
            let target = alias.nth(1)?;
            aliases.insert(
                alias.nth(0)?.str()?,
                (
                    target.nth(0)?.str()?.to_owned(),
                    target.nth(1)?.str()?.to_owned(),
                ),
            );
        }
        let find = |header: &str, field: &str| -> Result<Option<FieldSlot>> {
            let (header, field) = aliases
                .get(format!("{header}.{field}").as_str())
                .map_or((header, field), |(header, field)| {
                    (header.as_str(), field.as_str())
                });
            let Some(id) = self.header_names.get(header) else {
                return Ok(None);
            };
            let fields = &self.types[self.headers[id.index()].ty.index()].fields;
            let index = fields.iter().position(|candidate| candidate.name == field);
            let slot = index.map(|index| self.slot(*id, index));
            match slot.filter(|slot| slot.width > MAX_STANDARD_BITS) {
                Some(slot) => Err(root.error(format!(
                    "{header}.{field} of {} bits: the architecture sets at most {MAX_STANDARD_BITS}",
                    slot.width
                ))),
                None => Ok(slot),
            }
        };
        let standard = |field: &str| find("standard_metadata", field);
        let required = |field: &str| {
            standard(field)?.ok_or_else(|| {
                root.error(format!(
                    "standard_metadata.{field} is missing: is this a v1model program?"
                ))
            })
        };
        let either = |header: &str, field: &str| match find(header, field)? {
            Some(slot) => Ok(Some(slot)),
            None => standard(field),
        };
        Ok(StandardMetadata {
            ingress_port: required("ingress_port")?,
            egress_spec: required("egress_spec")?,
            egress_port: required("egress_port")?,
            packet_length: required("packet_length")?,
            instance_type: required("instance_type")?,
            parser_error: standard("parser_error")?,
            checksum_error: standard("checksum_error")?,
            mcast_grp: either("intrinsic_metadata", "mcast_grp")?,
            egress_rid: either("intrinsic_metadata", "egress_rid")?,
            priority: either("intrinsic_metadata", "priority")?,
            ingress_global_timestamp: either("intrinsic_metadata", "ingress_global_timestamp")?,
            egress_global_timestamp: either("intrinsic_metadata", "egress_global_timestamp")?,
            enq_timestamp: either("queueing_metadata", "enq_timestamp")?,
            enq_qdepth: either("queueing_metadata", "enq_qdepth")?,
            deq_timedelta: either("queueing_metadata", "deq_timedelta")?,
            deq_qdepth: either("queueing_metadata", "deq_qdepth")?,
            qid: either("queueing_metadata", "qid")?,
        })
    }
}

fn load_type(json: &Cursor<'_>) -> Result<HeaderType> {
    let name = json.name()?;
    let max_bytes = json.get("max_length").map(|max| max.usize()).transpose()?;
    let entries = json.at("fields")?.items()?;
    let is_varbit = |field: &Cursor<'_>| field.nth(1).is_ok_and(|width| width.str() == Ok("*"));
    let mut fixed_bits = 0;
    for field in entries.iter().filter(|field| !is_varbit(field)) {
        fixed_bits += usize::from(field.nth(1)?.width()?);
    }
    if json.get("length_exp").is_some() {
        return Err(json.unsupported("\"length_exp\" (a P4_14 length expression of a header type)"));
    }
    let mut fields = Vec::new();
    let mut bit = 0;
    let mut varbit = None;
    for (index, field) in entries.iter().enumerate() {
        let width = if is_varbit(field) {
            let max = max_bytes
                .ok_or_else(|| json.error(format!("{name} has a varbit but no \"max_length\"")))?;
            if varbit.replace(index).is_some() {
                return Err(field.error(format!("{name} has two varbit fields")));
            }
            let bits = (max * 8).saturating_sub(fixed_bits);
            u16::try_from(bits)
                .map_err(|_| field.unsupported(format!("a varbit of {bits} bits")))?
        } else {
            field.nth(1)?.width()?
        };
        let signed = field.nth(2).is_ok_and(|signed| signed.bool() == Ok(true));
        if signed && width < 2 {
            return Err(field.error("a signed field needs at least 2 bits"));
        }
        if field
            .nth(3)
            .is_ok_and(|saturating| saturating.bool() == Ok(true))
        {
            return Err(field.unsupported("a saturating field (P4_14)"));
        }
        let slot = FieldSlot::at(bit, width, signed);
        bit += usize::from(width);
        fields.push(Field {
            name: field.nth(0)?.str()?.to_owned(),
            slot,
            varbit: varbit == Some(index),
        });
    }
    if fixed_bits % 8 != 0 {
        return Err(json.error(format!(
            "{name} is {fixed_bits} bits long, not a whole of bytes"
        )));
    }
    Ok(HeaderType {
        name,
        fields,
        fixed_bits,
        varbit,
        storage_bytes: bit.div_ceil(8),
    })
}

fn load_union_types<'a>(root: &Cursor<'a>, types: &TypeNames<'_>) -> Result<UnionTypes<'a>> {
    let mut union_types = HashMap::new();
    for json in root.list("header_union_types")? {
        let mut members = Vec::new();
        for member in json.at("headers")?.items()? {
            let ty = find_type(&member.nth(1)?, types)?;
            members.push((member.nth(0)?.str()?.to_owned(), ty));
        }
        union_types.insert(json.at("name")?.str()?, members);
    }
    Ok(union_types)
}

fn find_type(name: &Cursor<'_>, types: &TypeNames<'_>) -> Result<HeaderTypeId> {
    let text = name.str()?;
    types
        .get(text)
        .copied()
        .ok_or_else(|| name.error(format!("there is no header type {text}")))
}

fn members<I: Copy>(json: &Cursor<'_>, ids: &HashMap<u32, I>, kind: &str) -> Result<Vec<I>> {
    let mut members = Vec::new();
    for item in json.items()? {
        let id = item.u32()?;
        members.push(
            *ids.get(&id)
                .ok_or_else(|| item.error(format!("there is no {kind} with id {id}")))?,
        );
    }
    if members.is_empty() {
        return Err(json.error(format!("at least one {kind} is expected")));
    }
    Ok(members)
}
