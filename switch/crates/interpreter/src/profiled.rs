// SPDX-License-Identifier: Apache-2.0
//! The interpreter with a profile.

use std::sync::Arc;

use sluice_engine::{Profile, Profiled, ProgramPoint, Trace, TraceStep};
use sluice_program::Program;

use crate::interpreter::Interpreter;

/// A trace for the interpreter that records a profile.
pub struct Clocked {
    program: Arc<Program>,
    profile: Profile,
}

impl Clocked {
    /// Creates a trace with an empty profile.
    pub fn new(program: &Arc<Program>) -> Self {
        Self {
            profile: Profile::new(program),
            program: Arc::clone(program),
        }
    }
}

impl Trace for Clocked {
    #[inline]
    fn step(&mut self, step: TraceStep<'_>) {
        let place = match step {
            TraceStep::State(id) => ProgramPoint::State(id),
            TraceStep::At(place) => place,
            _ => return,
        };
        self.profile.enter(place.index(&self.program));
    }
}

impl Profiled for Interpreter<Clocked> {
    fn profile(&mut self) -> &mut Profile {
        &mut self.trace().profile
    }
}
