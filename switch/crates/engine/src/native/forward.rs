// SPDX-License-Identifier: Apache-2.0
//! A packet's whole way in one function: parser, ingress, egress, deparser, and between them what the traffic manager
//! does with a packet for which nothing else was asked.
//!
//! ```text
//! parser -> ingress -> asked? -> egress_spec -> egress -> asked? -> egress_spec -> deparser
//!    |                   |           |                      |           |             |
//!  limit           the manager    dropped              the manager   dropped   headers are written
//! ```
//!
//! What is certain at the end of ingress, which headers are valid above all, is so in egress and in the deparser. Where
//! the program asked for something (a clone, a digest, another pass, a multicast group), the priority is that of no queue,
//! or packets may have to wait for egress ([`crate::Congestion`]), the function ends, with the packet as the traffic
//! manager ([`crate::Switch`]) expects it to be between two parts.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I64};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Variable;
use sluice_program::{Program, Slot};

use super::frame::Frame;
use super::lower::Lower;
use super::pipeline::Graph;
use super::variants::Interest;
use crate::interpreter::Way;
use crate::packet::InstanceType;

/// An egress of more steps is not compiled twice.
const MOST_STEPS: usize = 128;

/// The function's result: what became of the packet, above it how many bytes of headers were written, and the port.
const BYTES: u32 = 8;
const PORT: u32 = 32;

const INGRESS: u64 = 0;
/// The parser returns it ([`Lower::parser`]).
const PARSER_LIMIT: u64 = 1;
const DROPPED_INGRESS: u64 = 2;
const EGRESS: u64 = 3;
const DROPPED_EGRESS: u64 = 4;
const DEPARSED: u64 = 5;

/// What became of the packet, and how many bytes of headers were written.
#[inline(always)]
pub(super) fn result(word: u64) -> (Way, usize) {
    let port = (word >> PORT) as u32;
    let way = match word & ((1 << BYTES) - 1) {
        DEPARSED => Way::Deparsed(port),
        INGRESS => Way::Ingress,
        PARSER_LIMIT => Way::ParserLimit,
        DROPPED_INGRESS => Way::DroppedIngress,
        EGRESS => Way::Egress(port),
        _ => Way::DroppedEgress,
    };
    (way, (word & ((1 << PORT) - 1)) as usize >> BYTES)
}

/// Whether a program's whole way is one function: none of it is too long, and its headers can be counted.
fn is_whole(program: &Program) -> bool {
    let headers = program.deparser.order.iter();
    let bytes: u64 = headers.map(|id| u64::from(program.header(*id).bytes)).sum();
    let steps = super::pipeline::order(program, &program.egress).len();
    bytes < 1 << (PORT - BYTES) && steps <= MOST_STEPS
}

/// Where the function goes on between its parts.
struct Ends {
    /// The traffic manager goes on after ingress.
    manager: Block,
    dropped: Block,
    /// Where the packet leaves, from the end of ingress on.
    port: Variable,
}

