// SPDX-License-Identifier: Apache-2.0
//! Translates the headers that packets carry between pipeline and controller (P4Runtime specification, "Packet I/O").
//!
//! Clients see named metadata fields. The pipeline sees a header in front of the packet. A packet-out must have every
//! field exactly once. A packet-in has every field exactly once.

use std::sync::Arc;

use sluice_program::Program;
use sluice_program::layout::{Field, HeaderType};

use super::error::SchemaError;
use crate::bytestring::{self, BitWriter};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::config::v1 as config;
use crate::proto::v1::PacketMetadata;
use crate::schema::names::{self, InUse, Names, Types};

/// One metadata field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderField {
    /// Id in P4Info.
    pub id: u32,
    /// Name, for error messages.
    pub name: String,
    /// Width in bits.
    pub width: usize,
    /// Position of the field's first bit in the header.
    offset: usize,
    /// The strings that clients see instead of numbers, if the type has strings.
    names: Option<Arc<Names>>,
}

impl HeaderField {
    /// Returns the strings that clients see instead of numbers, if the type has strings.
    pub(super) fn names(&self) -> Option<&Arc<Names>> {
        self.names.as_ref()
    }
}

/// A metadata field that is a number of at most 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NumberField {
    /// Id in P4Info. Not 0.
    pub(crate) id: u32,
    /// Width in bits.
    pub(crate) width: u32,
    /// Position of the field's first bit in the header.
    offset: usize,
}

impl NumberField {
    /// Returns the field's value in a packet. Returns 0 if the packet is shorter than its header.
    pub(crate) fn read(&self, packet: &[u8]) -> u64 {
        let end = self.offset + self.width as usize;
        let octets = packet.get(self.offset / 8..end.div_ceil(8));
        let value = octets
            .unwrap_or_default()
            .iter()
            .fold(0_u128, |value, octet| value << 8 | u128::from(*octet));
        let mask = u64::MAX >> (u64::BITS - self.width);
        (value >> (end.next_multiple_of(8) - end)) as u64 & mask
    }
}

/// A controller header: the fields in the order in which they follow each other in the packet, without gaps. p4c fills
/// the last byte with padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerHeader {
    fields: Vec<HeaderField>,
    bytes: usize,
    /// The same fields, if all of them are numbers.
    numbers: Option<Vec<NumberField>>,
}

impl ControllerHeader {
    /// Finds the program's header for a header of P4Info. If a field has a translated type, takes its width from the
    /// program.
    pub fn bind(
        metadata: &config::ControllerPacketMetadata,
        program: &Program,
        types: &Types,
        in_use: &InUse,
    ) -> Result<Self, SchemaError> {
        let name = metadata
            .preamble
            .as_ref()
            .map_or("", |preamble| preamble.name.as_str());
        let mut offset = 0;
        let mut fields: Vec<HeaderField> = Vec::with_capacity(metadata.metadata.len());
        let layout = layout(metadata, program)?;
        for (index, field) in metadata.metadata.iter().enumerate() {
            let named = field.type_name.as_ref();
            let names = named.and_then(|named| types.get(&named.name));
            let elsewhere = names.and_then(|names| in_use.width(names));
            let width = match &layout {
                Some(widths) => widths[index],
                None => elsewhere
                    .or(usize::try_from(field.bitwidth).ok())
                    .unwrap_or(0),
            };
            if width == 0 && names.is_some() {
                let message = format!(
                    "{name}: field {:?} is a string for clients, and no header of the program gives its width",
                    field.name
                );
                return Err(SchemaError::Unsupported(message));
            }
            if width == 0 || width > 2048 {
                let message = format!(
                    "{name}: field {:?} has a width of {} bits",
                    field.name, field.bitwidth
                );
                return Err(SchemaError::Unsupported(message));
            }
            if fields.iter().any(|other| other.id == field.id) {
                let message = format!("{name}: two fields have id {}", field.id);
                return Err(SchemaError::Malformed(message));
            }
            fields.push(HeaderField {
                id: field.id,
                name: field.name.clone(),
                width,
                offset,
                names: names.cloned(),
            });
            offset += width;
        }
        Ok(Self {
            bytes: offset.div_ceil(8),
            numbers: fields.iter().map(number).collect(),
            fields,
        })
    }

