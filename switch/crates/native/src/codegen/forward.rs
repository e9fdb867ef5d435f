// SPDX-License-Identifier: Apache-2.0
//! Compiles the whole packet path to one function: parser, ingress, egress and deparser. Between these parts, the
//! program may request work from the traffic manager, such as a clone. For packets without such *requests*, the
//! function itself continues with the next part.
//!
//! ```text
//! parser -> ingress -> requests? -> egress_spec -> egress -> requests? -> egress_spec -> deparser
//!    |                     |             |                       |             |            |
//!  limit           traffic manager    dropped            traffic manager    dropped   headers written
//! ```
//!
//! At the end of ingress, some facts are certain, such as the validity of headers. Egress and deparser need not test
//! them again. The function ends between two parts if:
//!
//! - the program requested a clone, a digest, another pass or a multicast group;
//! - no queue has the packet's priority;
//! - packets may have to wait for egress ([`sluice_engine::Congestion`]).
//!
//! The packet is then in the state that the traffic manager ([`sluice_engine::TrafficManager`]) expects there.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I64};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Variable;
use sluice_engine::{InstanceType, Progress};
use sluice_program::{FieldSlot, Program};

use crate::codegen::lower::Lower;
use crate::codegen::pipeline::Graph;
use crate::codegen::variants::FactUses;
use crate::runtime::frame::Frame;

/// Maximum number of steps of an egress pipeline that is compiled as a part of this function. A longer egress pipeline
/// is compiled only as a separate function.
const MOST_STEPS: usize = 128;

/// Layout of the function's result. The low bits hold the outcome, one of the constants below. The number of header
/// bytes written starts at bit `BYTES`, and the port at bit `PORT`.
const BYTES: u32 = 8;
const PORT: u32 = 32;

const INGRESS: u64 = 0;
/// Outcomes. The code of [`Lower::parser`] returns the first one.
const PARSER_LIMIT: u64 = 1;
const DROPPED_INGRESS: u64 = 2;
const EGRESS: u64 = 3;
const DROPPED_EGRESS: u64 = 4;
const DEPARSED: u64 = 5;

/// Decodes the function's result: the outcome for the packet, and the number of header bytes written.
#[inline(always)]
pub(crate) fn result(word: u64) -> (Progress, usize) {
    let port = (word >> PORT) as u32;
    let progress = match word & ((1 << BYTES) - 1) {
        DEPARSED => Progress::Deparsed(port),
        INGRESS => Progress::Ingress,
        PARSER_LIMIT => Progress::ParserLimit,
        DROPPED_INGRESS => Progress::DroppedIngress,
        EGRESS => Progress::Egress(port),
        _ => Progress::DroppedEgress,
    };
    (progress, (word & ((1 << PORT) - 1)) as usize >> BYTES)
}

/// Returns whether a program's whole packet path is compiled to one function. The conditions are that egress is short
/// enough, and that the number of header bytes fits in the result.
fn is_whole(program: &Program) -> bool {
    let headers = program.deparser.order.iter();
    let bytes: u64 = headers.map(|id| u64::from(program.header(*id).bytes)).sum();
    let steps = crate::codegen::pipeline::order(program, &program.egress).len();
    bytes < 1 << (PORT - BYTES) && steps <= MOST_STEPS
}

/// Blocks at which the function ends, and state that its parts share.
struct Ends {
    /// Ends the function after ingress, so that the traffic manager continues with the packet.
    manager: Block,
    dropped: Block,
    /// Egress port, set at the end of ingress.
    port: Variable,
}

impl Lower<'_> {
    /// Generates the function.
    pub(crate) fn forward(&mut self) {
        let program = self.program;
        // With a profile, the function ends after ingress, because the caller reports each part to the profile.
        let whole = is_whole(program) && !self.config.profile;
        let (mut behind_egress, mut behind_ingress) = (FactUses::default(), FactUses::default());
        if whole {
            behind_egress.end_of_egress(program);
        }
        let mut egress = self.graph(&program.egress, behind_egress);
        if whole {
            behind_ingress.end_of_ingress(program, self.facts);
            behind_ingress.extend(&egress.uses());
        }
        let mut ingress = self.graph(&program.ingress, behind_ingress);
        let uses = ingress.uses();
        self.parser(&uses, &mut |lower| lower.enter_pipeline(&mut ingress));
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

    /// Returns whether the program requested something from the traffic manager.
    fn requested(&mut self) -> Value {
        let place = self.frame_field(offset_of!(Frame<'static>, requested));
        self.load(I8, place, 0)
    }

    /// Loads the low 32 bits of a metadata field. The traffic manager uses the same bits.
    fn standard(&mut self, slot: FieldSlot) -> Value {
        let word = self.load_slot(self.phv, slot)[0];
        self.and(word, u32::MAX.into())
    }

    /// Returns whether the packet must be dropped, given its `egress_spec`.
    fn is_dropped(&mut self, port: Value) -> Value {
        let drop_port = self.int(self.config.drop_port.into());
        self.compare(IntCC::Equal, port, drop_port)
    }

    /// Generates the code from the end of ingress to the start of egress. Ends the block.
    fn after_ingress(&mut self, ends: &Ends, egress: &mut Graph) {
        let standard = &self.program.standard_metadata;
        self.b.set_cold_block(ends.manager);
        let requested = self.requested();
        self.unless(requested, ends.manager);
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

    /// Returns whether a port has no queue of this priority.
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

    /// Generates code that jumps to `otherwise` if the condition holds, and continues if it does not hold.
    fn unless(&mut self, condition: Value, otherwise: Block) {
        if self.constant(condition) == Some(0) {
            return;
        }
        let on = self.b.create_block();
        self.branch(condition, otherwise, on);
        self.enter(on);
    }

    /// Writes the standard metadata of a packet that enters egress, as `Standard` of the traffic manager does.
    fn enter_egress(&mut self, port: Value, priority: Value) {
        let standard = &self.program.standard_metadata;
        self.set_observed(Some(standard.instance_type), |lower| {
            lower.int(InstanceType::Normal as u64)
        });
        self.set_observed(Some(standard.egress_port), |_| port);
        // Must differ from the drop port, because egress drops a packet by writing the drop port.
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

    /// Writes a metadata field if it is read from the header vector.
    pub(crate) fn set_observed(
        &mut self,
        slot: Option<FieldSlot>,
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

    /// Generates the code from the end of egress to the end of the function. Ends the block.
    fn after_egress(&mut self, ends: &Ends) {
        let program = self.program;
        if program.egress.first.is_some() {
            let [requested, dropped] = [(); 2].map(|()| self.b.create_block());
            self.b.set_cold_block(requested);
            let condition = self.requested();
            self.unless(condition, requested);
            let port = self.standard(program.standard_metadata.egress_spec);
            let condition = self.is_dropped(port);
            self.unless(condition, dropped);
            self.send(ends);
            if self.is_reached(requested) {
                self.enter(requested);
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

    /// Writes the headers and ends the function.
    fn send(&mut self, ends: &Ends) {
        self.deparser(&|lower, bytes| {
            let port = lower.b.use_var(ends.port);
            lower.leave(DEPARSED, bytes, port);
        });
    }

    /// Ends the function with this outcome, number of header bytes, and port.
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
