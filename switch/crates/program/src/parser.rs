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
    /// Its first state.
    pub start: Target,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Name in the P4 program.
    pub name: String,
    /// Its operations, in order.
    pub ops: Vec<ParserOp>,
    /// The transition key: components, each padded to whole bytes.
    pub key: Vec<KeyPart>,
    /// Bytes of the key.
    pub key_bytes: usize,
    /// The cases, tried in order.
    pub transitions: Vec<Transition>,
    /// Taken when no case matches; without it that is `error.NoMatch` (P4_16 section 13.6).
    pub default: Option<Target>,
    /// Location in the P4 source.
    pub source: Option<SourceInfo>,
}

/// The destination of an extract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtractTo {
    /// This header.
    Header(HeaderId),
    /// The next element of a stack.
    Stack(StackId),
    /// A member of the next element of a union stack.
    UnionStack(UnionStackId, usize),
}

/// One operation of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParserOp {
    /// Extracts a header.
    Extract(ExtractTo),
    /// Extracts a header with a `varbit` field of this number of bits.
    ExtractVarbit(ExtractTo, Arith),
    /// Runs one action operation: an assignment, `setValid`, ...
    Run(Box<Op>),
    /// Assigns bits ahead of the current position, from `offset` on, without extracting them.
    Lookahead {
        /// Destination.
        target: Slot,
        /// First bit, from the current position.
        offset: u32,
        /// Number of bits.
        width: u32,
    },
    /// Skips this number of bits.
    Advance(Arith),
    /// Ends parsing with the error code if the condition is false.
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
    /// The values that match.
    pub matches: TransitionMatch,
    /// Its target.
    pub next: Target,
}

/// The target of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The packet is accepted.
    Accept,
    /// Another state.
    State(StateId),
}

/// The comparison of a transition with the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionMatch {
    /// `key & mask == value`, each of the state's `key_bytes`.
    Value {
        /// Already masked.
        value: Vec<u8>,
        /// All ones where the JSON gives no mask.
        mask: Vec<u8>,
    },
    /// A member of a value set, compared under the mask if there is one.
    ValueSet(ValueSetId, Option<Vec<u8>>),
}

/// The deparser: the headers that it emits if they are valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deparser {
    /// The headers, in order of emission.
    pub order: Vec<HeaderId>,
    /// Extern calls made before emitting.
    pub ops: Vec<Op>,
}
