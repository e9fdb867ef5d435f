// SPDX-License-Identifier: Apache-2.0
//! The v1model architecture around an engine: processes a packet and all its copies from end to end.
//!
//! ```text
//! parser -> ingress -> clone, digest -> resubmit | multicast | drop | unicast
//!                                            [queue ->] egress -> clone -> drop | deparser -> recirculate | port
//! ```
//!
//! The order of decisions after ingress and egress is BMv2's (docs/simple_switch.md). Copies wait in a queue and are
//! processed one after the other, all with the same version of the tables. [`crate::Config::max_passes`] limits the
//! number of copies.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_program::{FieldListId, Program};
use sluice_tables::{CloneSession, Externs, Replica, TableReplica};

use crate::bits;
use crate::counters::Counters;
use crate::engine::{Context, Engine, Parsed, Progress};
use crate::packet::{InstanceType, Packet, PacketIn};
use crate::program_point::ProgramPoint;
use crate::queue::{Admission, Arrival, Congestion, QueueMetadata, Queued};
use crate::sink::Sink;
use crate::standard::StandardFields;
use crate::trace::{self, Fate, TraceStep};

/// The part of the program that a waiting packet enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStage {
    /// Parser and ingress.
    Ingress,
    /// Egress and deparser, for this port.
    Egress(u32),
}

/// An engine and the traffic manager around the engine. Each worker has its own traffic manager.
pub struct TrafficManager<E> {
    engine: E,
    standard: StandardFields,
    congestion: Congestion,
    /// The received packet.
    packet: Packet,
    out: Vec<u8>,
    program: Arc<Program>,
    waiting: VecDeque<(NextStage, Box<Packet>)>,
    /// Unused packets. Boxed, so that moving one to or from `waiting` moves only a pointer.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Packet>>,
    digest: Vec<u8>,
    passes: u32,
}

impl<E: Engine> TrafficManager<E> {
    /// Creates a traffic manager that runs packets through `engine`.
    pub fn new(engine: E) -> Self {
        let program = Arc::clone(engine.program());
        Self {
            standard: StandardFields::new(&program, |slot| engine.looks_at(slot)),
            congestion: engine.config().congestion.clone(),
            packet: Packet::new(&program),
            program,
            engine,
            waiting: VecDeque::new(),
            spare: Vec::new(),
            out: Vec::with_capacity(2048),
            digest: Vec::new(),
            passes: 0,
        }
    }

    /// Returns the packet counters.
    pub fn counters(&mut self) -> &Counters {
        self.engine.counters()
    }

