// SPDX-License-Identifier: Apache-2.0
//! Defines actions, with their parameters and their operations.

use std::collections::BTreeSet;

use crate::error::SourceInfo;
use crate::expr::{Arith, Bool, HeaderRef, UnionRef};
use crate::ids::{
    CalculationId, CounterId, DigestId, FieldListId, MeterId, RegisterId, StackId, UnionStackId,
};
use crate::layout::{FieldSlot, ParamSlot};

/// A parameter of an action. The control plane sets its value in each entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the P4 program.
    pub name: String,
    /// Position of the parameter's value in the parameter words of an entry.
    pub slot: ParamSlot,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Name, equal to `preamble.name` in P4Info.
    pub name: String,
    /// Parameters of the action, in order.
    pub params: Vec<Param>,
    /// Number of 64-bit words that hold the parameters of one call.
    pub param_words: usize,
    /// Operations of the action.
    pub ops: Vec<Op>,
    /// Registers that the action reads or writes, in ascending order. The engine locks them.
    pub registers: Box<[RegisterId]>,
    /// Location in the P4 source of each operation in `ops`.
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
    Field(FieldSlot),
    /// A field of a header that is selected at run time, such as the element of a stack. The slot is relative to the
    /// start of this header.
    HeaderField(HeaderRef, FieldSlot),
}

/// The `varbit` field of this header.
pub type VarbitRef = HeaderRef;

/// A part of a log message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPart {
    /// Literal text.
    Text(String),
    /// The value of the n-th argument, in decimal.
    Argument(usize),
}

/// One operation of an action. Jump targets are indices into the action's operations. The index after the last
/// operation ends the action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `target = value`. The value is taken modulo 2^width of the target.
    Assign(LValue, Arith),
    /// Copies bits from one slot to another of equal width.
    Move {
        /// Destination.
        to: FieldSlot,
        /// Source.
        from: FieldSlot,
    },
    /// Copies a `varbit` field and its current length.
    AssignVarbit(VarbitRef, VarbitRef),
    /// Copies a header and its validity.
    AssignHeader(HeaderRef, HeaderRef),
    /// Copies a union, with the validity of its members.
    AssignUnion(UnionRef, UnionRef),
    /// Copies a stack.
    AssignStack(StackId, StackId),
    /// Copies a union stack.
    AssignUnionStack(UnionStackId, UnionStackId),
    /// `setValid`: fields become 0 if the header was not valid.
    AddHeader(HeaderRef),
    /// `setInvalid`: the header becomes invalid, and its fields keep their values.
    RemoveHeader(HeaderRef),
    /// `push_front(n)` of a header stack.
    Push(StackId, Arith),
    /// `pop_front(n)` of a header stack.
    Pop(StackId, Arith),
    /// `push_front(n)` of a union stack.
    PushUnion(UnionStackId, Arith),
    /// `pop_front(n)` of a union stack.
    PopUnion(UnionStackId, Arith),
    /// Continues at this index if the condition is false.
    JumpUnless(Bool, usize),
    /// Continues at this index.
    Jump(usize),
    /// `exit`: ends the action and the pipeline.
    Exit,
    /// `mark_to_drop`: sets egress_spec to the drop port and the multicast group to 0. `None` changes the standard
    /// metadata itself. `Some` changes these two fields in a copy of the standard metadata, which p4c makes for an
    /// action with an `inout` parameter.
    MarkToDrop(Option<(FieldSlot, Option<FieldSlot>)>),
    /// Counts the packet in a cell of an indirect counter.
    Count(CounterId, Arith),
    /// Executes a cell of an indirect meter and stores the colour in the target.
    ExecuteMeter(MeterId, Arith, LValue),
    /// Reads a register cell.
    RegisterRead(LValue, RegisterId, Arith),
    /// Writes a register cell.
    RegisterWrite(RegisterId, Arith, Arith),
    /// `target = base + hash mod max`.
    Hash {
        /// Destination.
        target: LValue,
        /// Number that is added to the hash.
        base: Arith,
        /// The algorithm, with its input.
        calculation: CalculationId,
        /// Modulus of the hash; 0 is treated as 1.
        max: Arith,
    },
    /// Assigns a uniformly distributed value between two bounds, both included.
    Random(LValue, Arith, Arith),
    /// Sends a digest at the end of ingress. If a pass calls this several times, only the last call has an effect.
    Digest(DigestId),
    /// Clones the packet to a session. If a pass calls this several times, only the last call has an effect. In
    /// ingress it makes an ingress clone, in egress an egress clone.
    Clone {
        /// The clone session.
        session: Arith,
        /// Metadata that the clone keeps.
        preserve: Option<FieldListId>,
    },
    /// Sends the packet back to the parser with the bytes that it had when it last entered the parser (resubmit). The
    /// field list names the metadata that the packet keeps.
    Resubmit(Option<FieldListId>),
    /// Sends the packet back to the parser with the bytes that the deparser has written (recirculate). The field list
    /// names the metadata that the packet keeps.
    Recirculate(Option<FieldListId>),
    /// Truncates the packet to this number of bytes.
    Truncate(Arith),
    /// Logs a message, made of literal parts and of the values of the arguments.
    Log(Vec<LogPart>, Vec<Arith>),
    /// `assert` or `assume`: counts and logs a failure if the condition is false.
    Assert(Bool),
}
