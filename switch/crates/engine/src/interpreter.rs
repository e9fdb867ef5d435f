// SPDX-License-Identifier: Apache-2.0
//! The interpreter: the oracle that every faster engine must agree with.

use std::sync::Arc;

use sluice_program::{FieldListId, Program};

use crate::bits;
use crate::config::Config;
use crate::counters::Counters;
use crate::machine::{Context, Machine, Work};
use crate::number::Number;
use crate::packet::{InstanceType, Packet, Sink};
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

/// The parts of a v1model program, each run on the packet it is given. The traffic manager
/// ([`crate::Switch`]) decides what runs when.
pub trait Engine: Send {
    /// The program.
    fn program(&self) -> &Arc<Program>;

    /// How it was set up.
    fn config(&self) -> &Config;

    /// Counters of what happens inside the parts, and of what the traffic manager does.
    fn counters(&mut self) -> &mut Counters;

    /// Runs the parser and verifies checksums.
    fn parse(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) -> Parsed;

    /// Runs the ingress pipeline.
    fn ingress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink);

    /// Runs the egress pipeline.
    fn egress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink);

    /// Updates checksums and writes the packet to `out`, which is cleared first.
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

    fn ingress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        let mut machine = self.machine(context, packet, sink);
        let program = machine.program;
        machine.run_pipeline(&program.ingress);
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
        out.extend_from_slice(&packet.data[packet.parsed..]);
        out.truncate(packet.truncate);
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

/// Metadata that the architecture reads and writes around the pipelines.
impl Packet {
    pub(crate) fn set_instance_type(&mut self, program: &Program, ty: InstanceType) {
        (ty as i64).store(&mut self.phv.bytes, program.standard_metadata.instance_type);
    }

    /// `instance_type` as it is now.
    #[inline]
    pub(crate) fn instance_type(&self, program: &Program) -> u32 {
        i64::load(&self.phv.bytes, program.standard_metadata.instance_type) as u32
    }

    /// What a packet has when it enters the parser.
    pub(crate) fn set_ingress_metadata(&mut self, program: &Program, now_us: u64) {
        let standard = &program.standard_metadata;
        let bytes = &mut self.phv.bytes;
        i64::from(self.ingress_port).store(bytes, standard.ingress_port);
        (self.length as i64).store(bytes, standard.packet_length);
        if let Some(slot) = standard.ingress_global_timestamp {
            (now_us as i64).store(bytes, slot);
        }
    }

    /// What a packet has when it enters egress. Queues are never longer than what one worker holds
    /// in its hands, so their depth and delay are 0.
    pub(crate) fn set_egress_metadata(
        &mut self,
        program: &Program,
        port: u32,
        now_us: u64,
        drop_port: u32,
    ) {
        let standard = &program.standard_metadata;
        let bytes = &mut self.phv.bytes;
        i64::from(port).store(bytes, standard.egress_port);
        // Anything but the drop port: egress drops by setting it.
        (i64::from(drop_port) + 1).store(bytes, standard.egress_spec);
        (self.length as i64).store(bytes, standard.packet_length);
        for slot in [standard.egress_global_timestamp, standard.enq_timestamp]
            .into_iter()
            .flatten()
        {
            (now_us as i64).store(bytes, slot);
        }
        for slot in [
            standard.enq_qdepth,
            standard.deq_qdepth,
            standard.deq_timedelta,
        ]
        .into_iter()
        .flatten()
        {
            0i64.store(bytes, slot);
        }
    }

    /// The length alone, for a packet whose metadata was preserved from another.
    pub(crate) fn set_length(&mut self, program: &Program) {
        let slot = program.standard_metadata.packet_length;
        (self.length as i64).store(&mut self.phv.bytes, slot);
    }

    pub(crate) fn set_replica_instance(&mut self, program: &Program, instance: u16) {
        if let Some(slot) = program.standard_metadata.egress_rid {
            i64::from(instance).store(&mut self.phv.bytes, slot);
        }
    }

    /// `egress_spec` as ingress or egress left it.
    pub(crate) fn egress_spec(&self, program: &Program) -> u32 {
        i64::load(&self.phv.bytes, program.standard_metadata.egress_spec) as u32
    }

    /// The multicast group that ingress asked for; 0 for none.
    pub(crate) fn multicast_group(&self, program: &Program) -> u32 {
        let slot = program.standard_metadata.mcast_grp;
        slot.map_or(0, |slot| i64::load(&self.phv.bytes, slot) as u32)
    }

    /// Resets metadata but for the fields of a list, which take the values they have in `from`.
    pub(crate) fn preserve(&mut self, program: &Program, list: Option<FieldListId>, from: &Self) {
        self.phv.reset_metadata();
        for slot in list
            .iter()
            .flat_map(|list| &program.field_list(*list).fields)
        {
            let (bit, width) = (slot.bit(), usize::from(slot.width));
            bits::copy_bits(&from.phv.bytes, bit, &mut self.phv.bytes, bit, width);
        }
    }
}