    /// Returns the engine.
    pub fn engine(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Processes one packet and all its copies to the end.
    #[inline]
    pub fn process(
        &mut self,
        tables: &TableReplica,
        externs: &Externs,
        input: PacketIn<'_>,
        sink: &mut dyn Sink,
    ) {
        let context = Context {
            tables,
            externs,
            now_us: input.now_us,
            input: input.data,
        };
        self.engine.counters().received += 1;
        if self.engine.starts_packets() {
            self.packet.start_bare(input.data.len(), input.port);
        } else {
            self.packet.start(input.data.len(), input.port);
            self.standard.enter_ingress(&mut self.packet, input.now_us);
        }
        if self.congestion.is_on() {
            // This request makes native code stop at the end of ingress.
            self.packet.requested = true;
        }
        if self.engine.config().max_passes == 0 {
            return self.pass_limit();
        }
        let Self {
            engine,
            standard,
            packet,
            out,
            ..
        } = self;
        enter(engine, standard, trace::Stage::Ingress(input.port), packet);
        // Fast path: for most packets, this call does everything except sending.
        match engine.forward(context, packet, out, sink) {
            Progress::Deparsed(port) => send(engine, context, packet, out, port, sink),
            Progress::DroppedIngress => self.dropped_ingress(),
            progress => self.go_on(context, progress, sink),
        }
    }

    /// Processes the received packet to its end, then the copies of the packet.
    #[inline(never)]
    fn go_on(&mut self, context: Context<'_>, progress: Progress, sink: &mut dyn Sink) {
        let mut packet = self.take_spare();
        std::mem::swap(&mut *packet, &mut self.packet);
        self.passes = 1;
        self.after_forward(context, progress, &mut packet, sink);
        self.spare.push(packet);
        self.run_copies(context, sink);
    }

    fn run_copies(&mut self, context: Context<'_>, sink: &mut dyn Sink) {
        while let Some((stage, packet)) = self.waiting.pop_front() {
            self.run(context, stage, packet, sink);
        }
    }

    /// Processes a packet that leaves a queue, and all its copies, to the end. `depth` is the number of packets that
    /// remain in the queue. Afterwards, `queued` may hold another packet of the same program, so that the caller can
    /// reuse its buffers.
    ///
    /// Invariant: native code accepts every queued packet. An interpreter accepts only packets that an interpreter has
    /// queued.
    pub fn leave_queue(
        &mut self,
        tables: &TableReplica,
        externs: &Externs,
        now_us: u64,
        queued: &mut Queued,
        depth: u32,
        sink: &mut dyn Sink,
    ) {
        let context = Context {
            tables,
            externs,
            now_us,
            input: &queued.data,
        };
        self.passes = queued.passes;
        let queue_metadata = QueueMetadata {
            enqueued_us: queued.enqueued_us,
            enqueued_depth: queued.enqueued_depth,
            delay_us: now_us.saturating_sub(queued.enqueued_us),
            dequeued_depth: depth,
            priority: queued.priority,
        };
        self.enter_egress(
            context,
            queued.port,
            &mut queued.packet,
            queue_metadata,
            sink,
        );
        self.run_copies(context, sink);
    }

    fn take_spare(&mut self) -> Box<Packet> {
        self.spare
            .pop()
            .unwrap_or_else(|| Box::new(Packet::new(&self.program)))
    }

    fn run(
        &mut self,
        context: Context<'_>,
        stage: NextStage,
        mut packet: Box<Packet>,
        sink: &mut dyn Sink,
    ) {
        self.passes += 1;
        if self.passes > self.engine.config().max_passes {
            self.pass_limit();
        } else {
            match stage {
                NextStage::Ingress => self.ingress(context, &mut packet, sink),
                NextStage::Egress(port) => self.egress(context, port, &mut packet, sink),
            }
        }
        self.spare.push(packet);
    }

    #[cold]
    fn pass_limit(&mut self) {
        self.engine.counters().dropped_pass_limit += 1;
        self.fate(Fate::PassLimit);
    }

    /// Processes a resubmitted or recirculated packet, from the parser on.
    fn ingress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        let stage = trace::Stage::Ingress(packet.ingress_port);
        enter(&mut self.engine, &self.standard, stage, packet);
        let progress = if self.waiting.is_empty() && !self.congestion.is_on() {
            self.engine.forward(context, packet, &mut self.out, sink)
        } else {
            // The engine must stop after ingress: either packets in `waiting` come before this packet's egress, or this
            // packet may have to wait in a port's queue.
            match self.engine.receive(context, packet, sink) {
                Parsed::Done => Progress::Ingress,
                Parsed::Limit => Progress::ParserLimit,
            }
        };
        self.after_forward(context, progress, packet, sink);
    }

    /// Continues to process a packet at the point where the engine stopped.
    fn after_forward(
        &mut self,
        context: Context<'_>,
        progress: Progress,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) {
        match progress {
            Progress::Deparsed(port) => {
                send(&mut self.engine, context, packet, &mut self.out, port, sink);
            }
            Progress::DroppedIngress => self.dropped_ingress(),
            Progress::Ingress => self.after_ingress(context, packet, sink),
            Progress::Egress(port) => self.after_egress(context, port, packet, sink),
            Progress::DroppedEgress => self.dropped_egress(),
            Progress::ParserLimit => {
                self.engine.counters().dropped_parser_limit += 1;
                self.fate(Fate::ParserLimit);
            }
        }
    }

