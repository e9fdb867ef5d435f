// SPDX-License-Identifier: Apache-2.0
//! The interpreter: the reference engine. Every faster engine must have the same results.

use std::sync::Arc;

use sluice_engine::{
    Config, Context, Counters, Engine, NoTrace, Packet, Parsed, ProgramPoint, Sink, Trace,
    TraceStep,
};
use sluice_program::Program;
use sluice_random::Random;

use crate::machine::{Machine, WorkerState};

/// The reference engine; see the module.
pub struct Interpreter<T = NoTrace> {
    program: Arc<Program>,
    config: Config,
    worker: WorkerState,
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
        let worker = WorkerState {
            random: Random::new(config.seed),
            ..WorkerState::default()
        };
        Self {
            program,
            config,
            worker,
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
            worker: &mut self.worker,
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
        &mut self.worker.counters
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
        machine.note(TraceStep::At(ProgramPoint::Checksums));
        machine.update_checksums();
        machine.note(TraceStep::At(ProgramPoint::Deparser));
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
    fn note(&mut self, step: TraceStep<'_>) {
        if T::ENABLED {
            self.trace.step(step);
        }
    }
}
