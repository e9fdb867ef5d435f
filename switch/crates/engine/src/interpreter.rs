// SPDX-License-Identifier: Apache-2.0
//! The interpreter: the reference that every faster engine must agree with.

use std::sync::Arc;

use sluice_program::{Program, Slot};

use crate::config::Config;
use crate::counters::Counters;
use crate::machine::{Context, Machine, Work};
use crate::packet::{Packet, Sink};
use crate::profile::Place;
use crate::random::Random;
use crate::trace::{NoTrace, Step, Trace};

/// The outcome of parsing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Parsing ended, with or without a parser error.
    Done,
    /// The parser did not end.
    Limit,
}

/// How far the engine took a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The parser did not end.
    ParserLimit,
    /// To the end of ingress. The traffic manager decides what happens next.
    Ingress,
    /// To the end of ingress; the packet is to be dropped.
    DroppedIngress,
    /// To the end of egress for this port. The traffic manager decides what happens next.
    Egress(u32),
    /// To the end of egress; the packet is to be dropped.
    DroppedEgress,
    /// To the end of the deparser, for this port: the headers are written.
    Deparsed(u32),
}

/// Runs the parts of a v1model program on single packets. The traffic manager ([`crate::Switch`]) decides which part
/// runs next.
pub trait Engine: Send {
    /// Returns the program.
    fn program(&self) -> &Arc<Program>;

    /// Returns the engine's configuration.
    fn config(&self) -> &Config;

    /// Returns the counters, in which both the engine and the traffic manager count.
    fn counters(&mut self) -> &mut Counters;

    /// Whether this standard metadata field may be read from the header vector. Fields that are never read are not
    /// written.
    fn looks_at(&self, slot: Slot) -> bool {
        let _ = slot;
        true
    }

    /// Whether [`forward`](Self::forward) and [`receive`](Self::receive) initialise the header vector of a packet that
    /// was started with [`Packet::start_bare`].
    #[inline(always)]
    fn starts_packets(&self) -> bool {
        false
    }

    /// Runs the parser and verifies checksums.
    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed;

    /// Runs [`parse`](Self::parse) and then, if the parser ended, the ingress pipeline.
    fn receive(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink)
    -> Parsed;

    /// Runs [`receive`](Self::receive) and then as many of the later parts as the engine can run by itself: egress, and
    /// the deparser, which writes to `out`. Stops early where the traffic manager must act on a request.
    #[inline]
    fn forward(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) -> Way {
        let _ = out;
        match self.receive(context, packet, sink) {
            Parsed::Done => Way::Ingress,
            Parsed::Limit => Way::ParserLimit,
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

    /// Whether the engine has a trace. Without one, no steps are reported.
    #[inline(always)]
    fn watched(&self) -> bool {
        false
    }

    /// Reports a step of the traffic manager to the trace, if there is one.
    #[inline]
    fn note(&mut self, step: Step<'_>) {
        let _ = step;
    }
}

/// The reference engine; see the module.
pub struct Interpreter<T = NoTrace> {
    program: Arc<Program>,
    config: Config,
    work: Work,
    trace: T,
}

impl Interpreter<NoTrace> {
    /// Creates an interpreter for a program.
    pub fn new(program: Arc<Program>, config: Config) -> Self {
        Self::traced(program, config, NoTrace)
    }
}

impl<T: Trace> Interpreter<T> {
    /// Creates an interpreter that reports every step to `trace`.
    pub fn traced(program: Arc<Program>, config: Config, trace: T) -> Self {
        let work = Work {
            random: Random::new(config.seed),
            ..Work::default()
        };
        Self {
            program,
            config,
            work,
            trace,
        }
    }

    /// Returns the trace.
    pub fn trace(&mut self) -> &mut T {
        &mut self.trace
    }

    fn machine<'a>(
        &'a mut self,
        context: Context<'a>,
        packet: &'a mut Packet,
        sink: &'a mut dyn Sink,
    ) -> Machine<'a, T> {
        packet.phv.touch();
        Machine {
            program: &self.program,
            config: &self.config,
            context,
            packet,
            work: &mut self.work,
            sink,
            trace: &mut self.trace,
        }
    }
}

impl<T: Trace> Engine for Interpreter<T> {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.work.counters
    }

    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed {
        match self.machine(context, packet, sink).parse() {
            Ok(()) => Parsed::Done,
            Err(_) => Parsed::Limit,
        }
    }

    fn receive(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) -> Parsed {
        let parsed = self.parse(context, packet, sink);
        if parsed == Parsed::Done {
            let mut machine = self.machine(context, packet, sink);
            let program = machine.program;
            machine.run_pipeline(&program.ingress);
        }
        parsed
    }

    fn egress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        let mut machine = self.machine(context, packet, sink);
        let program = machine.program;
        machine.run_pipeline(&program.egress);
    }

    fn deparse(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) {
        let mut machine = self.machine(context, packet, sink);
        machine.note(Step::At(Place::Checksums));
        machine.update_checksums();
        machine.note(Step::At(Place::Deparser));
        let program = machine.program;
        for op in &program.deparser.ops {
            machine.run_op(op, &[]);
        }
        let packet = &*machine.packet;
        out.clear();
        for header in &program.deparser.order {
            if packet.phv.is_valid(*header) {
                packet.phv.emit(program, *header, out);
            }
        }
    }

    #[inline(always)]
    fn watched(&self) -> bool {
        T::ENABLED
    }

    #[inline]
    fn note(&mut self, step: Step<'_>) {
        if T::ENABLED {
            self.trace.step(step);
        }
    }
}