    /// Returns the header's length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the header's fields.
    pub fn fields(&self) -> &[HeaderField] {
        &self.fields
    }

    /// Returns the header's fields if each of them is a number ([`NumberField`]).
    pub(crate) fn numbers(&self) -> Option<&[NumberField]> {
        self.numbers.as_deref()
    }

    /// Packs a packet-out's metadata into the header's bits.
    pub fn encode(&self, metadata: &[PacketMetadata]) -> UpdateResult<Vec<u8>> {
        if let Some(extra) = metadata
            .iter()
            .find(|m| self.fields.iter().all(|field| field.id != m.metadata_id))
        {
            let message = format!(
                "P4Info has no packet_out metadata field with id {}",
                extra.metadata_id
            );
            return Err(UpdateError::invalid(message));
        }
        let mut writer = BitWriter::default();
        for field in &self.fields {
            let mut values = metadata.iter().filter(|m| m.metadata_id == field.id);
            let (Some(value), None) = (values.next(), values.next()) else {
                let message = format!("metadata field {:?} must be given exactly once", field.name);
                return Err(UpdateError::invalid(message));
            };
            // A string without a number is refused with INVALID_ARGUMENT, because on the stream this is the only code
            // for metadata that do not fit P4Info.
            let is_known = |names: &Arc<Names>| names.knows(&value.value);
            if !field.names.as_ref().is_none_or(is_known) {
                let message = "this string is in no entry, and it is not a decimal number";
                return Err(UpdateError::invalid(message).of(&field.name));
            }
            let value = names::decode(field.names.as_ref(), &value.value, field.width)
                .map_err(|error| UpdateError::invalid(error.message).of(&field.name))?;
            writer.put(&value, field.width);
        }
        Ok(writer.finish())
    }

    /// Unpacks a packet-in's metadata. Returns `None` if the packet is shorter than the header.
    pub fn decode(&self, packet: &[u8]) -> Option<Vec<PacketMetadata>> {
        let value = |field: &HeaderField| {
            let value = bytestring::extract(packet, field.offset, field.width)?;
            Some(PacketMetadata {
                metadata_id: field.id,
                value: names::encode(field.names.as_ref(), &value),
            })
        };
        self.fields.iter().map(value).collect()
    }
}

/// Returns a field as a number, or `None` if it is wider than 64 bits or if clients see names.
fn number(field: &HeaderField) -> Option<NumberField> {
    let width = u32::try_from(field.width).ok()?;
    let is_number = (1..=u64::BITS).contains(&width) && field.names.is_none() && field.id != 0;
    is_number.then_some(NumberField {
        id: field.id,
        width,
        offset: field.offset,
    })
}

