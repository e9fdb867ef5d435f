// SPDX-License-Identifier: Apache-2.0
//! Defines externs that store or compute: counters, meters, registers, hashes, checksums and digests.

use crate::expr::Bool;
use crate::ids::{CalculationId, HeaderId, TableId};
use crate::layout::FieldSlot;

/// A counter array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name, equal to the name in P4Info.
    pub name: String,
    /// Number of cells. 0 for a direct counter, which has a cell in each entry of its table.
    pub size: usize,
    /// Table to which a direct counter belongs. `None` for an indirect counter.
    pub table: Option<TableId>,
}

/// The unit of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Packets.
    Packets,
    /// Length of the packet in bytes, as it arrived.
    Bytes,
}

/// A meter array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Name, equal to the name in P4Info.
    pub name: String,
    /// Unit of the meter.
    pub unit: MeterUnit,
    /// Number of cells. 0 for a direct meter, which has a cell in each entry of its table.
    pub size: usize,
    /// Table to which a direct meter belongs. `None` for an indirect meter.
    pub table: Option<TableId>,
}

/// A register array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Name, equal to the name in P4Info.
    pub name: String,
    /// Number of cells.
    pub size: usize,
    /// Width of a cell in bits.
    pub width: u16,
}

/// Hash algorithm of v1model or of BMv2's JSON.
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
    /// Like `Crc16`, with configurable parameters.
    Crc16Custom,
    /// Like `Crc32`, with configurable parameters.
    Crc32Custom,
    /// 64-bit CRC with BMv2's default parameters.
    Crc64Custom,
    /// The Internet checksum, complemented.
    Csum16,
    /// XOR of the input's 16-bit words.
    Xor16,
    /// XOR of the input's 32-bit words.
    Xor32,
    /// The first 8 bytes of the input.
    Identity,
    /// xxHash with 64 bits and seed 0.
    Xxh64,
    /// A random number, independent of the input. With this algorithm, a selector balances packets instead of flows.
    Random,
}

impl HashAlgorithm {
    /// Returns whether an even spread of flows is all that a program can rely on, as with a CRC or xxHash. XOR, sums
    /// and identity give more: certain flows always get equal values, for example both directions of a connection.
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

/// An input of a calculation. Inputs are concatenated without padding, most significant bit first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CalculationInput {
    /// A field; skipped if its header is not valid.
    Field(HeaderId, FieldSlot),
    /// A `varbit` field, with its current length.
    Varbit(HeaderId),
    /// A constant of this number of bits. The value is in the lowest bits of these bytes.
    Constant(Vec<u8>, u16),
    /// A whole header; skipped if it is not valid.
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
    /// Inputs of the algorithm, in order.
    pub input: Vec<CalculationInput>,
    /// Whether another hash that spreads evenly may replace the algorithm. True if the program uses the value only to
    /// select a member of a group, and the algorithm [only spreads](HashAlgorithm::only_spreads).
    pub replaceable: bool,
}

/// A checksum that is verified after parsing, updated before deparsing, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Name in the JSON.
    pub name: String,
    /// The header that contains the checksum field.
    pub header: HeaderId,
    /// The checksum field.
    pub target: FieldSlot,
    /// The calculation that yields the checksum's value.
    pub calculation: CalculationId,
    /// Condition under which the checksum is verified and updated. `None` if the checksum is always verified and
    /// updated.
    pub condition: Option<Bool>,
    /// Whether the checksum is verified after the parser.
    pub verify: bool,
    /// Whether the checksum is updated before the deparser.
    pub update: bool,
}

/// A digest that `digest()` sends to the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Name, equal to the name in P4Info. p4c makes a digest for each call of `digest()`, so several digests may have
    /// the same name.
    pub name: String,
    /// Fields in order, each with name and slot.
    pub fields: Vec<(String, FieldSlot)>,
}

/// Fields that a cloned, resubmitted or recirculated packet keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldList {
    /// Name in the JSON.
    pub name: String,
    /// The id that the JSON uses.
    pub json_id: u32,
    /// The fields.
    pub fields: Vec<FieldSlot>,
}

/// A parser value set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSet {
    /// Name, equal to the name in P4Info.
    pub name: String,
    /// Width of a value in bits, without padding.
    pub width: u32,
    /// Declared number of members.
    pub max_size: usize,
    /// Widths in bits of the components of a member: those of the `select` key with which the set is compared. Empty
    /// if no `select` uses the set.
    pub components: Vec<u16>,
}
