// SPDX-License-Identifier: Apache-2.0
//! Layout of headers and fields in the packet header vector (PHV).
//!
//! The PHV is one byte buffer. A packet header has the same bytes as on the wire, so that extracting and emitting it
//! are plain copies; each of its fields is a run of bits. Metadata is never on the wire, so each of its fields starts
//! at a byte boundary. A header with a `varbit` field reserves the field's maximum length.

use crate::ids::{HeaderId, HeaderTypeId, UnionId};

/// Bytes after the last header, so that a field can always be read with one wide load.
pub const SLACK: usize = 32;

/// The widest field that a program may have, in bits. Wider ones are refused at load.
pub const MAX_FIELD_BITS: u32 = 1 << 15;

/// A run of bits in the PHV, most significant bit first. For a field reached through a stack index, relative to the
/// start of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The byte holding the first bit.
    pub byte: u32,
    /// Bits of that byte before the first bit: 0 to 7.
    pub lead: u8,
    /// Whether the value is in two's complement.
    pub signed: bool,
    /// Width in bits.
    pub width: u16,
}

impl Slot {
    /// Returns the slot of `width` bits that starts `bit` bits into a buffer.
    pub fn at(bit: usize, width: u16, signed: bool) -> Self {
        let byte = u32::try_from(bit / 8).expect("PHV sizes are checked at load");
        Self {
            byte,
            lead: (bit % 8) as u8,
            signed,
            width,
        }
    }

    /// Returns the first bit, counted from the start of the buffer.
    pub fn bit(&self) -> usize {
        self.byte as usize * 8 + self.lead as usize
    }

    /// Returns the number of bytes of the value on its own: (width + 7) / 8.
    pub fn bytes(&self) -> usize {
        usize::from(self.width).div_ceil(8)
    }

    /// Returns the same slot in a header that starts `bytes` further on.
    #[must_use]
    pub fn moved(&self, bytes: u32) -> Self {
        Self {
            byte: self.byte + bytes,
            ..*self
        }
    }

    /// Returns the `width` bits that end `low` bits above the least significant one, as an unsigned slot. `None` if
    /// they do not lie inside.
    pub fn slice(&self, low: u32, width: u32) -> Option<Self> {
        let all = u32::from(self.width);
        if width == 0 || low.checked_add(width)? > all {
            return None;
        }
        let first = self.bit() + (all - low - width) as usize;
        Some(Self::at(first, width as u16, false))
    }

    /// Whether the slot consists of whole bytes.
    pub fn is_bytes(&self) -> bool {
        self.lead == 0 && self.width.is_multiple_of(8)
    }
}

/// A field of a header type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name inside the header.
    pub name: String,
    /// Bits relative to the start of the header. For a `varbit` field the width is the maximum.
    pub slot: Slot,
    /// Whether this is the header's `varbit` field.
    pub varbit: bool,
}

/// A header or struct type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderType {
    /// Name in the P4 program.
    pub name: String,
    /// Fields in order.
    pub fields: Vec<Field>,
    /// Bits on the wire without the `varbit` field.
    pub fixed_bits: usize,
    /// Index of the `varbit` field.
    pub varbit: Option<usize>,
    /// Bytes reserved in the PHV when an instance is a packet header.
    pub storage_bytes: usize,
}

impl HeaderType {
    /// Returns a field by its name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// A header or metadata instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name in the JSON, e.g. `ipv4` or `standard_metadata`.
    pub name: String,
    /// Its type.
    pub ty: HeaderTypeId,
    /// Metadata: always valid, never on the wire.
    pub metadata: bool,
    /// First byte in the PHV.
    pub offset: u32,
    /// Bytes in the PHV.
    pub bytes: u32,
    /// For metadata, its fields relative to `offset`; a packet header uses its type's.
    pub metadata_slots: Vec<Slot>,
    /// The union that it is a member of.
    pub union: Option<UnionId>,
}

/// A header stack: instances of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Name in the JSON.
    pub name: String,
    /// Type of every element.
    pub ty: HeaderTypeId,
    /// Elements, first to last.
    pub headers: Vec<HeaderId>,
}

/// A header union: at most one member is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// Name in the JSON.
    pub name: String,
    /// Members in declaration order.
    pub headers: Vec<HeaderId>,
}

/// A stack of header unions of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnionStack {
    /// Name in the JSON.
    pub name: String,
    /// Member names and types, in declaration order.
    pub members: Vec<(String, HeaderTypeId)>,
    /// Elements, first to last.
    pub unions: Vec<UnionId>,
}
