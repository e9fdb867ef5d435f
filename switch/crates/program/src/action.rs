// SPDX-License-Identifier: Apache-2.0
//! Actions: parameters and a list of operations.

use std::collections::BTreeSet;

use crate::error::SourceInfo;
use crate::expr::{Arith, Bool, HeaderRef, UnionRef};
use crate::ids::{
    CalculationId, CounterId, DigestId, FieldListId, MeterId, RegisterId, StackId, UnionStackId,
};
use crate::layout::Slot;

/// Position of an action parameter in an entry's parameter words. Words have 64 bits; a wider parameter takes several,
/// most significant first.
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

/// A parameter that the control plane sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the P4 program.
    pub name: String,
    /// Position of its value.
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
    /// Its operations.
    pub ops: Vec<Op>,
    /// Registers that it reads or writes, in ascending order: those that it must lock.
    pub registers: Box<[RegisterId]>,
    /// Source location of each of `ops`.
    pub sources: Vec<Option<SourceInfo>>,
}

/// Returns the registers that operations read or write, in ascending order.
pub(crate) fn registers_of(ops: &[Op]) -> Box<[RegisterId]> {
    let used = ops.iter().filter_map(|op| match op {
        Op::RegisterRead(_, id, _) | Op::RegisterWrite(id, _, _) => Some(*id),
        _ => None,
    });
    let used: BTreeSet<RegisterId> = used.collect();
    used.into_iter().collect()
}

/// The target of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LValue {
    /// A field at a fixed position.
    Field(Slot),
    /// A field, relative to a header that is found at run time.
    HeaderField(HeaderRef, Slot),
}

/// The header of a `varbit` field.
pub type VarbitRef = HeaderRef;

/// A part of a log message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPart {
    /// Literal text.
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
        /// Destination.
        to: Slot,
        /// Source.
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
    /// `mark_to_drop`: sets egress_spec to the drop port and the multicast group to 0. With slots, in a copy of the
    /// standard metadata (p4c makes one for an action with an `inout` parameter); else in the standard metadata itself.
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
        /// Destination.
        target: LValue,
        /// Added to the result.
        base: Arith,
        /// The input and the algorithm.
        calculation: CalculationId,
        /// Modulus; 0 counts as 1.
        max: Arith,
    },
    /// A uniformly distributed value between two bounds, both included.
    Random(LValue, Arith, Arith),
    /// Sends a digest at the end of ingress; the last call wins.
    Digest(DigestId),
    /// Clones to a session; the last call wins. The pipeline that the action runs in determines the kind of clone
    /// (ingress or egress).
    Clone {
        /// The clone session.
        session: Arith,
        /// Metadata that the copy keeps.
        preserve: Option<FieldListId>,
    },
    /// Sends the packet back to the parser in its original form.
    Resubmit(Option<FieldListId>),
    /// Sends the packet back to the parser in its deparsed form.
    Recirculate(Option<FieldListId>),
    /// Truncates the packet to this number of bytes.
    Truncate(Arith),
    /// Logs a message.
    Log(Vec<LogPart>, Vec<Arith>),
    /// `assert` or `assume`: a false condition is counted and logged.
    Assert(Bool),
}
