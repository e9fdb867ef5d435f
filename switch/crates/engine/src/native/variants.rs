// SPDX-License-Identifier: Apache-2.0
//! Steps compiled more than once: a block for each set of facts that lead to a step, as far as the step
//! or what follows it asks about them.
//!
//! Where ways through a program meet, what is certain on only some of them would be lost, and be tested
//! again. A step is therefore compiled once for each of the likeliest ways that differ in something that
//! matters, and for all others together. How likely a way is, is a guess: all targets of a branch
//! are equally likely, but those that were marked cold, and those of a parser's state ([`super::states::Likelihood`]).

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::Block;
use cranelift_frontend::FunctionBuilder;
use sluice_program::control::KeySource;
use sluice_program::expr::{Bool, Data, HeaderRef};
use sluice_program::{ActionId, HeaderId, Node, Op, Program, Slot, Table};

use super::facts::{Facts, Known};
use super::lower::Lower;

/// Ways are told apart first by facts about which at least so many steps ask.
const MANY: usize = 3;
/// A set of ways is told apart further only while it has at least this share of all that leads to a step.
const OPEN_SHARE: f64 = 1.0 / 5.0;
/// When so many sets of such facts are told apart in a step, no more are.
const MAIN: usize = 8;
/// What is told apart has at least this share of all that leads to a step.
const LEAST_SHARE: f64 = 1.0 / 32.0;

/// A deparser of more headers is compiled once.
const MOST_EMITTED: usize = 64;

/// What may be certain: the value of a metadata field, by its number among the facts, or whether a header
/// is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Field(usize),
    Valid(HeaderId),
}

/// Who asks: a step, by its kind and number, a checksum, or what is behind a pipeline.
type Asker = (u8, u32);

/// What some steps ask about, and who they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Interest(BTreeMap<Fact, BTreeSet<Asker>>);

impl Interest {
    /// Also what others ask about.
    pub(super) fn extend(&mut self, other: &Self) {
        for (fact, askers) in &other.0 {
            self.0.entry(*fact).or_default().extend(askers);
        }
    }

    fn add(&mut self, fact: Fact, asker: Asker) {
        self.0.entry(fact).or_default().insert(asker);
    }

    /// Also what a step itself asks about.
    pub(super) fn step(&mut self, program: &Program, facts: &Facts, node: Node) {
        match node {
            Node::Conditional(id) => {
                let condition = &program.conditional(id).condition;
                self.condition(facts, condition, (0, id.0));
            }
            Node::Table(id) => self.table(program, facts, program.table(id), (1, id.0)),
        }
    }

    /// Also what is asked after parsing, before the first step.
    pub(super) fn checksums(&mut self, program: &Program, facts: &Facts) {
        for (index, checksum) in program.checksums.iter().enumerate() {
            let asker = (2, index as u32);
            if checksum.verify {
                self.add(Fact::Valid(checksum.header), asker);
                if let Some(condition) = &checksum.condition {
                    self.condition(facts, condition, asker);
                }
            }
        }
    }

    /// Also what is asked behind ingress: whether the packet goes on, and what of.
    pub(super) fn end_of_ingress(&mut self, program: &Program, facts: &Facts) {
        let standard = &program.standard_metadata;
        // Whether the packet is dropped above all: what is so much likelier that nothing else would count.
        for step in 0..2 * MANY {
            self.field(facts, standard.egress_spec, (3, step as u32));
        }
        for slot in [standard.mcast_grp, standard.priority]
            .into_iter()
            .flatten()
        {
            self.field(facts, slot, (3, 0));
        }
        self.end_of_egress(program);
    }

    /// Also what is asked behind egress. What each header asks is as much as many steps do: the code that is compiled
    /// again for an answer is little more than what it saves.
    pub(super) fn end_of_egress(&mut self, program: &Program) {
        let order = &program.deparser.order;
        if order.len() <= MOST_EMITTED {
            for (header, step) in order
                .iter()
                .flat_map(|id| (0..MANY).map(move |step| (id, step)))
            {
                self.add(Fact::Valid(*header), (4, step as u32));
            }
        }
    }

    fn table(&mut self, program: &Program, facts: &Facts, table: &Table, asker: Asker) {
        for key in &table.key {
            match key.source {
                KeySource::Field(header, _) | KeySource::Valid(header) => {
                    self.add(Fact::Valid(header), asker);
                }
                KeySource::Metadata(slot) if table.const_entries => {
                    self.field(facts, slot, asker);
                }
                KeySource::Metadata(_) => {}
            }
        }
        let default = table.default.as_ref().map(|default| default.action);
        for id in table.actions.iter().copied().chain(default) {
            self.action(program, facts, id, asker);
        }
    }

    fn action(&mut self, program: &Program, facts: &Facts, id: ActionId, asker: Asker) {
        for op in &program.action(id).ops {
            match op {
                Op::JumpUnless(condition, _) => self.condition(facts, condition, asker),
                Op::AddHeader(HeaderRef::Fixed(id))
                | Op::RemoveHeader(HeaderRef::Fixed(id))
                | Op::AssignHeader(_, HeaderRef::Fixed(id)) => self.add(Fact::Valid(*id), asker),
                _ => {}
            }
        }
    }

