// SPDX-License-Identifier: Apache-2.0
//! The native engine: a program's parser, pipelines, deparser and checksums as machine code, made by
//! Cranelift when the program is loaded.
//!
//! ```text
//! Program -> Facts -> Lower (parser, pipeline, table, action, expr, ...) -> Cranelift -> Pages
//!                                                   Native: frame -> machine code -> runtime
//! ```
//!
//! Code is specialised to the program: fields are loads and shifts at fixed addresses of the packet
//! header vector, metadata is as far as it can be in registers or not there at all (`facts`), steps are compiled once for
//! each likely set of facts (`variants`), actions stand where their tables are applied, tables with constant entries are
//! decisions without a look-up, and arithmetic is done in as many words as can matter. Tables that the
//! control plane fills, hashes and rare operations are functions in `runtime` and `lookups` that the code calls.
//!
//! Promises: what it does with a packet is what [`crate::Interpreter`] does, counters and random
//! numbers included. Every access to the packet is preceded by the check that the interpreter makes.
//! Nothing is left to the interpreter silently: see [`Report`]. The code lives as long as an engine
//! that runs it. [`Lanes`] run several packets at a time.

mod action;
mod asked;
mod checksum;
mod choice;
mod code;
mod compile;
mod constant;
mod count;
mod deparser;
mod expr;
mod facts;
mod fiber;
mod flow;
mod forward;
mod frame;
mod jobs;
mod key;
mod lane;
mod lanes;
mod lookups;
mod lower;
mod number;
mod own;
mod parser;
mod pipeline;
mod profiled;
mod runtime;
mod start;
mod states;
mod table;
mod variants;

use std::sync::Arc;

use sluice_program::{Program, Slot};

pub use compile::{Code, NativeError, Report};
pub(crate) use lane::Waiting;
pub use lanes::{Batch, Lanes};
pub use profiled::NativeProfiled;

use crate::config::Config;
use crate::counters::Counters;
use crate::interpreter::{Engine, Parsed, Way};
use crate::machine::{Context, Work};
use crate::packet::{Packet, Sink};
use crate::random::Random;
use compile::Part;
use frame::Frame;

/// Runs a compiled program; one for each worker.
pub struct Native {
    code: Arc<Code>,
    config: Config,
    work: Work,
}

impl Native {
    /// An engine that runs this code. Of the configuration only what the code does not contain is used:
    /// the seed, the limit of passes and the congestion.
    pub fn new(code: Arc<Code>, config: Config) -> Self {
        let config = Config {
            seed: config.seed,
            max_passes: config.max_passes,
            congestion: config.congestion,
            ..code.config().clone()
        };
        let work = Work {
            random: Random::new(config.seed),
            ..Work::default()
        };
        Self { code, config, work }
    }

    /// The code that it runs.
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// How packets wait from now on, if they run in a lane.
    fn set_waiting(&mut self, waiting: Option<Waiting>) {
        self.work.waiting = waiting;
    }

    fn call<'a>(
        &'a mut self,
        part: Part,
        context: Context<'a>,
        packet: &'a mut Packet,
        sink: &'a mut (dyn Sink + 'a),
    ) -> u64 {
        let program = self.code.program();
        let mut frame = Frame::new(program, &self.config, &mut self.work, context, packet, sink);
        if part == Part::Forward {
            frame.asked = &STOP;
        }
        self.code.run(part, &mut frame)
    }
}

/// For [`Frame::asked`] where ingress is to be all.
static STOP: u8 = 1;

impl Parsed {
    /// From what the machine code of the parser returns.
    fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Done,
            _ => Self::Limit,
        }
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
        &mut self.work.counters
    }

    fn looks_at(&self, slot: Slot) -> bool {
        self.code.looks_at(slot)
    }

    #[inline(always)]
    fn starts_packets(&self) -> bool {
        true
    }

    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed {
        Parsed::from_code(self.call(Part::Parser, context, packet, sink))
    }

    fn receive(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) -> Parsed {
        Parsed::from_code(self.call(Part::Forward, context, packet, sink))
    }

    #[inline]
    fn forward(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) -> Way {
        let Self { code, config, work } = self;
        out.clear();
        out.reserve(code.most_header_bytes());
        let mut frame = Frame::new(code.program(), config, work, context, packet, sink);
        frame.out = out.as_mut_ptr();
        let (way, headers) = forward::result(code.run(Part::Forward, &mut frame));
        // SAFETY: the deparser writes each header of its order at most once, and reports how many bytes
        // it wrote; room for all of them was reserved.
        unsafe { out.set_len(headers) };
        way
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
        let Self { code, config, work } = self;
        out.clear();
        out.reserve(code.most_header_bytes());
        let mut frame = Frame::new(code.program(), config, work, context, packet, sink);
        frame.out = out.as_mut_ptr();
        let headers = code.run(Part::Deparser, &mut frame) as usize;
        // SAFETY: the deparser writes each header of its order at most once, and reports how many bytes
        // it wrote; room for all of them was reserved.
        unsafe { out.set_len(headers) };
    }
}
