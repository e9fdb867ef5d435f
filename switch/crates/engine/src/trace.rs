// SPDX-License-Identifier: Apache-2.0
//! Watching a packet: every step of its life, told to whoever wants to know.
//!
//! The interpreter is generic over [`Trace`]. For [`NoTrace`] the steps are not even put together,
//! so an interpreter that nobody watches is the same code as one that could not be watched.

use sluice_program::{
    CalculationId, ConditionalId, CounterId, DigestId, HeaderId, MeterId, RegisterId, StateId,
    TableId,
};
use sluice_tables::{ActionRef, Color, Match};

use crate::profile::Place;

/// Something that happened to a packet. Numbers are as wide as the program has them; byte strings
/// are big-endian.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The packet, or a copy of it, enters the parser or egress, with this `instance_type`
    /// (see [`crate::InstanceType`]).
    Enter(Stage, u32),
    /// The packet comes to another place than a state of the parser, which has a step of its own.
    At(Place),
    /// The parser enters a state.
    State(StateId),
    /// The parser fills a header.
    Extract(HeaderId),
    /// Parsing ended with this error.
    ParserError(u32),
    /// A checksum that the program verifies is wrong.
    ChecksumError,
    /// An `if`.
    Condition(ConditionalId, bool),
    /// A table was applied.
    Table {
        /// The table.
        table: TableId,
        /// What was looked up: [`sluice_program::Table::key_bytes`] bytes.
        key: &'a [u8],
        /// The entry, unless it was a miss.
        entry: Option<&'a Match>,
        /// What runs; `None` for nothing (a group without a live member among others).
        action: Option<ActionRef<'a>>,
    },
    /// An extern was used.
    Extern(Extern<'a>),
    /// The program logs a message.
    Log(&'a str),
    /// An `assert` or `assume` does not hold.
    AssertionFailed,
    /// An access beyond an array or a stack; it has no effect.
    OutOfRange,
    /// What becomes of the packet or copy.
    Fate(Fate),
}

/// Where a packet enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Parser and ingress, with the port that it came in by.
    Ingress(u32),
    /// Egress and deparser, with the port that it leaves by.
    Egress(u32),
}

/// A use of an extern.
#[derive(Clone, Copy, Debug)]
pub enum Extern<'a> {
    /// A cell of an indirect counter counts the packet.
    Count(CounterId, usize),
    /// A cell of an indirect meter gives a colour.
    Meter(MeterId, usize, Color),
    /// A direct meter gives a colour.
    DirectMeter(MeterId, Color),
    /// A register cell is read: words, most significant first.
    RegisterRead(RegisterId, usize, &'a [u64]),
    /// A register cell is written.
    RegisterWrite(RegisterId, usize, &'a [u64]),
    /// A hash, reduced and with its base.
    Hash(CalculationId, u64),
    /// A random number.
    Random(u64),
    /// A digest is asked for.
    Digest(DigestId),
    /// A clone to this session is asked for.
    Clone(u32),
    /// The packet is to be resubmitted.
    Resubmit,
    /// The packet is to be recirculated.
    Recirculate,
    /// The packet is to be cut to so many bytes.
    Truncate(usize),
    /// The packet is marked to be dropped.
    MarkToDrop,
}

/// What became of a packet or copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Sent, with so many bytes.
    Transmitted {
        /// By this port.
        port: u32,
        /// Bytes.
        bytes: usize,
    },
    /// `egress_spec` was the drop port at the end of ingress.
    DroppedIngress,
    /// `egress_spec` was the drop port at the end of egress.
    DroppedEgress,
    /// Waits in the queue of a port. What becomes of it later is not told.
    Queued {
        /// The port.
        port: u32,
        /// The queue of the port.
        priority: u32,
    },
    /// The queue of the port is full.
    QueueFull {
        /// The port.
        port: u32,
        /// The queue of the port.
        priority: u32,
    },
    /// The port has no queue of this priority.
    Priority(u32),
    /// The multicast group does not exist or has no replica.
    NoReplica(u32),
    /// Processed, or copied, too often.
    PassLimit,
    /// The parser does not end.
    ParserLimit,
    /// Replaced by copies, one for each replica of the group.
    Multicast {
        /// The group.
        group: u32,
        /// Copies.
        copies: usize,
    },
    /// Cloned, one copy for each replica of the session; the packet itself goes on.
    Cloned {
        /// The session.
        session: u32,
        /// Copies.
        copies: usize,
    },
    /// Not cloned: there is no such session.
    NoSession(u32),
    /// Goes back to the parser as it came in.
    Resubmitted,
    /// Goes back to the parser as it would have left.
    Recirculated,
}

/// Told about every step.
pub trait Trace: Send {
    /// Whether anything is watched.
    const ENABLED: bool = true;

    /// Told about a step; called from inside the packet path.
    fn step(&mut self, step: Step<'_>);
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Trace for NoTrace {
    const ENABLED: bool = false;

    #[inline]
    fn step(&mut self, _step: Step<'_>) {}
}