/// Returns the widths of the fields in the program's header type that has these fields. They replace widths that P4Info
/// leaves out. Returns `None` if the program has no such header type, because no packet then carries the header.
fn layout(
    metadata: &config::ControllerPacketMetadata,
    program: &Program,
) -> Result<Option<Vec<usize>>, SchemaError> {
    let fields = &metadata.metadata;
    if fields.iter().all(|field| field.type_name.is_none()) {
        return Ok(None);
    }
    let fits = |described: &config::controller_packet_metadata::Metadata, field: &Field| {
        let same_width = i32::from(field.slot.width) == described.bitwidth;
        described.name == field.name && (described.type_name.is_some() || same_width)
    };
    let widths = |candidate: &HeaderType| {
        let padding = |field: &&Field| !field.name.starts_with("_padding");
        let given: Vec<_> = candidate.fields.iter().filter(padding).collect();
        let same = given.len() == fields.len()
            && fields
                .iter()
                .zip(&given)
                .all(|(described, field)| fits(described, field));
        let widths = given.iter().map(|field| usize::from(field.slot.width));
        same.then(|| widths.collect::<Vec<_>>())
    };
    let name = metadata
        .preamble
        .as_ref()
        .map_or("", |preamble| preamble.name.as_str());
    let found = program.header_types.iter();
    let mut found: Vec<_> = found.filter_map(|ty| Some((ty, widths(ty)?))).collect();
    if found.iter().any(|(_, widths)| *widths != found[0].1) {
        found.retain(|(ty, _)| ty.name.contains(name));
    }
    match found.as_slice() {
        [] => Ok(None),
        [(_, widths), others @ ..] if others.iter().all(|(_, other)| other == widths) => {
            Ok(Some(widths.clone()))
        }
        _ => Err(SchemaError::Unsupported(format!(
            "{name}: several headers of the program have these fields, with different widths"
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a header of number fields, with ids from 1.
    pub(crate) fn header(widths: &[i32]) -> Result<ControllerHeader, SchemaError> {
        let field = |(index, width): (usize, &i32)| config::controller_packet_metadata::Metadata {
            id: index as u32 + 1,
            bitwidth: *width,
            ..Default::default()
        };
        let metadata = widths.iter().enumerate().map(field).collect();
        let metadata = config::ControllerPacketMetadata {
            metadata,
            ..Default::default()
        };
        let program =
            Program::from_json(include_bytes!("../../tests/server/programs/surface.json"));
        let (types, in_use) = (Types::new(), InUse::default());
        ControllerHeader::bind(&metadata, &program.unwrap(), &types, &in_use)
    }

    fn metadata(values: &[(u32, &[u8])]) -> Vec<PacketMetadata> {
        let metadata = |(id, value): &(u32, &[u8])| PacketMetadata {
            metadata_id: *id,
            value: value.to_vec(),
        };
        values.iter().map(metadata).collect()
    }

    #[test]
    fn fields_are_packed_in_the_order_of_p4info_whatever_the_order_of_the_client() {
        let header = header(&[9, 7]).unwrap();
        let bytes = header
            .encode(&metadata(&[(2, &[0x7f]), (1, &[1, 0xfe])]))
            .unwrap();
        assert_eq!(bytes, [0xff, 0x7f]);
        assert_eq!(
            header.decode(&bytes),
            Some(metadata(&[(1, &[1, 0xfe]), (2, &[0x7f])]))
        );
    }

    #[test]
    fn exactly_one_value_for_each_field() {
        let header = header(&[8, 8]).unwrap();
        for wrong in [
            metadata(&[(1, &[1])]),
            metadata(&[(1, &[1]), (2, &[1]), (2, &[1])]),
            metadata(&[(1, &[1]), (2, &[1]), (3, &[1])]),
            metadata(&[(1, &[1]), (2, &[1, 0])]),
            metadata(&[(1, &[1]), (2, &[])]),
        ] {
            assert_eq!(
                header.encode(&wrong).unwrap_err().code,
                tonic::Code::InvalidArgument
            );
        }
    }

    #[test]
    fn a_packet_shorter_than_its_header_is_none() {
        assert_eq!(header(&[16]).unwrap().decode(&[1]), None);
    }

    #[test]
    fn a_header_that_is_not_whole_bytes_ends_in_zero_bits() {
        let header = header(&[9, 9]).unwrap();
        assert_eq!(header.bytes(), 3);
        let values = metadata(&[(1, &[1, 0xff]), (2, &[1])]);
        let bytes = header.encode(&values).unwrap();
        assert_eq!(bytes, [0xff, 0x80, 0x40]);
        assert_eq!(header.decode(&bytes), Some(values));
    }

    #[test]
    fn headers_that_cannot_lie_in_a_packet_are_refused() {
        assert!(matches!(header(&[0]), Err(SchemaError::Unsupported(_))));
        assert!(matches!(header(&[-8]), Err(SchemaError::Unsupported(_))));
    }
}
