// SPDX-License-Identifier: Apache-2.0
//! Compiles the transitions of a state: the key and the cases of its `select`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use sluice_program::parser::{KeyPart, State, Transition, TransitionMatch};
use sluice_program::{StackId, StateId};

use super::Parsing;
use crate::analysis::calculation_input::words_of;
use crate::codegen::key::KeyField;
use crate::codegen::lower::Lower;
use crate::runtime::calls;

impl Lower<'_> {
    /// Returns the id of the last element of a stack. At run time, ends parsing with an error if the stack is empty.
    fn last(&mut self, level: usize, ids: Vec<u64>, parsing: &Parsing) -> Value {
        let filled = self.filled(level);
        let zero = self.int(0);
        let some = self.compare(IntCC::NotEqual, filled, zero);
        let error = self.program.core_errors.stack_out_of_bounds;
        self.check(some, error, parsing);
        let last = self.b.ins().iadd_imm_s(filled, -1);
        let address = self.statics.words(ids);
        self.constant_at(address, last)
    }

    fn stack_last(&mut self, stack: StackId, parsing: &Parsing) -> Value {
        let headers = self.program.stack(stack).headers.iter();
        let ids = headers.map(|id| u64::from(id.0)).collect();
        self.last(stack.index(), ids, parsing)
    }

    /// Returns the parts of a state's key, each in whole bytes.
    fn key_parts(&mut self, state: &State, parsing: &Parsing) -> Vec<KeyField> {
        let program = self.program;
        let mut offset = 0;
        let mut fields = Vec::new();
        for part in &state.key {
            let (width, value) = match part {
                KeyPart::Field(slot) => (usize::from(slot.width), self.load_slot(self.phv, *slot)),
                KeyPart::StackLast(stack, slot) => {
                    let id = self.stack_last(*stack, parsing);
                    let (_, base) = self.header_base(id);
                    (usize::from(slot.width), self.load_slot(base, *slot))
                }
                KeyPart::UnionStackLast(stack, member, slot) => {
                    let unions = program.union_stack(*stack).unions.iter();
                    let ids = unions
                        .map(|union| u64::from(program.union(*union).headers[*member].0))
                        .collect();
                    let level = program.stacks.len() + stack.index();
                    let id = self.last(level, ids, parsing);
                    let (_, base) = self.header_base(id);
                    (usize::from(slot.width), self.load_slot(base, *slot))
                }
                KeyPart::Lookahead(first, width) => {
                    (*width as usize, self.look_ahead(*first, *width, parsing))
                }
            };
            let bytes = width.div_ceil(8);
            fields.push(KeyField {
                offset,
                bytes,
                value,
            });
            offset += bytes;
        }
        fields
    }

    /// Generates the transition to the next state. Ends the block.
    pub(crate) fn transition(&mut self, id: StateId, parsing: &mut Parsing) {
        let state = self.program.state(id);
        if !state.key.is_empty() {
            let fields = self.key_parts(state, parsing);
            let bytes = fields.last().map_or(0, |field| field.offset + field.bytes);
            let words = self.key_words(&fields, bytes);
            if !self.switch(id, &words, bytes, parsing) {
                let cases = state.transitions.iter();
                let weights = cases.map(|case| parsing.weight(id, case.next));
                let mut left = weights.sum::<f64>() + parsing.weight_of_rest(id, state.default);
                for case in &state.transitions {
                    let weight = parsing.weight(id, case.next);
                    self.case(case, weight / left, &fields, &words, bytes, parsing);
                    left -= weight;
                }
                self.otherwise(state, parsing);
            }
        } else {
            self.otherwise(state, parsing);
        }
    }

    /// Generates the transition of a state for packets that match no case. Ends the block.
    fn otherwise(&mut self, state: &State, parsing: &mut Parsing) {
        match state.default {
            Some(target) => {
                let block = parsing.target(self, target);
                self.jump(block);
            }
            None => self.fail(self.program.core_errors.no_match, parsing),
        }
    }

    /// Compiles a `select` whose key is one word and whose cases are plain values, and ends the block. For any other
    /// `select`, returns `false` and generates no code.
    fn switch(
        &mut self,
        id: StateId,
        words: &[Value],
        bytes: usize,
        parsing: &mut Parsing,
    ) -> bool {
        let state = self.program.state(id);
        let [word] = words else { return false };
        let plain = |case: &Transition| match &case.matches {
            TransitionMatch::Value { value, mask }
                if value.len() == bytes && mask.iter().all(|byte| *byte == 0xff) =>
            {
                Some((words_of(value)[0], case.next))
            }
            _ => None,
        };
        let cases: Option<Vec<_>> = state.transitions.iter().map(plain).collect();
        let Some(cases) = cases else { return false };
        let mut targets: Vec<(u64, Block)> = Vec::new();
        let mut weights = Vec::new();
        for (value, next) in cases {
            if targets.iter().all(|(known, _)| *known != value) {
                targets.push((value, parsing.target(self, next)));
                weights.push(parsing.weight(id, next));
            }
        }
        weights.push(parsing.weight_of_rest(id, state.default));
        let number = self.shr(*word, (8 - bytes as u32) * 8);
        let none = self.b.create_block();
        self.emit_switch(&targets, number, none, &weights);
        self.enter(none);
        self.otherwise(state, parsing);
        true
    }

    /// Compiles one case. `share` estimates how many of the packets match. For all other packets, continues in a new
    /// block.
    fn case(
        &mut self,
        case: &Transition,
        share: f64,
        fields: &[KeyField],
        words: &[Value],
        bytes: usize,
        parsing: &mut Parsing,
    ) {
        let matches = match &case.matches {
            TransitionMatch::Value { value, mask } => {
                let mut all = self.byte(true);
                for (index, word) in words.iter().enumerate() {
                    let part = |from: &[u8]| {
                        let byte = |at: usize| from.get(index * 8 + at).copied().unwrap_or(0);
                        u64::from_be_bytes(std::array::from_fn(byte))
                    };
                    let (value, mask) = (part(value), part(mask));
                    if (value, mask) != (0, 0) {
                        let key = self.and(*word, mask);
                        let value = self.int(value);
                        let same = self.compare(IntCC::Equal, key, value);
                        all = self.b.ins().band(all, same);
                    }
                }
                all
            }
            TransitionMatch::ValueSet(set, mask) => {
                let key = self.key_in_memory(fields, bytes);
                let mask = match mask {
                    Some(mask) => self.statics.bytes(mask),
                    None => 0,
                };
                let (set, mask) = (self.int(set.0.into()), self.int(mask as u64));
                let bytes = self.int(bytes as u64);
                let args = [set, key, bytes, mask];
                let found = self.call(calls::value_set as *const (), &args, 1)[0];
                let zero = self.int(0);
                self.compare(IntCC::NotEqual, found, zero)
            }
        };
        let (yes, no) = (parsing.target(self, case.next), self.b.create_block());
        self.branch_by_share(matches, yes, no, share);
        self.enter(no);
    }
}