    fn dropped_ingress(&mut self) {
        self.engine.counters().dropped_ingress += 1;
        self.fate(Fate::DroppedIngress);
    }

    fn dropped_egress(&mut self) {
        self.engine.counters().dropped_egress += 1;
        self.fate(Fate::DroppedEgress);
    }

    /// Decides what happens to a packet after ingress.
    fn after_ingress(&mut self, context: Context<'_>, packet: &mut Packet, sink: &mut dyn Sink) {
        self.back();
        if packet.requested && self.is_resubmitted(context, packet, sink) {
            return self.replaced(Fate::Resubmitted);
        }
        let group = self.standard.multicast_group(packet);
        if group != 0 {
            self.standard
                .set_instance_type(packet, InstanceType::Replicated);
            return self.multicast(context, packet, group);
        }
        let port = self.standard.egress_spec(packet);
        if port == self.engine.config().drop_port {
            return self.dropped_ingress();
        }
        self.standard
            .set_instance_type(packet, InstanceType::Normal);
        if self.waiting.is_empty() {
            self.egress(context, port, packet, sink);
        } else {
            // The packet's clones are in `waiting`, and come before the packet itself.
            let mut moved = self.take_spare();
            std::mem::swap(&mut *moved, packet);
            self.waiting.push_back((NextStage::Egress(port), moved));
        }
    }

    /// Executes the requests that the program made in ingress. Returns whether the packet is resubmitted. A request for
    /// recirculation stays until the end of egress.
    #[cold]
    fn is_resubmitted(
        &mut self,
        context: Context<'_>,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) -> bool {
        let requests = packet.take_requests();
        if let Some(clone) = requests.clone {
            self.clone_ingress(context, packet, clone.session, clone.preserve, sink);
        }
        if let Some(digest) = requests.digest {
            self.send_digest(packet, digest, sink);
        }
        if let Some(list) = requests.recirculate {
            packet.request().recirculate = Some(list);
        }
        let Some(list) = requests.resubmit else {
            return false;
        };
        self.resubmit(context, packet, list);
        true
    }

    /// Sends a packet to this port's egress, through a queue if it has to wait.
    fn egress(
        &mut self,
        context: Context<'_>,
        port: u32,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) {
        let priority = self.standard.priority(packet);
        if priority >= self.engine.config().queues {
            self.engine.counters().dropped_priority += 1;
            return self.fate(Fate::Priority(priority));
        }
        if self.congestion.is_on() {
            let mut arrival = Arrival {
                program: &self.program,
                packet,
                input: context.input,
                passes: self.passes,
                port,
                priority,
                now_us: context.now_us,
            };
            match sink.queue(&mut arrival) {
                Admission::Pass => {}
                Admission::Waits => return self.fate(Fate::Queued { port, priority }),
                Admission::Full => {
                    self.engine.counters().dropped_queue_full += 1;
                    return self.fate(Fate::QueueFull { port, priority });
                }
            }
        }
        let queue_metadata = QueueMetadata::passing(context.now_us, priority);
        self.enter_egress(context, port, packet, queue_metadata, sink);
    }

    fn enter_egress(
        &mut self,
        context: Context<'_>,
        port: u32,
        packet: &mut Packet,
        queue_metadata: QueueMetadata,
        sink: &mut dyn Sink,
    ) {
        let drop_port = self.engine.config().drop_port;
        self.standard
            .enter_egress(packet, port, context.now_us, drop_port, queue_metadata);
        let stage = trace::Stage::Egress(port);
        enter(&mut self.engine, &self.standard, stage, packet);
        self.engine.egress(context, packet, sink);
        self.after_egress(context, port, packet, sink);
    }

