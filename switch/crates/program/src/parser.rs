// SPDX-License-Identifier: Apache-2.0
//! Parser states and the deparser.

use crate::action::Op;
use crate::error::SourceInfo;
use crate::expr::{Arith, Bool};
use crate::ids::{HeaderId, StackId, StateId, UnionStackId, ValueSetId};
use crate::layout::Slot;

/// A parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parser {
    /// Name in the JSON.
    pub name: String,
    /// Where it starts.
    pub start: Target,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Name in the P4 program.
    pub name: String,
    /// What it does, in order.
    pub ops: Vec<ParserOp>,
    /// What is compared: components, each padded to whole bytes.
    pub key: Vec<KeyPart>,
    /// Bytes of the key.
    pub key_bytes: usize,
    /// Tried in order.
    pub transitions: Vec<Transition>,
    /// Taken when none matches; without it that is `error.NoMatch` (P4_16 section 13.6).
    pub default: Option<Target>,
    /// Where it is in the P4 source.
    pub source: Option<SourceInfo>,
}

/// Where an extract puts the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtractTo {
    /// Into this header.
    Header(HeaderId),
    /// Into the next element of a stack.
    Stack(StackId),
    /// Into a member of the next element of a union stack.
    UnionStack(UnionStackId, usize),
}

/// One operation of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParserOp {
    /// Takes a header off the packet.
    Extract(ExtractTo),
    /// Takes a header whose `varbit` field has so many bits.
    ExtractVarbit(ExtractTo, Arith),
    /// Runs one action operation: an assignment, `setValid`, ...
    Run(Box<Op>),
    /// Assigns bits that lie ahead, starting so many bits after the current position.
    Lookahead {
        /// Written.
        target: Slot,
        /// First bit, from the current position.
        offset: u32,
        /// Number of bits.
        width: u32,
    },
    /// Skips so many bits.
    Advance(Arith),
    /// Ends parsing with the error code unless the condition holds.
    Verify(Bool, Arith),
}

/// A component of a transition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// A field.
    Field(Slot),
    /// A field of the last element of a stack.
    StackLast(StackId, Slot),
    /// A field of a member of the last element of a union stack.
    UnionStackLast(UnionStackId, usize, Slot),
    /// Bits ahead: first bit from the current position, number of bits.
    Lookahead(u32, u32),
}

/// A case of a `select`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What must match.
    pub matches: TransitionMatch,
    /// Where it leads.
    pub next: Target,
}

/// Where a transition leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The packet is accepted.
    Accept,
    /// Another state.
    State(StateId),
}

/// What a transition compares the key with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionMatch {
    /// `key & mask == value`, of the state's `key_bytes`.
    Value {
        /// Already masked.
        value: Vec<u8>,
        /// All ones where the JSON gives no mask.
        mask: Vec<u8>,
    },
    /// A member of a value set, compared under the mask if there is one.
    ValueSet(ValueSetId, Option<Vec<u8>>),
}

/// The deparser: which headers it emits, in order, if valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deparser {
    /// Emitted in this order.
    pub order: Vec<HeaderId>,
    /// Extern calls made before emitting.
    pub ops: Vec<Op>,
}