    fn condition(&mut self, facts: &Facts, condition: &Bool, asker: Asker) {
        match condition {
            Bool::Valid(HeaderRef::Fixed(id)) => self.add(Fact::Valid(*id), asker),
            Bool::Cmp(_, _, operands) => {
                self.data(facts, &operands.0, asker);
                self.data(facts, &operands.1, asker);
            }
            Bool::NonZero(arith) => self.data(facts, &arith.data, asker),
            Bool::And(operands) | Bool::Or(operands) | Bool::BoolEq(operands) => {
                self.condition(facts, &operands.0, asker);
                self.condition(facts, &operands.1, asker);
            }
            Bool::Not(inner) => self.condition(facts, inner, asker),
            _ => {}
        }
    }

    fn data(&mut self, facts: &Facts, data: &Data, asker: Asker) {
        if let Data::Field(slot) = data {
            self.field(facts, *slot, asker);
        }
    }

    fn field(&mut self, facts: &Facts, slot: Slot, asker: Asker) {
        if let Some(index) = facts.index(slot) {
            self.add(Fact::Field(index), asker);
        }
    }
}

/// What is certain of that about which is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    /// Each fact, with how many steps ask about it.
    certain: Vec<(usize, Fact, u64)>,
    /// Bytes that the parser took.
    pub(super) parsed: Option<u64>,
}

impl About {
    fn answer(&self, question: Fact) -> Option<u64> {
        let mut certain = self.certain.iter();
        certain.find_map(|(_, fact, value)| (*fact == question).then_some(*value))
    }
}

impl Known {
    /// What is certain here of that about which is asked.
    pub(super) fn about(&self, interest: &Interest) -> About {
        let mut about = About::default();
        for (fact, askers) in &interest.0 {
            let certain = match fact {
                Fact::Field(index) => self.field(*index),
                Fact::Valid(id) => self.valid(*id).map(u64::from),
            };
            if let Some(value) = certain {
                about.certain.push((askers.len(), *fact, value));
            }
        }
        about
    }
}

/// The blocks that begin one step.
#[derive(Debug, Default)]
pub(super) struct Variants(Vec<(About, Block)>);

impl Variants {
    /// The block of those that come with these facts.
    pub(super) fn block(&mut self, b: &mut FunctionBuilder<'_>, about: About) -> Block {
        if let Some((_, block)) = self.0.iter().find(|(known, _)| *known == about) {
            return *block;
        }
        let block = b.create_block();
        self.0.push((about, block));
        block
    }
}

/// A way: what is certain on it, the block that it leads to, and how likely it is.
struct Way {
    about: About,
    block: Block,
    weight: f64,
}

fn weight(ways: &[Way]) -> f64 {
    ways.iter().map(|way| way.weight).sum()
}

/// Ways by their answers to a question, where enough of all packets give each; those with rarer answers go to `rare`.
fn split(
    ways: Vec<Way>,
    least: f64,
    rare: &mut Vec<Way>,
    answer: impl Fn(&About) -> Option<u64>,
) -> Vec<Vec<Way>> {
    let mut answers: BTreeMap<Option<u64>, Vec<Way>> = BTreeMap::new();
    for way in ways {
        let answers = answers.entry(answer(&way.about)).or_default();
        answers.push(way);
    }
    let mut parts = Vec::new();
    for ways in answers.into_values() {
        match weight(&ways) < least {
            true => rare.extend(ways),
            false => parts.push(ways),
        }
    }
    parts
}

impl Lower<'_> {
    /// The blocks with which a step is to be compiled, when all that leads to it is there: each for ways that are alike
    /// in what is asked most.
    pub(super) fn settle(&mut self, variants: Variants) -> Vec<Block> {
        let reached = variants.0.into_iter();
        let ways: Vec<Way> = reached
            .filter(|(_, block)| self.is_reached(*block))
            .map(|(about, block)| Way {
                about,
                block,
                weight: self.weight_of(block),
            })
            .collect();
        let certain = ways.iter().flat_map(|way| &way.about.certain);
        let questions: BTreeSet<(usize, Fact)> = certain
            .filter(|(askers, ..)| *askers >= MANY)
            .map(|(askers, fact, _)| (*askers, *fact))
            .collect();
        let total = weight(&ways);
        let least = total * LEAST_SHARE;
        let mut groups = vec![ways];
        let mut rare = Vec::new();
        // What most steps ask about first.
        for (_, question) in questions.into_iter().rev() {
            for group in std::mem::take(&mut groups) {
                if weight(&group) < total * OPEN_SHARE {
                    groups.push(group);
                    continue;
                }
                let answer = |about: &About| about.answer(question);
                groups.extend(split(group, least, &mut rare, answer));
            }
            if groups.len() >= MAIN {
                break;
            }
        }
        // And how far the parser came: places in the packet are constants then.
        let mut parts = Vec::new();
        for group in groups {
            parts.extend(split(group, least, &mut rare, |about| about.parsed));
        }
        parts.push(rare);
        let parts = parts.into_iter();
        parts.filter_map(|ways| self.together(ways)).collect()
    }

    /// One block for several, if there are any.
    fn together(&mut self, ways: Vec<Way>) -> Option<Block> {
        match &ways[..] {
            [] => None,
            [way] => Some(way.block),
            _ => {
                let together = self.b.create_block();
                for way in ways {
                    self.enter(way.block);
                    self.jump(together);
                }
                Some(together)
            }
        }
    }
}
