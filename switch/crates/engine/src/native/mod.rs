// SPDX-License-Identifier: Apache-2.0
//! The native engine: a program's parser, pipelines, deparser and checksums as machine code, made by
//! Cranelift when the program is loaded.
//!
//! ```text
//! Program -> Lower (parser, pipeline, table, action, expr, ...) -> Cranelift -> Pages
//!                                                   Native: frame -> machine code -> runtime
//! ```
//!
//! Code is specialised to the program: fields are loads and shifts at fixed addresses of the packet
//! header vector, actions stand where their tables are applied, tables with constant entries are
//! decisions without a look-up, and arithmetic is done in as many words as can matter. Tables that the
//! control plane fills, hashes and rare operations are functions in `runtime` that the code calls.
//!
//! Promises: what it does with a packet is what [`crate::Interpreter`] does, counters and random
//! numbers included. Every access to the packet is preceded by the check that the interpreter makes.
//! Nothing is left to the interpreter silently: see [`Report`]. The code lives as long as an engine
//! that runs it.

mod action;
mod checksum;
mod code;
mod compile;
mod constant;
mod deparser;
mod expr;
mod frame;
mod key;
mod lower;
mod number;
mod parser;
mod pipeline;
mod profiled;
mod runtime;
mod table;

use std::sync::Arc;

use sluice_program::Program;

pub use compile::{Code, NativeError, Report};
pub use profiled::NativeProfiled;

use crate::config::Config;
use crate::counters::Counters;
use crate::interpreter::{Engine, Parsed};
use crate::machine::{Context, Work};
use crate::packet::{Packet, Sink};
use crate::random::Random;
use frame::Frame;

/// Runs a compiled program; one for each worker.
pub struct Native {
    code: Arc<Code>,
    config: Config,
    work: Work,
}

impl Native {
    /// An engine that runs this code. Of the configuration only what the code does not contain is used:
    /// the seed and the limit of passes.
    pub fn new(code: Arc<Code>, config: Config) -> Self {
        let config = Config {
            seed: config.seed,
            max_passes: config.max_passes,
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

    fn call<'a>(
        &'a mut self,
        part: compile::Part,
        context: Context<'a>,
        packet: &'a mut Packet,
        sink: &'a mut (dyn Sink + 'a),
    ) -> u64 {
        let program = self.code.program();
        let mut frame = Frame::new(program, &self.config, &mut self.work, context, packet, sink);
        self.code.run(part, &mut frame)
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

    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed {
        match self.call(compile::Part::Parser, context, packet, sink) {
            0 => Parsed::Done,
            _ => Parsed::Limit,
        }
    }

    fn ingress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        self.call(compile::Part::Ingress, context, packet, sink);
    }

    fn egress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        self.call(compile::Part::Egress, context, packet, sink);
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
        out.reserve(code.most_header_bytes() + packet.data.len());
        let mut frame = Frame::new(code.program(), config, work, context, packet, sink);
        frame.out = out.as_mut_ptr();
        let headers = code.run(compile::Part::Deparser, &mut frame) as usize;
        // SAFETY: the deparser writes each header of its order at most once, and reports how many bytes
        // it wrote; room for all of them was reserved.
        unsafe { out.set_len(headers) };
        out.extend_from_slice(&packet.data[packet.parsed..]);
        out.truncate(packet.truncate);
    }
}
