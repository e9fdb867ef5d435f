// SPDX-License-Identifier: Apache-2.0
//! Implements the native engine with a profile. The engine's machine code reports to the [`Profile`] which points of
//! the program packets reach.

use std::sync::Arc;

use sluice_engine::{
    Config, Context, Counters, Engine, Packet, Parsed, Profile, Profiled, Sink, TraceStep,
};
use sluice_program::{FieldSlot, Program};

use crate::codegen::compile::Code;
use crate::engine::Native;

/// Engine with a profile. [`Code::compile`] generates code for this engine if [`Config::profile`] is set. This code has
/// the same results as code without a profile. But it tests every condition on a packet's path, even one whose outcome
/// is certain, so that all conditions are reported.
pub struct NativeProfiled(Native);

impl NativeProfiled {
    /// Creates an engine that runs this code.
    ///
    /// # Panics
    /// Panics if the code was compiled without a profile.
    pub fn new(code: Arc<Code>, config: Config) -> Self {
        assert!(code.config().profile, "compiled without a profile");
        let profile = Profile::new(code.program());
        let mut native = Native::new(code, config);
        native.worker.profile = Some(Box::new(profile));
        Self(native)
    }
}

impl Profiled for NativeProfiled {
    fn profile(&mut self) -> &mut Profile {
        let profile = &mut self.0.worker.profile;
        profile.as_mut().expect("a profiled engine has a profile")
    }
}

impl Engine for NativeProfiled {
    fn program(&self) -> &Arc<Program> {
        self.0.program()
    }

    fn config(&self) -> &Config {
        self.0.config()
    }

    fn counters(&mut self) -> &mut Counters {
        self.0.counters()
    }

    fn looks_at(&self, slot: FieldSlot) -> bool {
        self.0.looks_at(slot)
    }

    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed {
        self.0.parse(context, packet, sink)
    }

    fn receive(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) -> Parsed {
        self.0.receive(context, packet, sink)
    }

    fn egress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        self.0.egress(context, packet, sink);
    }

    fn deparse(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        out: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) {
        self.0.deparse(context, packet, out, sink);
    }

    fn note(&mut self, step: TraceStep<'_>) {
        if let TraceStep::At(point) = step {
            let index = point.index(self.0.program());
            self.profile().enter(index);
        }
    }
}
