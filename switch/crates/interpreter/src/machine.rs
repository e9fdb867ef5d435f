// SPDX-License-Identifier: Apache-2.0
//! The interpreter's state while it processes one packet.

use sluice_engine::{Config, Context, Counters, Packet, Sink, Trace, TraceStep};
use sluice_program::Program;
use sluice_random::Random;

/// Buffers and state that are kept between packets, so that a packet allocates no memory.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    pub(crate) key: Vec<u8>,
    pub(crate) hash_input: Vec<u8>,
    pub(crate) random: Random,
    pub(crate) counters: Counters,
}

/// The interpreter's state while it processes one packet.
pub(crate) struct Machine<'a, T> {
    pub(crate) program: &'a Program,
    pub(crate) config: &'a Config,
    pub(crate) context: Context<'a>,
    pub(crate) packet: &'a mut Packet,
    pub(crate) worker: &'a mut WorkerState,
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) trace: &'a mut T,
}

/// Outcome of an operation: the action or pipeline continues, or it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Exit,
}

impl<T: Trace> Machine<'_, T> {
    /// Reports a step to the trace. Without a trace, this compiles to no code.
    #[inline(always)]
    pub(crate) fn note(&mut self, step: TraceStep<'_>) {
        if T::ENABLED {
            self.trace.step(step);
        }
    }

    /// Counts and reports an access beyond the end of an array or stack.
    #[cold]
    pub(crate) fn out_of_range(&mut self) {
        self.worker.counters.index_out_of_range += 1;
        self.note(TraceStep::OutOfRange);
    }
}
