// SPDX-License-Identifier: Apache-2.0
//! Defines the layout of headers and fields in the packet header vector (PHV), and of action parameters.
//!
//! The PHV is one byte buffer. A packet header has the same bytes in the PHV as on the wire, so extracting and emitting
//! a header only copies bytes. Each field of a packet header is a run of bits. Metadata is never on the wire, so each
//! metadata field has whole bytes of its own. For a header with a `varbit` field, the PHV has room for the maximum
//! length of this field.

use crate::ids::{HeaderId, HeaderTypeId, UnionId};

/// Number of spare bytes after the last header, so that a wide load that starts in the last field stays inside the PHV.
pub const SLACK: usize = 32;

/// Maximum width of a field in bits. Programs with wider fields are refused at load.
pub const MAX_FIELD_BITS: u32 = 1 << 15;

/// A run of bits in the PHV, most significant bit first. For a field of a stack element that is selected by an index at
/// run time, the slot is relative to the start of the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldSlot {
    /// Index of the byte that contains the first bit.
    pub byte: u32,
    /// Number of bits in that byte before the first bit: 0 to 7.
    pub lead: u8,
    /// Whether the value is in two's complement.
    pub signed: bool,
    /// Width in bits.
    pub width: u16,
}

impl FieldSlot {
    /// Returns the slot with `width` bits that starts at bit `bit` of a buffer.
    pub fn at(bit: usize, width: u16, signed: bool) -> Self {
        let byte = u32::try_from(bit / 8).expect("PHV sizes are checked at load");
        Self {
            byte,
            lead: (bit % 8) as u8,
            signed,
            width,
        }
    }

    /// Returns the offset of the first bit from the start of the buffer.
    pub fn bit(&self) -> usize {
        self.byte as usize * 8 + self.lead as usize
    }

    /// Returns the number of bytes that the value alone needs: (width + 7) / 8.
    pub fn bytes(&self) -> usize {
        usize::from(self.width).div_ceil(8)
    }

    /// Returns the same slot, moved `bytes` bytes towards the end of the buffer.
    #[must_use]
    pub fn moved(&self, bytes: u32) -> Self {
        Self {
            byte: self.byte + bytes,
            ..*self
        }
    }

    /// Returns a part of this slot: `width` bits, unsigned, whose lowest bit is `low` bits above the lowest bit of this
    /// slot. Returns `None` if the part would not lie inside this slot.
    pub fn slice(&self, low: u32, width: u32) -> Option<Self> {
        let all = u32::from(self.width);
        if width == 0 || low.checked_add(width)? > all {
            return None;
        }
        let first = self.bit() + (all - low - width) as usize;
        Some(Self::at(first, width as u16, false))
    }

    /// Returns whether the slot consists of whole bytes.
    pub fn is_bytes(&self) -> bool {
        self.lead == 0 && self.width.is_multiple_of(8)
    }
}

/// Position of an action parameter in the parameter words of an entry. Each word has 64 bits. A wider parameter takes
/// several words, the most significant word first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamSlot {
    /// Index of the first word.
    pub word: u16,
    /// Width in bits.
    pub width: u16,
}

impl ParamSlot {
    /// Returns the number of 64-bit words that the parameter takes.
    pub fn words(&self) -> usize {
        usize::from(self.width).div_ceil(64).max(1)
    }
}

/// A field of a header type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field in its header.
    pub name: String,
    /// Position relative to the start of the header. A `varbit` field has its maximum width here.
    pub slot: FieldSlot,
    /// Whether the field is the header's `varbit` field.
    pub varbit: bool,
}

/// A header or struct type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderType {
    /// Name in the P4 program.
    pub name: String,
    /// Fields in order.
    pub fields: Vec<Field>,
    /// Number of bits on the wire, without the `varbit` field.
    pub fixed_bits: usize,
    /// Index of the `varbit` field, if there is one.
    pub varbit: Option<usize>,
    /// Bytes that an instance reserves in the PHV if it is a packet header.
    pub storage_bytes: usize,
}

impl HeaderType {
    /// Returns the field with this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// A header or metadata instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name in the JSON, e.g. `ipv4` or `standard_metadata`.
    pub name: String,
    /// Type of the instance.
    pub ty: HeaderTypeId,
    /// Whether the instance is metadata, which is always valid and never on the wire.
    pub metadata: bool,
    /// Offset of the first byte in the PHV.
    pub offset: u32,
    /// Number of bytes in the PHV.
    pub bytes: u32,
    /// Slots of metadata fields, relative to `offset`. Packet headers use the slots of their type instead.
    pub metadata_slots: Vec<FieldSlot>,
    /// The union of which the header is a member, if any.
    pub union: Option<UnionId>,
}

/// A header stack, whose elements have the same type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Name in the JSON.
    pub name: String,
    /// Type of every element.
    pub ty: HeaderTypeId,
    /// Elements, from first to last.
    pub headers: Vec<HeaderId>,
}

/// A header union. At most one member is valid at a time.
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
    /// Elements, from first to last.
    pub unions: Vec<UnionId>,
}
