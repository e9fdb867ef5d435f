// SPDX-License-Identifier: Apache-2.0
//! One packet in the hands of the interpreter: what every step of it needs.

use sluice_program::Program;
use sluice_tables::{Externs, Side};

use crate::config::Config;
use crate::counters::Counters;
use crate::native::Waiting;
use crate::packet::{Packet, Sink};
use crate::profile::Profile;
use crate::random::Random;
use crate::trace::{Step, Trace};

/// What the tables and the clock say while a packet is processed.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The version of the tables that this packet sees.
    pub side: &'a Side,
    /// Counters, meters and registers.
    pub externs: &'a Externs,
    /// Now, in microseconds since the switch started.
    pub now_us: u64,
    /// The packet as it came in.
    pub input: &'a [u8],
}

/// Buffers and state that outlive a packet, so that the next one allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) key: Vec<u8>,
    pub(crate) hash_input: Vec<u8>,
    pub(crate) random: Random,
    pub(crate) counters: Counters,
    /// Of machine code that tells where packets are.
    pub(crate) profile: Option<Box<Profile>>,
    /// Of machine code in a lane.
    pub(crate) waiting: Option<Waiting>,
}

/// See the module.
pub(crate) struct Machine<'a, T> {
    pub(crate) program: &'a Program,
    pub(crate) config: &'a Config,
    pub(crate) context: Context<'a>,
    pub(crate) packet: &'a mut Packet,
    pub(crate) work: &'a mut Work,
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) trace: &'a mut T,
}

/// Whether an action or pipeline goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Exit,
}

impl<T: Trace> Machine<'_, T> {
    /// Tells whoever watches the packet; nothing at all when nobody can.
    #[inline(always)]
    pub(crate) fn note(&mut self, step: Step<'_>) {
        if T::ENABLED {
            self.trace.step(step);
        }
    }

    /// Notes an access beyond an array or stack.
    #[cold]
    pub(crate) fn out_of_range(&mut self) {
        self.work.counters.index_out_of_range += 1;
        self.note(Step::OutOfRange);
    }
}
