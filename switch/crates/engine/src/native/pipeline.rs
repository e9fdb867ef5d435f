// SPDX-License-Identifier: Apache-2.0
//! Pipelines: every step a block (or more), every step once, whatever leads to it.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::Block;
use sluice_program::{Next, Node, Pipeline, Program};

use super::expr::Params;
use super::lower::Lower;
use crate::profile::Place;

/// Which block each step begins with.
pub(super) struct Graph {
    exit: Block,
    blocks: BTreeMap<(bool, u32), Block>,
}

impl Graph {
    /// The block that ends the pipeline.
    pub(super) fn exit(&self) -> Block {
        self.exit
    }
}

/// What tells steps apart.
fn key(node: Node) -> (bool, u32) {
    match node {
        Node::Table(id) => (true, id.0),
        Node::Conditional(id) => (false, id.0),
    }
}

/// The steps that may follow one.
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

/// A pipeline's steps, each after all that may lead to it.
fn order(program: &Program, pipeline: &Pipeline) -> Vec<Node> {
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
    /// The block that goes on with a step: past conditions whose outcome is certain here.
    pub(super) fn next_block(&mut self, graph: &mut Graph, mut next: Next) -> Block {
        // A profile counts conditions, too.
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
        let Some(node) = next else { return graph.exit };
        let b = &mut self.b;
        *graph
            .blocks
            .entry(key(node))
            .or_insert_with(|| b.create_block())
    }

    /// A pipeline; the builder is at its end.
    pub(super) fn pipeline(&mut self, pipeline: &Pipeline) {
        let mut graph = Graph {
            exit: self.b.create_block(),
            blocks: BTreeMap::new(),
        };
        let first = self.next_block(&mut graph, pipeline.first);
        self.jump(first);
        for node in order(self.program, pipeline) {
            let block = graph.blocks.get(&key(node)).copied();
            let Some(block) = block.filter(|block| self.is_reached(*block)) else {
                continue; // nothing leads to it
            };
            self.enter(block);
            self.mark(Place::Node(node));
            match node {
                Node::Table(id) => self.table(id, &mut graph),
                Node::Conditional(id) => {
                    let conditional = self.program.conditional(id);
                    let condition = &conditional.condition;
                    self.decide(condition, &Params::None, &mut |lower, holds| {
                        let next = match holds {
                            true => conditional.if_true,
                            false => conditional.if_false,
                        };
                        lower.next_block(&mut graph, next)
                    });
                }
            }
        }
        self.enter(graph.exit);
    }
}
