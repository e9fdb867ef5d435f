// SPDX-License-Identifier: Apache-2.0
//! Compiles pipelines. A step is compiled once for each likely set of facts ([`crate::codegen::variants`]).

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::Block;
use sluice_engine::ProgramPoint;
use sluice_program::{Next, Node, Pipeline, Program};

use crate::codegen::expr::Params;
use crate::codegen::lower::Lower;
use crate::codegen::variants::{About, FactUses, Variants};

/// A pipeline under construction, with the blocks at which each step begins.
pub(crate) struct Graph {
    first: Next,
    /// Facts that the code after the pipeline uses.
    beyond: FactUses,
    exit: Variants,
    /// The steps in reverse postorder: a step comes after all its predecessors.
    order: Vec<Node>,
    /// For each step, the facts that the step uses or that code reachable from the step uses.
    interests: BTreeMap<(bool, u32), FactUses>,
    variants: BTreeMap<(bool, u32), Variants>,
}

impl Graph {
    /// Returns the facts that the pipeline and the code after it use. Returns no facts for a pipeline without steps.
    pub(crate) fn uses(&self) -> FactUses {
        let first = self.first.map(key);
        let uses = first.and_then(|first| self.interests.get(&first));
        uses.cloned().unwrap_or_default()
    }
}

/// Returns the key of a step in the maps of [`Graph`].
fn key(node: Node) -> (bool, u32) {
    match node {
        Node::Table(id) => (true, id.0),
        Node::Conditional(id) => (false, id.0),
    }
}

/// Returns the possible successors of a step.
fn followers(program: &Program, node: Node) -> Vec<Node> {
    let next: Vec<Next> = match node {
        Node::Conditional(id) => {
            let conditional = program.conditional(id);
            vec![conditional.if_true, conditional.if_false]
        }
        Node::Table(id) => {
            let table = program.table(id);
            let default = table.default.as_ref().map(|default| default.action);
            let actions = table.actions.iter().copied().chain(default).map(Some);
            let ends = actions.chain([None]);
            ends.flat_map(|action| [true, false].map(|hit| table.next_after(action, hit)))
                .collect()
        }
    };
    next.into_iter().flatten().collect()
}

/// Returns a pipeline's steps in reverse postorder: a step comes after all its predecessors.
pub(crate) fn order(program: &Program, pipeline: &Pipeline) -> Vec<Node> {
    let mut done = Vec::new();
    let mut seen: BTreeSet<_> = pipeline.first.map(key).into_iter().collect();
    let enter = |node| (node, followers(program, node));
    let mut path: Vec<_> = pipeline.first.into_iter().map(enter).collect();
    while let Some((node, rest)) = path.last_mut() {
        match rest.pop() {
            Some(next) if seen.insert(key(next)) => path.push(enter(next)),
            Some(_) => {}
            None => {
                done.push(*node);
                path.pop();
            }
        }
    }
    done.reverse();
    done
}

impl Lower<'_> {
    /// Returns the block at which a step begins. Skips a condition whose outcome is certain here, and continues with
    /// the step that follows it.
    pub(crate) fn next_block(&mut self, graph: &mut Graph, mut next: Next) -> Block {
        // A profile counts conditions too, so no condition is skipped with a profile.
        while !self.config.profile
            && let Some(Node::Conditional(id)) = next
            && let Some(holds) = self.holds(&self.program.conditional(id).condition)
        {
            let conditional = self.program.conditional(id);
            next = match holds {
                true => conditional.if_true,
                false => conditional.if_false,
            };
        }
        let Some(node) = next else {
            return self.end_of(graph);
        };
        let about = match graph.interests.get(&key(node)) {
            Some(uses) => self.known.about(uses),
            None => About::default(),
        };
        let variants = graph.variants.entry(key(node)).or_default();
        variants.block(&mut self.b, about)
    }

    /// Returns a block that ends the pipeline.
    fn end_of(&mut self, graph: &mut Graph) -> Block {
        let about = self.known.about(&graph.beyond);
        graph.exit.block(&mut self.b, about)
    }

    /// Makes the block `exit` jump to the end of the pipeline, if any edge leads to `exit`.
    pub(crate) fn leave_by(&mut self, exit: Block, graph: &mut Graph) {
        if self.is_reached(exit) {
            self.enter(exit);
            let end = self.end_of(graph);
            self.jump(end);
        }
    }

    /// Begins a pipeline, without any blocks yet. `beyond` holds the facts that the code after the pipeline uses.
    pub(crate) fn graph(&self, pipeline: &Pipeline, beyond: FactUses) -> Graph {
        let order = order(self.program, pipeline);
        let mut interests: BTreeMap<(bool, u32), FactUses> = BTreeMap::new();
        for node in order.iter().rev() {
            let mut uses = beyond.clone();
            uses.step(self.program, self.facts, *node);
            for next in followers(self.program, *node) {
                if let Some(after) = interests.get(&key(next)) {
                    uses.extend(after);
                }
            }
            interests.insert(key(*node), uses);
        }
        Graph {
            first: pipeline.first,
            beyond,
            exit: Variants::default(),
            order,
            interests,
            variants: BTreeMap::new(),
        }
    }

    /// Generates a jump to the first step of a pipeline. Ends the block.
    pub(crate) fn enter_pipeline(&mut self, graph: &mut Graph) {
        let first = self.next_block(graph, graph.first);
        self.jump(first);
    }

    /// Compiles the steps of a pipeline that was entered, and returns the blocks that end it.
    pub(crate) fn pipeline(&mut self, mut graph: Graph) -> Vec<Block> {
        for node in std::mem::take(&mut graph.order) {
            let variants = graph.variants.remove(&key(node)).unwrap_or_default();
            for block in self.settle(variants) {
                self.enter(block);
                self.node(node, &mut graph);
            }
        }
        self.settle(graph.exit)
    }

    /// Compiles a step. Ends the block.
    fn node(&mut self, node: Node, graph: &mut Graph) {
        self.mark(ProgramPoint::Node(node));
        match node {
            Node::Table(id) => self.table(id, graph),
            Node::Conditional(id) => {
                let conditional = self.program.conditional(id);
                let condition = &conditional.condition;
                self.decide(condition, &Params::None, &mut |lower, holds| {
                    let next = match holds {
                        true => conditional.if_true,
                        false => conditional.if_false,
                    };
                    lower.next_block(graph, next)
                });
            }
        }
    }
}
