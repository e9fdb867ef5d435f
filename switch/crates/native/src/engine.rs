// SPDX-License-Identifier: Apache-2.0
//! Implements the engine of one worker, which calls the machine code of a program's parts.

use std::sync::Arc;

use sluice_engine::{Config, Context, Counters, Engine, Packet, Parsed, Progress, Sink};
use sluice_program::{FieldSlot, Program};
use sluice_random::Random;

use crate::codegen::compile::{Code, Part};
use crate::codegen::forward;
use crate::runtime::frame::{Frame, WorkerState};
use crate::scheduling::scheduler::Yielder;

/// Engine that runs a compiled program. Each worker has an engine of its own.
pub struct Native {
    code: Arc<Code>,
    config: Config,
    pub(crate) worker: WorkerState,
}

impl Native {
    /// Creates an engine that runs this code. Reads only the seed, the limit of passes and the congestion flag from
    /// `config`. All other settings were compiled into the code.
    pub fn new(code: Arc<Code>, config: Config) -> Self {
        let config = Config {
            seed: config.seed,
            max_passes: config.max_passes,
            congestion: config.congestion,
            ..code.config().clone()
        };
        let worker = WorkerState {
            random: Random::new(config.seed),
            ..WorkerState::default()
        };
        Self {
            code,
            config,
            worker,
        }
    }

    /// Returns the code that the engine runs.
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// Sets the handle that packets use to yield from now on. `None` if packets do not run in a lane.
    pub(crate) fn set_yielder(&mut self, yielder: Option<Yielder>) {
        self.worker.yielder = yielder;
    }

    fn call<'a>(
        &'a mut self,
        part: Part,
        context: Context<'a>,
        packet: &'a mut Packet,
        sink: &'a mut (dyn Sink + 'a),
    ) -> u64 {
        let program = self.code.program();
        let mut frame = Frame::new(
            program,
            &self.config,
            &mut self.worker,
            context,
            packet,
            sink,
        );
        if part == Part::Forward {
            frame.requested = &STOP;
        }
        self.code.run(part, &mut frame)
    }

    /// Runs a part of the program that deparses the packet's headers to `out`. `decode` splits the result of the code
    /// into an outcome and the number of bytes written.
    #[inline(always)]
    fn call_with_output<R>(
        &mut self,
        part: Part,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
        decode: impl FnOnce(u64) -> (R, usize),
    ) -> R {
        let Self {
            code,
            config,
            worker,
        } = self;
        out.clear();
        out.reserve(code.most_header_bytes());
        let mut frame = Frame::new(code.program(), config, worker, context, packet, sink);
        frame.out = out.as_mut_ptr();
        let (outcome, headers) = decode(code.run(part, &mut frame));
        // SAFETY: the deparser writes each header of its order at most once, and returns the number of bytes written.
        // Room for all headers was reserved.
        unsafe { out.set_len(headers) };
        outcome
    }
}

/// Value for [`Frame::requested`] that makes the code stop after ingress.
static STOP: u8 = 1;

/// Converts the result of the parser's machine code to [`Parsed`].
fn parsed(code: u64) -> Parsed {
    match code {
        0 => Parsed::Done,
        _ => Parsed::Limit,
    }
}

impl Engine for Native {
    fn program(&self) -> &Arc<Program> {
        self.code.program()
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.worker.counters
    }

    fn looks_at(&self, slot: FieldSlot) -> bool {
        self.code.looks_at(slot)
    }

    #[inline(always)]
    fn starts_packets(&self) -> bool {
        true
    }

    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed {
        parsed(self.call(Part::Parser, context, packet, sink))
    }

    fn receive(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) -> Parsed {
        parsed(self.call(Part::Forward, context, packet, sink))
    }

    #[inline]
    fn forward(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) -> Progress {
        self.call_with_output(Part::Forward, context, packet, out, sink, forward::result)
    }

    fn egress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        if self.code.has(Part::Egress) {
            self.call(Part::Egress, context, packet, sink);
        }
    }

    fn deparse(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) {
        let headers = |code: u64| ((), code as usize);
        self.call_with_output(Part::Deparser, context, packet, out, sink, headers);
    }
}
