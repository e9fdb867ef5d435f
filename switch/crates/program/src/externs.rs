// SPDX-License-Identifier: Apache-2.0
//! Stateful and computing externs: counters, meters, registers, hashes, checksums, digests.

use crate::expr::Bool;
use crate::ids::{CalculationId, HeaderId, TableId};
use crate::layout::Slot;

/// A counter array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name, as in P4Info.
    pub name: String,
    /// Number of cells; 0 for a direct counter.
    pub size: usize,
    /// The table of a direct counter.
    pub table: Option<TableId>,
}

/// The unit of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Packets.
    Packets,
    /// Bytes of the packet as it arrived.
    Bytes,
}

/// A meter array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Name, as in P4Info.
    pub name: String,
    /// Its unit.
    pub unit: MeterUnit,
    /// Number of cells; 0 for a direct meter.
    pub size: usize,
    /// The table of a direct meter.
    pub table: Option<TableId>,
}

/// A register array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Name, as in P4Info.
    pub name: String,
    /// Number of cells.
    pub size: usize,
    /// Width of a cell in bits.
    pub width: u16,
}

/// The hash algorithms of v1model and of BMv2's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// CRC-16/ARC.
    Crc16,
    /// CRC-32 (IEEE 802.3).
    Crc32,
    /// CRC-16/CCITT-FALSE.
    CrcCcitt,
    /// 8-bit CRC with BMv2's default parameters.
    Crc8Custom,
    /// As `Crc16` with configurable parameters.
    Crc16Custom,
    /// As `Crc32` with configurable parameters.
    Crc32Custom,
    /// 64-bit CRC with BMv2's default parameters.
    Crc64Custom,
    /// The Internet checksum, complemented.
    Csum16,
    /// Exclusive or of 16-bit words.
    Xor16,
    /// Exclusive or of 32-bit words.
    Xor32,
    /// The first 8 bytes.
    Identity,
    /// xxHash, 64 bits, seed 0.
    Xxh64,
    /// A random number, independent of the input: a selector then spreads packet by packet.
    Random,
}

impl HashAlgorithm {
    /// Whether the algorithm only promises to spread flows evenly: a CRC or xxHash. Exclusive or, sums and identity
    /// treat some flows alike (the two directions of a connection), which a program may rely on.
    pub fn only_spreads(self) -> bool {
        match self {
            Self::Crc8Custom
            | Self::Crc16
            | Self::Crc16Custom
            | Self::CrcCcitt
            | Self::Crc32
            | Self::Crc32Custom
            | Self::Crc64Custom
            | Self::Xxh64 => true,
            Self::Csum16 | Self::Xor16 | Self::Xor32 | Self::Identity | Self::Random => false,
        }
    }
}

/// An input of a calculation, most significant bit first, without padding in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CalculationInput {
    /// A field; skipped when its header is not valid.
    Field(HeaderId, Slot),
    /// A `varbit` field with its current length.
    Varbit(HeaderId),
    /// A constant of this number of bits, right-aligned in its bytes.
    Constant(Vec<u8>, u16),
    /// A whole header; skipped when not valid.
    Header(HeaderId),
    /// The bytes after the parsed headers.
    Payload,
}

/// A hash with its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calculation {
    /// Name in the JSON.
    pub name: String,
    /// The algorithm.
    pub algorithm: HashAlgorithm,
    /// Its input, in order.
    pub input: Vec<CalculationInput>,
    /// The value only selects a group's member, and the algorithm only spreads: any such hash may replace it.
    pub unseen: bool,
}

/// A checksum that is verified after parsing, updated before deparsing, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Name in the JSON.
    pub name: String,
    /// The header that holds the checksum.
    pub header: HeaderId,
    /// The checksum field.
    pub target: Slot,
    /// The calculation of its value.
    pub calculation: CalculationId,
    /// Condition under which it applies.
    pub condition: Option<Bool>,
    /// Verified after the parser.
    pub verify: bool,
    /// Updated before the deparser.
    pub update: bool,
}

/// A digest that `digest()` sends to the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Name, as in P4Info. p4c makes one list for each call of `digest()`, so several lists may share a name.
    pub name: String,
    /// Its fields in order: name and slot.
    pub fields: Vec<(String, Slot)>,
}

/// Fields that a cloned, resubmitted or recirculated packet keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldList {
    /// Name in the JSON.
    pub name: String,
    /// The id that the JSON uses.
    pub json_id: u32,
    /// The fields.
    pub fields: Vec<Slot>,
}

/// A parser value set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSet {
    /// Name, as in P4Info.
    pub name: String,
    /// Width of a value, without padding.
    pub width: u32,
    /// Declared number of members.
    pub max_size: usize,
    /// Widths of the components of the key that uses the set; empty if no key does.
    pub components: Vec<u16>,
}
