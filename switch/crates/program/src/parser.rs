// SPDX-License-Identifier: Apache-2.0
//! Defines parsers, their states, and the deparser.

use crate::action::Op;
use crate::error::SourceInfo;
use crate::expr::{Arith, Bool};
use crate::ids::{HeaderId, StackId, StateId, UnionStackId, ValueSetId};
use crate::layout::FieldSlot;

/// A parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parser {
    /// Name in the JSON.
    pub name: String,
    /// First state of the parser.
    pub start: Target,
}

/// A parser state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Name in the P4 program.
    pub name: String,
    /// Operations of the state, in order.
    pub ops: Vec<ParserOp>,
    /// Components of the transition key. Each is padded to whole bytes.
    pub key: Vec<KeyPart>,
    /// Size of the key in bytes.
    pub key_bytes: usize,
    /// Cases of the `select`, tried in order.
    pub transitions: Vec<Transition>,
    /// Target if no case matches. `None` means that parsing ends with `error.NoMatch` (P4_16 section 13.6).
    pub default: Option<Target>,
    /// Location in the P4 source.
    pub source: Option<SourceInfo>,
}

/// The destination of an extract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtractTo {
    /// A fixed header.
    Header(HeaderId),
    /// The next element of a header stack.
    Stack(StackId),
    /// A member of the next element of a union stack.
    UnionStack(UnionStackId, usize),
}

/// One operation of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParserOp {
    /// Extracts a header without a `varbit` field.
    Extract(ExtractTo),
    /// Extracts a header whose `varbit` field has this number of bits.
    ExtractVarbit(ExtractTo, Arith),
    /// Runs one operation of an action, such as an assignment or `setValid`.
    Run(Box<Op>),
    /// Lookahead: copies bits after the current position to a field. The position does not change.
    Lookahead {
        /// Destination.
        target: FieldSlot,
        /// Offset of the first bit from the current position.
        offset: u32,
        /// Number of bits.
        width: u32,
    },
    /// Skips this number of bits.
    Advance(Arith),
    /// Ends parsing with this error code if the condition is false.
    Verify(Bool, Arith),
}

/// A component of a transition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// A field.
    Field(FieldSlot),
    /// A field of the last extracted element of a stack.
    StackLast(StackId, FieldSlot),
    /// A field of a member of the last extracted element of a union stack.
    UnionStackLast(UnionStackId, usize, FieldSlot),
    /// Lookahead: bits after the current position, given by their offset from this position and their number.
    Lookahead(u32, u32),
}

/// A case of a `select`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The values that match.
    pub matches: TransitionMatch,
    /// Target of the transition if the case matches.
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

/// The condition of a case on the transition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionMatch {
    /// Matches if `key & mask == value`. Each has `key_bytes` bytes.
    Value {
        /// Value, already masked.
        value: Vec<u8>,
        /// Mask. All ones if the JSON has no mask.
        mask: Vec<u8>,
    },
    /// Matches if the key equals a member of the value set. If there is a mask, only the bits under the mask
    /// count.
    ValueSet(ValueSetId, Option<Vec<u8>>),
}

/// The deparser. It emits the valid headers among those in `order`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deparser {
    /// The headers, in order of emission.
    pub order: Vec<HeaderId>,
    /// Extern calls that run before headers are emitted.
    pub ops: Vec<Op>,
}