    /// Decides what happens to a packet after egress.
    fn after_egress(
        &mut self,
        context: Context<'_>,
        port: u32,
        packet: &mut Packet,
        sink: &mut dyn Sink,
    ) {
        self.back();
        let requests = packet.take_requests();
        if let Some(clone) = requests.clone {
            self.clone_egress(context, packet, clone.session, clone.preserve);
        }
        if self.standard.egress_spec(packet) == self.engine.config().drop_port {
            return self.dropped_egress();
        }
        self.engine.deparse(context, packet, &mut self.out, sink);
        self.back();
        if let Some(list) = requests.recirculate {
            let mut out = std::mem::take(&mut self.out);
            out.truncate(packet.truncate);
            let payload = payload(packet, context, out.len());
            out.extend_from_slice(payload);
            self.recirculate(packet, list, &out);
            self.out = out;
            return self.replaced(Fate::Recirculated);
        }
        send(&mut self.engine, context, packet, &mut self.out, port, sink);
    }

    fn replaced(&mut self, fate: Fate) {
        self.engine.counters().replaced += 1;
        self.fate(fate);
    }

    #[inline]
    fn fate(&mut self, fate: Fate) {
        self.engine.note(TraceStep::Fate(fate));
    }

    /// Reports to the trace that the traffic manager has the packet again.
    #[inline]
    fn back(&mut self) {
        self.engine.note(TraceStep::At(ProgramPoint::Manager));
    }

    /// Appends a copy to the waiting packets.
    fn enqueue(&mut self, stage: NextStage, copy: Box<Packet>) {
        self.engine.counters().copies += 1;
        self.waiting.push_back((stage, copy));
    }

    /// Makes a copy of `packet`, truncated to `limit` bytes, for each replica. Drops copies beyond
    /// [`Config::max_passes`](crate::Config::max_passes).
    fn replicate(
        &mut self,
        tables: &TableReplica,
        packet: &Packet,
        replicas: &[Replica],
        limit: usize,
    ) {
        for replica in replicas {
            if self.waiting.len() as u32 >= self.engine.config().max_passes {
                self.engine.counters().copies += 1;
                self.engine.counters().dropped_pass_limit += 1;
                self.fate(Fate::PassLimit);
                continue;
            }
            let mut copy = self.take_spare();
            copy.copy_from(&self.program, packet);
            copy.truncate = limit;
            let (port, instance) = tables.destination(replica);
            self.standard.set_replica_instance(&mut copy, instance);
            self.enqueue(NextStage::Egress(port), copy);
        }
    }

    fn multicast(&mut self, context: Context<'_>, packet: &Packet, group: u32) {
        let replicas = context.tables.multicast(group);
        if replicas.is_empty() {
            self.engine.counters().dropped_no_replica += 1;
            return self.fate(Fate::NoReplica(group));
        }
        self.replicate(context.tables, packet, replicas, usize::MAX);
        let copies = replicas.len();
        self.replaced(Fate::Multicast { group, copies });
    }

