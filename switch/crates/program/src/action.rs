// SPDX-License-Identifier: Apache-2.0
//! Actions: parameters and a list of operations.

use std::collections::BTreeSet;

use crate::error::SourceInfo;
use crate::expr::{Arith, Bool, HeaderRef, UnionRef};
use crate::ids::{
    CalculationId, CounterId, DigestId, FieldListId, MeterId, RegisterId, StackId, UnionStackId,
};
use crate::layout::Slot;

/// Where an action parameter lies in an entry's parameter words: 64-bit words, a parameter wider
/// than 64 bits takes several, most significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamSlot {
    /// First word.
    pub word: u16,
    /// Width in bits.
    pub width: u16,
}

impl ParamSlot {
    /// Number of 64-bit words.
    pub fn words(&self) -> usize {
        usize::from(self.width).div_ceil(64).max(1)
    }
}

/// A parameter that the control plane gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the P4 program.
    pub name: String,
    /// Where its value lies.
    pub slot: ParamSlot,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Name, as in P4Info's `preamble.name`.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// 64-bit words that hold the parameters of one call.
    pub param_words: usize,
    /// What it does.
    pub ops: Vec<Op>,
    /// Registers that it reads or writes, in ascending order: those it must have for itself.
    pub registers: Box<[RegisterId]>,
    /// Where each of `ops` comes from.
    pub sources: Vec<Option<SourceInfo>>,
}

/// The registers that operations read or write, in ascending order.
pub(crate) fn registers_of(ops: &[Op]) -> Box<[RegisterId]> {
    let used = ops.iter().filter_map(|op| match op {
        Op::RegisterRead(_, id, _) | Op::RegisterWrite(id, _, _) => Some(*id),
        _ => None,
    });
    let used: BTreeSet<RegisterId> = used.collect();
    used.into_iter().collect()
}

/// What can be assigned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LValue {
    /// A field at a fixed place.
    Field(Slot),
    /// A field, relative to a header found at run time.
    HeaderField(HeaderRef, Slot),
}

/// A `varbit` field: the header that has it.
pub type VarbitRef = HeaderRef;

/// A part of a log message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPart {
    /// Printed as it is.
    Text(String),
    /// The value of the n-th argument, in decimal.
    Argument(usize),
}

/// One operation of an action. Jump targets are indices into the action's operations; the index
/// one past the last ends the action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `target = value`, modulo 2^width.
    Assign(LValue, Arith),
    /// Copies bits between two slots of equal width.
    Move {
        /// Written.
        to: Slot,
        /// Read.
        from: Slot,
    },
    /// Copies a `varbit` field with its current length.
    AssignVarbit(VarbitRef, VarbitRef),
    /// Copies a header with its validity.
    AssignHeader(HeaderRef, HeaderRef),
    /// Copies a union with the validity of its members.
    AssignUnion(UnionRef, UnionRef),
    /// Copies a stack.
    AssignStack(StackId, StackId),
    /// Copies a union stack.
    AssignUnionStack(UnionStackId, UnionStackId),
    /// `setValid`: fields become 0 if it was not valid.
    AddHeader(HeaderRef),
    /// `setInvalid`.
    RemoveHeader(HeaderRef),
    /// `push_front(n)`.
    Push(StackId, Arith),
    /// `pop_front(n)`.
    Pop(StackId, Arith),
    /// `push_front(n)` of a union stack.
    PushUnion(UnionStackId, Arith),
    /// `pop_front(n)` of a union stack.
    PopUnion(UnionStackId, Arith),
    /// Continues at the index when the condition is false.
    JumpUnless(Bool, usize),
    /// Continues at the index.
    Jump(usize),
    /// `exit`: ends the action and the pipeline.
    Exit,
    /// `mark_to_drop`: egress_spec becomes the drop port, the multicast group 0. In a copy of the standard metadata (p4c
    /// makes one for an action with an `inout` parameter) where there are slots, else in the standard metadata itself.
    MarkToDrop(Option<(Slot, Option<Slot>)>),
    /// Counts the packet in a cell of an indirect counter.
    Count(CounterId, Arith),
    /// Executes a cell of an indirect meter and stores the colour.
    ExecuteMeter(MeterId, Arith, LValue),
    /// Reads a register cell.
    RegisterRead(LValue, RegisterId, Arith),
    /// Writes a register cell.
    RegisterWrite(RegisterId, Arith, Arith),
    /// `target = base + hash mod max`.
    Hash {
        /// Written.
        target: LValue,
        /// Added to the result.
        base: Arith,
        /// What is hashed and how.
        calculation: CalculationId,
        /// Modulus; 0 counts as 1.
        max: Arith,
    },
    /// A uniformly distributed value between two bounds, both included.
    Random(LValue, Arith, Arith),
    /// Sends a digest at the end of ingress; the last call wins.
    Digest(DigestId),
    /// Clones to a session; the last call wins. Which clone (ingress or egress) follows from the
    /// pipeline the action runs in.
    Clone {
        /// The clone session.
        session: Arith,
        /// Metadata that the copy keeps.
        preserve: Option<FieldListId>,
    },
    /// Starts over at the parser with the packet as it came in.
    Resubmit(Option<FieldListId>),
    /// Starts over at the parser with the packet as it leaves.
    Recirculate(Option<FieldListId>),
    /// Cuts the packet to so many bytes.
    Truncate(Arith),
    /// Logs a message.
    Log(Vec<LogPart>, Vec<Arith>),
    /// `assert` or `assume`: counted and logged when false.
    Assert(Bool),
}
