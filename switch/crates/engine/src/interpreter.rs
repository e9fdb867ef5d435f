// SPDX-License-Identifier: Apache-2.0
//! The interpreter: the oracle that every faster engine must agree with.

use std::sync::Arc;

use sluice_program::{Program, Slot};

use crate::config::Config;
use crate::counters::Counters;
use crate::machine::{Context, Machine, Work};
use crate::packet::{Packet, Sink};
use crate::profile::Place;
use crate::random::Random;
use crate::trace::{NoTrace, Step, Trace};

/// What became of a packet in the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Parsed, with or without an error.
    Done,
    /// The parser did not end.
    Limit,
}

/// How far a packet came on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The parser did not end.
    ParserLimit,
    /// To the end of ingress. What is to be done with it is not decided.
    Ingress,
    /// To the end of ingress, and to the drop port.
    DroppedIngress,
    /// To the end of egress for this port. What is to be done with it is not decided.
    Egress(u32),
    /// To the end of egress, and to the drop port.
    DroppedEgress,
    /// To the end, for this port: its headers are written.
    Deparsed(u32),
}

/// The parts of a v1model program, each run on the packet it is given. The traffic manager
/// ([`crate::Switch`]) decides what runs when.
pub trait Engine: Send {
    /// The program.
    fn program(&self) -> &Arc<Program>;

    /// How it was set up.
    fn config(&self) -> &Config;

    /// Counters of what happens inside the parts, and of what the traffic manager does.
    fn counters(&mut self) -> &mut Counters;

    /// Whether anybody reads a standard metadata field in the header vector; if not, it is not written.
    fn looks_at(&self, slot: Slot) -> bool {
        let _ = slot;
        true
    }

    /// Whether [`forward`](Self::forward) and [`receive`](Self::receive) write by themselves what a packet has that
    /// began with [`Packet::start_bare`].
    #[inline(always)]
    fn starts_packets(&self) -> bool {
        false
    }

    /// Runs the parser and verifies checksums.
    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed;

    /// Likewise, and then the ingress pipeline unless the parser did not end.
    fn receive(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink)
    -> Parsed;

    /// Likewise, and then as much of what follows as the engine can do by itself: egress and the deparser, which
    /// writes to `out`, unless something was asked for that is the traffic manager's to do.
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

    /// Whether somebody watches packets: if not, nothing is noted.
    #[inline(always)]
    fn watched(&self) -> bool {
        false
    }

    /// Told what the traffic manager does with a packet, for whoever watches it.
    #[inline]
    fn note(&mut self, step: Step<'_>) {
        let _ = step;
    }
}

/// See the module.
pub struct Interpreter<T = NoTrace> {
    program: Arc<Program>,
    config: Config,
    work: Work,
    trace: T,
}

impl Interpreter<NoTrace> {
    /// An interpreter for a program.
    pub fn new(program: Arc<Program>, config: Config) -> Self {
        Self::traced(program, config, NoTrace)
    }
}

impl<T: Trace> Interpreter<T> {
    /// An interpreter that tells `trace` about every step.
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

    /// Who watches.
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