impl Lower<'_> {
    /// The function.
    pub(super) fn forward(&mut self) {
        let program = self.program;
        // A profile is told of each part by who calls it.
        let whole = is_whole(program) && !self.config.profile;
        let (mut behind_egress, mut behind_ingress) = (Interest::default(), Interest::default());
        if whole {
            behind_egress.end_of_egress(program);
        }
        let mut egress = self.graph(&program.egress, behind_egress);
        if whole {
            behind_ingress.end_of_ingress(program, self.facts);
            behind_ingress.extend(&egress.interest());
        }
        let mut ingress = self.graph(&program.ingress, behind_ingress);
        let interest = ingress.interest();
        self.parser(&interest, &mut |lower| lower.enter_pipeline(&mut ingress));
        let ends = Ends {
            manager: self.b.create_block(),
            dropped: self.b.create_block(),
            port: self.b.declare_var(I64),
        };
        for block in self.pipeline(ingress) {
            self.enter(block);
            if whole {
                self.after_ingress(&ends, &mut egress);
            } else {
                self.finish(INGRESS);
            }
        }
        for block in self.pipeline(egress) {
            self.enter(block);
            self.after_egress(&ends);
        }
        for (block, result) in [(ends.manager, INGRESS), (ends.dropped, DROPPED_INGRESS)] {
            if self.is_reached(block) {
                self.enter(block);
                self.finish(result);
            }
        }
    }

    /// Whether the program asked the traffic manager for something.
    fn asked(&mut self) -> Value {
        let place = self.frame_field(offset_of!(Frame<'static>, asked));
        self.load(I8, place, 0)
    }

    /// A metadata field as the traffic manager reads it: 32 bits.
    fn standard(&mut self, slot: Slot) -> Value {
        let word = self.load_slot(self.phv, slot)[0];
        self.and(word, u32::MAX.into())
    }

    /// Whether the packet is to be dropped.
    fn is_dropped(&mut self, port: Value) -> Value {
        let drop_port = self.int(self.config.drop_port.into());
        self.compare(IntCC::Equal, port, drop_port)
    }

    /// From the end of ingress to the beginning of egress. Ends the block.
    fn after_ingress(&mut self, ends: &Ends, egress: &mut Graph) {
        let standard = &self.program.standard_metadata;
        self.b.set_cold_block(ends.manager);
        let asked = self.asked();
        self.unless(asked, ends.manager);
        if let Some(slot) = standard.mcast_grp {
            let group = self.standard(slot);
            let none = self.int(0);
            let some = self.compare(IntCC::NotEqual, group, none);
            self.unless(some, ends.manager);
        }
        let port = self.standard(standard.egress_spec);
        let dropped = self.is_dropped(port);
        if self.constant(dropped) == Some(1) {
            return self.jump(ends.dropped);
        }
        self.unless(dropped, ends.dropped);
        let priority = match standard.priority {
            Some(slot) => self.standard(slot),
            None => self.int(0),
        };
        let beyond = self.is_beyond_queues(priority);
        if self.constant(beyond) == Some(1) {
            return self.jump(ends.manager);
        }
        self.unless(beyond, ends.manager);
        self.b.def_var(ends.port, port);
        self.enter_egress(port, priority);
        self.enter_pipeline(egress);
    }

    /// Whether there is no queue of this priority.
    fn is_beyond_queues(&mut self, priority: Value) -> Value {
        match self.constant(priority) {
            Some(priority) => self.byte(priority >= self.config.queues.into()),
            None => {
                let queues = self.int(self.config.queues.into());
                let how = IntCC::UnsignedGreaterThanOrEqual;
                self.compare(how, priority, queues)
            }
        }
    }

    /// Goes on where the condition does not hold.
    fn unless(&mut self, condition: Value, otherwise: Block) {
        if self.constant(condition) == Some(0) {
            return;
        }
        let on = self.b.create_block();
        self.branch(condition, otherwise, on);
        self.enter(on);
    }

    /// What a packet has when it enters egress: as [`crate::standard::Standard`] writes it.
    fn enter_egress(&mut self, port: Value, priority: Value) {
        let standard = &self.program.standard_metadata;
        self.set_observed(Some(standard.instance_type), |lower| {
            lower.int(InstanceType::Normal as u64)
        });
        self.set_observed(Some(standard.egress_port), |_| port);
        // Anything but the drop port: egress drops by setting it.
        let none = u64::from(self.config.drop_port) + 1;
        self.store_constant(standard.egress_spec, none);
        self.set_observed(Some(standard.packet_length), |lower| {
            let place = lower.frame_field(offset_of!(Frame<'static>, length));
            lower.load(I64, place, 0)
        });
        for slot in [standard.egress_global_timestamp, standard.enq_timestamp] {
            self.set_observed(slot, |lower| {
                lower.frame_field(offset_of!(Frame<'static>, now_us))
            });
        }
        for slot in [
            standard.enq_qdepth,
            standard.deq_qdepth,
            standard.deq_timedelta,
        ] {
            self.set_observed(slot, |lower| lower.int(0));
        }
        self.set_observed(standard.qid, |_| priority);
    }

    /// Writes a metadata field, if somebody looks at it.
    pub(super) fn set_observed(
        &mut self,
        slot: Option<Slot>,
        value: impl FnOnce(&mut Self) -> Value,
    ) {
        if let Some(slot) = slot
            && self.facts.is_observed(slot)
        {
            let value = value(self);
            let value = self.resize(vec![value], usize::from(slot.width).div_ceil(64));
            self.store_slot(self.phv, slot, &value);
        }
    }

    /// From the end of egress to the end of the function. Ends the block.
    fn after_egress(&mut self, ends: &Ends) {
        let program = self.program;
        if program.egress.first.is_some() {
            let [asked, dropped] = [(); 2].map(|()| self.b.create_block());
            self.b.set_cold_block(asked);
            let condition = self.asked();
            self.unless(condition, asked);
            let port = self.standard(program.standard_metadata.egress_spec);
            let condition = self.is_dropped(port);
            self.unless(condition, dropped);
            self.send(ends);
            if self.is_reached(asked) {
                self.enter(asked);
                let port = self.b.use_var(ends.port);
                let none = self.int(0);
                self.leave(EGRESS, none, port);
            }
            if self.is_reached(dropped) {
                self.enter(dropped);
                self.finish(DROPPED_EGRESS);
            }
        } else {
            self.send(ends);
        }
    }

    /// Ends the function with the headers written.
    fn send(&mut self, ends: &Ends) {
        self.deparser(&|lower, bytes| {
            let port = lower.b.use_var(ends.port);
            lower.leave(DEPARSED, bytes, port);
        });
    }

    /// Ends the function.
    fn leave(&mut self, kind: u64, bytes: Value, port: Value) {
        let bytes = self.shl(bytes, BYTES);
        let low = match self.constant(bytes) {
            Some(bytes) => self.int(bytes | kind),
            None => self.b.ins().bor_imm_u(bytes, kind as i64),
        };
        let port = self.shl(port, PORT);
        let word = self.b.ins().bor(port, low);
        self.b.ins().return_(&[word]);
    }
}