    /// Returns a clone session, and reports that it clones the packet. If the session does not exist, counts and reports
    /// this instead.
    fn clone_session<'a>(&mut self, context: Context<'a>, id: u32) -> Option<&'a CloneSession> {
        let session = context.tables.clone_session(id);
        match session {
            Some(session) => self.fate(Fate::Cloned {
                session: id,
                copies: session.replicas.len(),
            }),
            None => {
                self.engine.counters().clone_no_session += 1;
                self.fate(Fate::NoSession(id));
            }
        }
        session
    }

    /// Makes a clone of the packet as it entered the parser. The clone is parsed again, and has only the preserved
    /// metadata.
    fn clone_ingress(
        &mut self,
        context: Context<'_>,
        packet: &Packet,
        id: u32,
        preserve: Option<FieldListId>,
        sink: &mut dyn Sink,
    ) {
        let Some(session) = self.clone_session(context, id) else {
            return;
        };
        let mut copy = self.take_spare();
        copy.start_again(packet, context.input);
        self.standard.enter_ingress(&mut copy, context.now_us);
        if self.engine.parse(context, &mut copy, sink) == Parsed::Done {
            copy.preserve(&self.program, preserve, packet);
            self.standard
                .set_instance_type(&mut copy, InstanceType::IngressClone);
            self.replicate(context.tables, &copy, &session.replicas, limit(session));
        }
        self.spare.push(copy);
    }

    /// Makes a clone of the packet as it is at the end of egress. Of the metadata, the clone has only the preserved
    /// fields.
    fn clone_egress(
        &mut self,
        context: Context<'_>,
        packet: &Packet,
        id: u32,
        preserve: Option<FieldListId>,
    ) {
        let Some(session) = self.clone_session(context, id) else {
            return;
        };
        let mut copy = self.take_spare();
        copy.copy_from(&self.program, packet);
        copy.preserve(&self.program, preserve, packet);
        self.standard
            .set_instance_type(&mut copy, InstanceType::EgressClone);
        self.replicate(context.tables, &copy, &session.replicas, limit(session));
        self.spare.push(copy);
    }

    /// Makes the packet enter the parser again, with the bytes that it had at its last entry.
    fn resubmit(&mut self, context: Context<'_>, packet: &Packet, list: Option<FieldListId>) {
        let mut copy = self.take_spare();
        copy.start_again(packet, context.input);
        copy.preserve(&self.program, list, packet);
        self.standard.enter_ingress(&mut copy, context.now_us);
        self.standard
            .set_instance_type(&mut copy, InstanceType::Resubmitted);
        self.enqueue(NextStage::Ingress, copy);
    }

    /// Makes the packet enter the parser with the bytes that would have been sent, and without an ingress port.
    fn recirculate(&mut self, packet: &Packet, list: Option<FieldListId>, data: &[u8]) {
        let mut copy = self.take_spare();
        copy.start_recirculated(data);
        copy.preserve(&self.program, list, packet);
        self.standard.set_length(&mut copy);
        self.standard
            .set_instance_type(&mut copy, InstanceType::Recirculated);
        self.enqueue(NextStage::Ingress, copy);
    }

    fn send_digest(&mut self, packet: &Packet, id: sluice_program::DigestId, sink: &mut dyn Sink) {
        self.digest.clear();
        for (_, slot) in &self.program.digest(id).fields {
            let start = self.digest.len();
            self.digest.resize(start + slot.bytes(), 0);
            bits::load_padded(&packet.phv.bytes, *slot, &mut self.digest[start..]);
        }
        sink.digest(id, &self.digest);
        self.engine.counters().digests += 1;
    }
}

/// Reports to the trace, if there is one, which stage a packet enters.
#[inline]
fn enter(
    engine: &mut impl Engine,
    standard: &StandardFields,
    stage: trace::Stage,
    packet: &Packet,
) {
    if engine.watched() {
        let kind = standard.instance_type(packet);
        engine.note(TraceStep::Enter(stage, kind));
    }
}

/// Sends a packet whose headers are written.
#[inline]
fn send(
    engine: &mut impl Engine,
    context: Context<'_>,
    packet: &Packet,
    out: &mut Vec<u8>,
    port: u32,
    sink: &mut dyn Sink,
) {
    out.truncate(packet.truncate);
    let payload = payload(packet, context, out.len());
    let bytes = out.len() + payload.len();
    sink.transmit_parts(port, out, payload);
    engine.counters().transmitted += 1;
    engine.note(TraceStep::Fate(Fate::Transmitted { port, bytes }));
}

/// Returns the payload after `headers` bytes of written headers, cut to the packet's length limit.
#[inline]
fn payload<'p>(packet: &'p Packet, context: Context<'p>, headers: usize) -> &'p [u8] {
    let payload = &packet.data(context.input)[packet.parsed..];
    &payload[..payload.len().min(packet.truncate - headers)]
}

/// Returns the number of bytes that copies of a clone session keep.
fn limit(session: &CloneSession) -> usize {
    if session.packet_length == 0 {
        usize::MAX
    } else {
        session.packet_length as usize
    }
}
