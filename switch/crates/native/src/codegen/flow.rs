// SPDX-License-Identifier: Apache-2.0
//! Generates control flow: basic blocks, the edges between them, and the facts that are certain on each edge
//! ([`crate::analysis::known`]).
//!
//! Order: a block is entered only when all edges to it exist, unless it begins a loop.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value};
use cranelift_frontend::Switch;
use sluice_program::expr::Bool;

use crate::analysis::known::Known;
use crate::codegen::expr::Params;
use crate::codegen::lower::Lower;

/// Estimated share of packets that jump to a cold block, among the packets that reach the branch.
const COLD: f64 = 1.0 / 64.0;
/// Maximum number of cases of a switch that is compiled to a sequence of comparisons.
const MOST_COMPARED: usize = 4;

impl Lower<'_> {
    pub(crate) fn jump(&mut self, to: Block) {
        self.flow_to(to);
        self.b.ins().jump(to, &[]);
    }

    /// Jumps to a block with one parameter, and passes this value.
    pub(crate) fn jump_with(&mut self, to: Block, value: Value) {
        self.flow_to(to);
        self.b.ins().jump(to, &[BlockArg::Value(value)]);
    }

    pub(crate) fn branch(&mut self, condition: Value, yes: Block, no: Block) {
        let cold = [yes, no].map(|block| self.b.func.layout.is_cold(block));
        let share = match cold {
            [false, true] => 1.0 - COLD,
            [true, false] => COLD,
            _ => 0.5,
        };
        self.branch_by_share(condition, yes, no, share);
    }

    /// Like [`Self::branch`], with an estimate of the share of packets that jump to `yes`.
    pub(crate) fn branch_by_share(&mut self, condition: Value, yes: Block, no: Block, share: f64) {
        match self.constant(condition) {
            _ if yes == no => self.jump(yes),
            Some(0) => self.jump(no),
            Some(_) => self.jump(yes),
            None => {
                self.flow_part(yes, share);
                self.flow_part(no, 1.0 - share);
                self.b.ins().brif(condition, yes, &[], no, &[]);
            }
        }
    }

    /// Continues in a block and seals the block. All edges to the block must exist.
    pub(crate) fn enter(&mut self, block: Block) {
        self.known = self.incoming(block);
        self.b.switch_to_block(block);
        self.b.seal_block(block);
    }

    /// Continues in a block to which more edges will be added. The facts in `known` must be certain on all these edges
    /// too. When all edges exist, the caller seals the block (tells Cranelift that no more edges follow).
    pub(crate) fn enter_open(&mut self, block: Block, known: Known) {
        self.known = known;
        self.b.switch_to_block(block);
    }

    /// Generates code that runs `then` or `otherwise`, and continues in a common block. The code that these functions
    /// generate must not end its last block.
    pub(crate) fn either(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Self),
        otherwise: impl FnOnce(&mut Self),
    ) {
        match self.constant(condition) {
            Some(0) => return otherwise(self),
            Some(_) => return then(self),
            None => {}
        }
        let (yes, no, after) = (
            self.b.create_block(),
            self.b.create_block(),
            self.b.create_block(),
        );
        self.branch(condition, yes, no);
        self.enter(yes);
        then(self);
        self.jump(after);
        self.enter(no);
        otherwise(self);
        self.jump(after);
        self.enter(after);
    }

    /// Generates code that runs `then` if the condition holds.
    pub(crate) fn when(&mut self, condition: Value, then: impl FnOnce(&mut Self)) {
        match self.constant(condition) {
            Some(0) => return,
            Some(_) => return then(self),
            None => {}
        }
        let (yes, after) = (self.b.create_block(), self.b.create_block());
        self.branch(condition, yes, after);
        self.enter(yes);
        then(self);
        self.jump(after);
        self.enter(after);
    }

    /// Records an edge to a block.
    pub(crate) fn flow_to(&mut self, to: Block) {
        self.flow_part(to, 1.0);
    }

    /// Records an edge to a block. `share` estimates how many of the packets at this point take the edge.
    pub(crate) fn flow_part(&mut self, to: Block, share: f64) {
        let mut known = self.known.clone();
        known.weight *= share;
        match self.flow.incoming.get_mut(&to) {
            Some(before) => before.meet(&known),
            None => {
                self.flow.incoming.insert(to, known);
            }
        }
    }

    /// Returns the estimated likelihood that a packet reaches a block, summed over the edges that exist so far.
    pub(crate) fn weight_of(&self, block: Block) -> f64 {
        let known = self.flow.incoming.get(&block);
        known.map_or(0.0, |known| known.weight)
    }

    /// Returns whether an edge leads to a block that has not begun.
    pub(crate) fn is_reached(&self, block: Block) -> bool {
        self.flow.incoming.contains_key(&block)
    }

    /// Removes and returns the facts about a block that is about to begin: those that are certain on all its edges so
    /// far. Returns no facts if there is no edge.
    pub(crate) fn incoming(&mut self, block: Block) -> Known {
        self.flow.incoming.remove(&block).unwrap_or_default()
    }

    /// Like [`Self::incoming`], for a group of blocks. Returns the facts that are certain on all edges to all these
    /// blocks.
    pub(crate) fn incoming_to_any(&mut self, blocks: &[Block]) -> Known {
        let mut known = blocks
            .iter()
            .filter_map(|block| self.flow.incoming.remove(block));
        let mut all = known.next().unwrap_or_default();
        known.for_each(|known| all.meet(&known));
        all
    }

    /// Ends the block with a switch over distinct numbers. `weights` holds the likelihood of each case, followed by the
    /// likelihood of `otherwise`.
    pub(crate) fn emit_switch(
        &mut self,
        cases: &[(u64, Block)],
        value: Value,
        otherwise: Block,
        weights: &[f64],
    ) {
        let all: f64 = weights.iter().sum();
        let targets = cases.iter().map(|(_, target)| *target);
        for (target, weight) in targets.chain([otherwise]).zip(weights) {
            self.flow_part(target, weight / all);
        }
        if cases.len() > MOST_COMPARED {
            let mut switch = Switch::new();
            for (number, block) in cases {
                switch.set_entry((*number).into(), *block);
            }
            return switch.emit(&mut self.b, value, otherwise);
        }
        let ty = self.b.func.dfg.value_type(value);
        for (number, block) in cases {
            let number = self.b.ins().iconst(ty, *number as i64);
            let same = self.b.ins().icmp(IntCC::Equal, value, number);
            let next = self.b.create_block();
            self.b.ins().brif(same, *block, &[], next, &[]);
            self.b.switch_to_block(next);
            self.b.seal_block(next);
        }
        self.b.ins().jump(otherwise, &[]);
    }

    /// Ends the block with branches on a condition. `target` returns the block for an outcome. It may be called several
    /// times for one outcome, because several branches may lead to this outcome, each with its own certain facts.
    pub(crate) fn decide(
        &mut self,
        condition: &Bool,
        params: &Params,
        target: &mut dyn FnMut(&mut Self, bool) -> Block,
    ) {
        if let Some(holds) = self.holds(condition) {
            let block = target(self, holds);
            return self.jump(block);
        }
        match condition {
            Bool::Not(inner) => {
                self.decide(inner, params, &mut |lower, holds| target(lower, !holds))
            }
            Bool::And(operands) | Bool::Or(operands) => {
                // The left operand has the outcome `open` if it does not decide the condition. Then the right operand
                // decides.
                let open = matches!(condition, Bool::And(_));
                let second = self.b.create_block();
                self.decide(&operands.0, params, &mut |lower, holds| {
                    if holds == open {
                        second
                    } else {
                        target(lower, holds)
                    }
                });
                self.enter(second);
                self.decide(&operands.1, params, target);
            }
            _ => {
                let value = self.bool(condition, params);
                let before = self.known.clone();
                let mut ends = [false, true].map(|holds| {
                    self.known = before.clone();
                    self.learn(condition, holds);
                    let block = target(self, holds);
                    self.flow_part(block, 0.5);
                    block
                });
                ends.reverse();
                let [yes, no] = ends;
                if yes == no {
                    self.b.ins().jump(yes, &[]);
                } else {
                    self.b.ins().brif(value, yes, &[], no, &[]);
                }
            }
        }
    }
}
