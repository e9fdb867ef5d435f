// SPDX-License-Identifier: Apache-2.0
//! Generates code for direct and indirect counters. To count a packet, the code adds 1 to the number of packets, and
//! the packet's length to the number of bytes. The additions are atomic unless no other thread counts at the same time.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Value};
use sluice_program::CounterId;
use sluice_tables::{CounterCell, EntryState, Externs};

use crate::codegen::lower::Lower;
use crate::runtime::frame::Frame;

impl Lower<'_> {
    /// Counts the packet in a cell of an indirect counter. If the index is beyond the end of the array, counts an
    /// out-of-range access instead.
    pub(crate) fn count(&mut self, id: CounterId, index: Value) {
        let cells = Externs::cells_of(self.program, id);
        let size = self.int(cells.len() as u64);
        let exists = match self.constant(index) {
            Some(index) => self.byte(index < cells.len() as u64),
            None => self.compare(IntCC::UnsignedLessThan, index, size),
        };
        let missing = self.b.create_block();
        let (there, after) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(missing);
        self.branch(exists, there, missing);
        if self.is_reached(there) {
            self.enter(there);
            let all = self.frame_field(offset_of!(Frame<'static>, cells));
            let offset = self.shl(index, size_of::<CounterCell>().ilog2());
            let place = self.b.ins().iadd(all, offset);
            let first = cells.start * size_of::<CounterCell>();
            let cell = self.b.ins().iadd_imm_s(place, first as i64);
            self.add_packet(cell, [CounterCell::PACKETS, CounterCell::BYTES]);
            self.jump(after);
        }
        if self.is_reached(missing) {
            self.enter(missing);
            self.out_of_range();
            self.jump(after);
        }
        self.enter(after);
    }

    /// Counts the packet in the packet state of an entry ([`EntryState`]), and stores the packet's time there as the
    /// time of the last hit.
    pub(crate) fn leave_behind(&mut self, state: Value) {
        // Order: the time is stored before the branch to atomic or plain additions. So the compiler computes the
        // address of the state only once, before this branch.
        let now = self.frame_field(offset_of!(Frame<'static>, now_us));
        self.store(now, state, EntryState::LAST_HIT as u32);
        let counter = EntryState::COUNTER;
        self.add_packet(state, [counter, counter + CounterCell::BYTES]);
    }

    /// Adds 1 and the packet's bytes to the two numbers at these offsets.
    fn add_packet(&mut self, base: Value, offsets: [usize; 2]) {
        let alone = self.frame_field(offset_of!(Frame<'static>, alone));
        let [yes, no, after] = [(); 3].map(|()| self.b.create_block());
        self.b.set_cold_block(no);
        self.branch(alone, yes, no);
        for (block, alone) in [(yes, true), (no, false)] {
            self.enter(block);
            let bytes = self.frame_field(offset_of!(Frame<'static>, ingress_length));
            for (offset, more) in offsets.into_iter().zip([self.int(1), bytes]) {
                if alone {
                    let before = self.load(I64, base, offset as u32);
                    let sum = self.b.ins().iadd(before, more);
                    self.store(sum, base, offset as u32);
                } else {
                    let place = self.b.ins().iadd_imm_s(base, offset as i64);
                    let flags = MemFlagsData::trusted();
                    let how = AtomicRmwOp::Add;
                    self.b.ins().atomic_rmw(I64, flags, how, place, more);
                }
            }
            self.jump(after);
        }
        self.enter(after);
    }
}
