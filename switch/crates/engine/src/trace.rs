// SPDX-License-Identifier: Apache-2.0
//! Tracing: reports every step of a packet's processing.
//!
//! The interpreter is generic over [`Trace`]. With [`NoTrace`], it is compiled without building the steps, so a
//! disabled trace costs nothing.

use sluice_program::{
    CalculationId, ConditionalId, CounterId, DigestId, HeaderId, MeterId, RegisterId, StateId,
    TableId,
};
use sluice_tables::{ActionRef, Color, Match};

use crate::program_point::ProgramPoint;

/// A step in the processing of a packet. Numbers have the widths that the program declares; byte strings are
/// big-endian.
#[derive(Clone, Copy, Debug)]
pub enum TraceStep<'a> {
    /// The packet, or a copy of the packet, enters the parser or egress with this `instance_type` (see
    /// [`crate::InstanceType`]).
    Enter(Stage, u32),
    /// The packet reaches a point of the program. Parser states are reported as [`TraceStep::State`] instead.
    At(ProgramPoint),
    /// The parser enters a state.
    State(StateId),
    /// The parser extracts a header.
    Extract(HeaderId),
    /// Parsing ended with this error.
    ParserError(u32),
    /// A checksum was verified and is wrong.
    ChecksumError,
    /// A condition (`if`) was evaluated to this result.
    Condition(ConditionalId, bool),
    /// A table was applied.
    Table {
        /// The table.
        table: TableId,
        /// The lookup key, of [`sluice_program::Table::key_bytes`] bytes.
        key: &'a [u8],
        /// The matching entry; `None` for a miss.
        entry: Option<&'a Match>,
        /// The action that runs; `None` if no action runs, for example for a group without a live member.
        action: Option<ActionRef<'a>>,
    },
    /// An extern was used.
    Extern(Extern<'a>),
    /// The program logs a message.
    Log(&'a str),
    /// An `assert` or `assume` failed.
    AssertionFailed,
    /// An access was beyond the end of an array or a stack. The access has no effect.
    OutOfRange,
    /// The fate of the packet, or of a copy of the packet.
    Fate(Fate),
}

/// The part of the program that a packet enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Parser and ingress, with the ingress port.
    Ingress(u32),
    /// Egress and deparser, with the egress port.
    Egress(u32),
}

/// A use of an extern.
#[derive(Clone, Copy, Debug)]
pub enum Extern<'a> {
    /// A cell of an indirect counter counts the packet. The values are the counter and the index.
    Count(CounterId, usize),
    /// A cell of an indirect meter returns a colour. The values are the meter, the index, and the colour.
    Meter(MeterId, usize, Color),
    /// A direct meter returns a colour.
    DirectMeter(MeterId, Color),
    /// A register cell is read. The values are the register, the index, and the words of the cell, most significant
    /// first.
    RegisterRead(RegisterId, usize, &'a [u64]),
    /// A register cell is written. The values are the register, the index, and the words of the cell, most significant
    /// first.
    RegisterWrite(RegisterId, usize, &'a [u64]),
    /// A hash was computed. The number is the value that the program gets: the hash modulo the range, plus the base.
    Hash(CalculationId, u64),
    /// A random number was drawn.
    Random(u64),
    /// A digest is requested.
    Digest(DigestId),
    /// A clone to this session is requested.
    Clone(u32),
    /// Resubmission of the packet is requested.
    Resubmit,
    /// Recirculation of the packet is requested.
    Recirculate,
    /// Truncation of the packet to this number of bytes is requested.
    Truncate(usize),
    /// The packet is marked to be dropped.
    MarkToDrop,
}

/// The fate of a packet or copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Sent.
    Transmitted {
        /// Egress port.
        port: u32,
        /// Length in bytes.
        bytes: usize,
    },
    /// `egress_spec` was the drop port at the end of ingress.
    DroppedIngress,
    /// `egress_spec` was the drop port at the end of egress.
    DroppedEgress,
    /// Queued at a port. The packet's later fate is not reported.
    Queued {
        /// The port.
        port: u32,
        /// The queue of the port.
        priority: u32,
    },
    /// Dropped: the queue of the port is full.
    QueueFull {
        /// The port.
        port: u32,
        /// The queue of the port.
        priority: u32,
    },
    /// Dropped: the port has no queue of this priority.
    Priority(u32),
    /// Dropped: this multicast group does not exist or has no replica.
    NoReplica(u32),
    /// Dropped: the packet and its copies reached the limit [`crate::Config::max_passes`].
    PassLimit,
    /// Dropped: the parser took more than [`crate::Config::max_parser_steps`] steps.
    ParserLimit,
    /// Replaced by copies, one per replica of the group.
    Multicast {
        /// The group.
        group: u32,
        /// Number of copies.
        copies: usize,
    },
    /// Cloned, one copy per replica of the session; the packet itself continues.
    Cloned {
        /// The session.
        session: u32,
        /// Number of copies.
        copies: usize,
    },
    /// Not cloned: this session does not exist.
    NoSession(u32),
    /// Resubmitted: the packet enters the parser again, with the bytes that it had at its last entry.
    Resubmitted,
    /// Recirculated: the packet enters the parser again, with the bytes that would have been sent.
    Recirculated,
}

/// Receives every step.
pub trait Trace: Send {
    /// Whether steps are reported at all.
    const ENABLED: bool = true;

    /// Receives a step. Called from inside the packet path.
    fn step(&mut self, step: TraceStep<'_>);
}

/// Ignores all steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Trace for NoTrace {
    const ENABLED: bool = false;

    #[inline]
    fn step(&mut self, _step: TraceStep<'_>) {}
}
