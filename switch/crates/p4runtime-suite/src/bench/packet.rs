// SPDX-License-Identifier: Apache-2.0
//! Builds packets that run through `program/suite.p4`, and reads the packets that come back.

use sluice_p4runtime::proto::v1::{PacketIn, PacketMetadata, PacketOut};

use crate::entity::number;
use crate::outcome::{Failure, Outcome};

/// Parts of the program that a packet can ask to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "named after tables and features of the program"
)]
pub enum Walk {
    Out = 0,
    Exact = 1,
    Lpm = 2,
    Ternary = 3,
    Range = 4,
    Optional = 5,
    Const = 6,
    Profile = 7,
    Selector = 8,
    Keyless = 9,
    Cells = 10,
    Learn = 11,
    Multicast = 12,
    Clone = 13,
    ValueSet = 14,
    Timeout = 15,
}

/// The frame to send, and the metadata of the packet-out.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Source address.
    pub src: u64,
    /// EtherType. The program parses the key fields only if it is 0x88b5.
    pub kind: u16,
    /// Key field.
    pub a: u32,
    /// Key field.
    pub b: u16,
    /// Key field of 12 bits.
    pub c: u16,
    /// Key field of 4 bits.
    pub d: u8,
    /// Key field.
    pub wide: u128,
    /// The packet-out's egress port.
    pub port: u16,
    /// The packet-out's index.
    pub index: u8,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            src: 0x0200_0000_0001,
            kind: 0x88b5,
            a: 0,
            b: 0,
            c: 0,
            d: 0,
            wide: 0,
            port: 0,
            index: 0,
        }
    }
}

impl Frame {
    /// Returns the frame's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 2];
        bytes.extend_from_slice(&self.src.to_be_bytes()[2..]);
        bytes.extend_from_slice(&self.kind.to_be_bytes());
        bytes.extend_from_slice(&self.a.to_be_bytes());
        bytes.extend_from_slice(&self.b.to_be_bytes());
        let cd = self.c << 4 | u16::from(self.d & 0xf);
        bytes.extend_from_slice(&cd.to_be_bytes());
        bytes.extend_from_slice(&self.wide.to_be_bytes());
        bytes.extend_from_slice(b"what comes behind the headers");
        bytes
    }

    /// Builds the packet-out.
    pub fn out(&self, walk: Walk) -> PacketOut {
        let field = |(index, value): (usize, u128)| PacketMetadata {
            metadata_id: index as u32 + 1,
            value: number(value),
        };
        let values = [self.port.into(), walk as u128, self.index.into()];
        PacketOut {
            payload: self.bytes().into(),
            metadata: values.into_iter().enumerate().map(field).collect(),
        }
    }
}

/// A packet that came back as a packet-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedPacket {
    /// Port on which the packet arrived.
    pub ingress_port: u128,
    /// Value set by the table's action; 0 for a miss.
    pub mark: u128,
    /// The replica's instance.
    pub instance: u128,
    /// The meter's colour.
    pub color: u128,
    /// Whether the packet is a clone.
    pub is_clone: bool,
    /// The frame.
    pub payload: Vec<u8>,
}

impl ReturnedPacket {
    /// Reads a packet-in; fails if a metadata field is missing.
    pub(super) fn read(packet: &PacketIn) -> Outcome<Self> {
        let field = |id: u32| -> Outcome<u128> {
            let found = packet.metadata.iter().find(|field| field.metadata_id == id);
            let missing = || Failure::Failed(format!("packet-in without metadata field {id}"));
            let value = &found.ok_or_else(missing)?.value;
            Ok(value
                .iter()
                .fold(0, |number: u128, byte| number << 8 | u128::from(*byte)))
        };
        Ok(Self {
            ingress_port: field(1)?,
            mark: field(2)?,
            instance: field(3)?,
            color: field(4)?,
            is_clone: field(5)? == 1,
            payload: packet.payload.to_vec(),
        })
    }
}
