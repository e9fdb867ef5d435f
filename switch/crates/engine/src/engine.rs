// SPDX-License-Identifier: Apache-2.0
//! The interface of an engine, which runs the parts of a program on single packets.

use std::sync::Arc;

use sluice_program::{FieldSlot, Program};
use sluice_tables::{Externs, TableReplica};

use crate::config::Config;
use crate::counters::Counters;
use crate::packet::Packet;
use crate::sink::Sink;
use crate::trace::TraceStep;

/// The inputs of a packet's processing, apart from the program: tables, time and the received bytes.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The version of the tables that this packet sees.
    pub tables: &'a TableReplica,
    /// Counters, meters and registers.
    pub externs: &'a Externs,
    /// The current time in microseconds since the switch started.
    pub now_us: u64,
    /// The packet as received.
    pub input: &'a [u8],
}

/// The outcome of parsing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Parsing ended, with or without a parser error.
    Done,
    /// The parser exceeded [`Config::max_parser_steps`].
    Limit,
}

/// The point of the packet path up to which an engine has processed a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The parser exceeded [`Config::max_parser_steps`].
    ParserLimit,
    /// The packet is at the end of ingress. The traffic manager decides what happens next.
    Ingress,
    /// The packet is at the end of ingress and must be dropped.
    DroppedIngress,
    /// The packet is at the end of egress for this port. The traffic manager decides what happens next.
    Egress(u32),
    /// The packet is at the end of egress and must be dropped.
    DroppedEgress,
    /// The packet is at the end of the deparser, for this port. Its headers are written.
    Deparsed(u32),
}

/// Runs the parts of a v1model program on single packets. The traffic manager ([`crate::TrafficManager`]) decides which
/// part runs next.
pub trait Engine: Send {
    /// Returns the program.
    fn program(&self) -> &Arc<Program>;

    /// Returns the engine's configuration.
    fn config(&self) -> &Config;

    /// Returns the packet counters, which both the engine and the traffic manager update.
    fn counters(&mut self) -> &mut Counters;

    /// Returns whether this standard metadata field may be read from the header vector. If not, the field need not be
    /// written.
    fn looks_at(&self, slot: FieldSlot) -> bool {
        let _ = slot;
        true
    }

    /// Returns whether the engine itself initialises the header vector of a packet that was started with
    /// [`Packet::start_bare`], in [`forward`](Self::forward) and [`receive`](Self::receive).
    #[inline(always)]
    fn starts_packets(&self) -> bool {
        false
    }

    /// Runs the parser and verifies checksums.
    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed;

    /// Runs [`parse`](Self::parse). Then runs the ingress pipeline, unless the parser exceeded its limit.
    fn receive(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink)
    -> Parsed;

    /// Runs [`receive`](Self::receive), then egress and the deparser, which writes to `out`. Stops earlier if the
    /// traffic manager must act on the packet, or if the engine cannot run the next part from here.
    #[inline]
    fn forward(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) -> Progress {
        let _ = out;
        match self.receive(context, packet, sink) {
            Parsed::Done => Progress::Ingress,
            Parsed::Limit => Progress::ParserLimit,
        }
    }

    /// Runs the egress pipeline.
    fn egress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink);

    /// Updates checksums and writes the packet's headers to `out`, which is cleared first.
    fn deparse(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    );

    /// Returns whether the engine has a trace. Without a trace, no steps are reported.
    #[inline(always)]
    fn watched(&self) -> bool {
        false
    }

    /// Reports a step of the traffic manager to the engine's trace, if the engine has one.
    #[inline]
    fn note(&mut self, step: TraceStep<'_>) {
        let _ = step;
    }
}
