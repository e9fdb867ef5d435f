// SPDX-License-Identifier: Apache-2.0
//! Runs one packet through the program with the current tables, without side effects and without sending the packet.
//!
//! The interpreter runs the packet and records a trace. The caller creates the dry run, and a worker executes it,
//! because the worker already has a reader of the tables.

use std::sync::Arc;

use sluice_engine::{Config, PacketIn, Sink, TrafficManager};
use sluice_interpreter::Interpreter;
use sluice_program::{DigestId, Program};
use sluice_tables::{Store, TableReplica};

use crate::trace::{KnownPorts, PacketTrace, Recorder};

/// A packet, the engine that runs it, and the resulting trace.
pub(crate) struct DryRun {
    switch: TrafficManager<Interpreter<Recorder>>,
    port: u32,
    packet: Vec<u8>,
    now_us: u64,
    trace: Option<PacketTrace>,
}

impl DryRun {
    /// Creates a dry run. Precondition: `config` forbids side effects.
    pub(crate) fn new(
        program: &Arc<Program>,
        config: Config,
        port: u32,
        packet: Vec<u8>,
        now_us: u64,
    ) -> Self {
        let recorder = Recorder::new(Arc::clone(program));
        let interpreter = Interpreter::traced(Arc::clone(program), config, recorder);
        Self {
            switch: TrafficManager::new(interpreter),
            port,
            packet,
            now_us,
            trace: None,
        }
    }

    /// Runs the packet, and stores its trace.
    pub(crate) fn run(&mut self, store: &Store, tables: &TableReplica, ports: KnownPorts) {
        let Self {
            switch,
            port,
            packet,
            now_us,
            trace,
        } = self;
        switch.engine().trace().begin(*port, packet, ports);
        let input = PacketIn {
            data: packet,
            port: *port,
            now_us: *now_us,
        };
        switch.process(tables, store.externs(), input, &mut Nowhere);
        *trace = Some(switch.engine().trace().end(0, *now_us));
    }

    /// Removes and returns the trace. `None` if no worker has run the packet.
    pub(crate) fn take(&mut self) -> Option<PacketTrace> {
        self.trace.take()
    }
}

/// A sink that discards the packets of a dry run.
struct Nowhere;

impl Sink for Nowhere {
    fn transmit(&mut self, _: u32, _: &[u8]) {}

    fn digest(&mut self, _: DigestId, _: &[u8]) {}
}
