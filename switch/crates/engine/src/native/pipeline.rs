// SPDX-License-Identifier: Apache-2.0
//! Pipelines: every step a block (or more), every step once, whatever leads to it.

use cranelift_codegen::ir::Block;
use cranelift_frontend::FunctionBuilder;
use sluice_program::{Next, Node, Pipeline};

use super::expr::Params;
use super::lower::Lower;
use crate::profile::Place;

/// Which block each step begins with.
pub(super) struct Graph {
    exit: Block,
    tables: Vec<Option<Block>>,
    conditionals: Vec<Option<Block>>,
    waiting: Vec<(Node, Block)>,
}

impl Graph {
    /// The block that ends the pipeline.
    pub(super) fn exit(&self) -> Block {
        self.exit
    }

    /// The block that a step begins with.
    pub(super) fn block(&mut self, b: &mut FunctionBuilder<'_>, next: Next) -> Block {
        let Some(node) = next else { return self.exit };
        let place = match node {
            Node::Table(id) => &mut self.tables[id.index()],
            Node::Conditional(id) => &mut self.conditionals[id.index()],
        };
        *place.get_or_insert_with(|| {
            let block = b.create_block();
            self.waiting.push((node, block));
            block
        })
    }
}

impl Lower<'_> {
    /// A pipeline, and the end of the function.
    pub(super) fn pipeline(&mut self, pipeline: &Pipeline) {
        let exit = self.b.create_block();
        let mut graph = Graph {
            exit,
            tables: vec![None; self.program.tables.len()],
            conditionals: vec![None; self.program.conditionals.len()],
            waiting: Vec::new(),
        };
        let first = graph.block(&mut self.b, pipeline.first);
        self.jump(first);
        while let Some((node, block)) = graph.waiting.pop() {
            self.enter(block);
            self.mark(Place::Node(node));
            match node {
                Node::Table(id) => self.table(id, &mut graph),
                Node::Conditional(id) => {
                    let conditional = self.program.conditional(id);
                    let value = self.bool(&conditional.condition, &Params::None);
                    let yes = graph.block(&mut self.b, conditional.if_true);
                    let no = graph.block(&mut self.b, conditional.if_false);
                    self.branch(value, yes, no);
                }
            }
        }
        self.enter(exit);
        self.finish(0);
    }
}
