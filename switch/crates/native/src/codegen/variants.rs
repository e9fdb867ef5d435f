// SPDX-License-Identifier: Apache-2.0
//! Compiles variants of steps (tables and conditions). When packets reach a step, different facts about them are
//! certain. The step is compiled once for each likely set of these facts. Facts that neither the step nor the code
//! after it uses are ignored.
//!
//! Without variants, the facts that are certain on only some paths would be lost where the paths merge, and would be
//! tested again. Instead, the paths to a step are grouped: two paths are in one group if they agree in the facts that
//! are used. The step is compiled once for each of the most likely groups, and once for all other paths together.
//!
//! The likelihood of a path is an estimate. All targets of a branch count as equally likely, with two exceptions:
//! blocks that are marked cold, and the targets of a parser state ([`crate::analysis::parser_states::Likelihood`]).

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::Block;
use cranelift_frontend::FunctionBuilder;
use sluice_program::control::KeySource;
use sluice_program::expr::{Bool, Data, HeaderRef};
use sluice_program::{ActionId, FieldSlot, HeaderId, Node, Op, Program, Table};

use crate::analysis::field_usage::FieldUsage;
use crate::analysis::known::Known;
use crate::codegen::lower::Lower;

/// Number of steps that must use a fact. Paths are not split by facts that fewer steps use.
const MANY: usize = 3;
/// Smallest share of the step's packets for which a group of paths is split further.
const OPEN_SHARE: f64 = 1.0 / 5.0;
/// Number of groups at which splitting ends.
const MAIN: usize = 8;
/// Smallest share of the step's packets for which a group of paths gets its own variant.
const LEAST_SHARE: f64 = 1.0 / 32.0;

/// Maximum number of headers for which a deparser is compiled in variants. A larger deparser is compiled once.
const MOST_EMITTED: usize = 64;

/// A property whose value may be certain: a metadata field, given by its number in [`FieldUsage`], or the validity of a
/// header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Field(usize),
    Valid(HeaderId),
}

/// A piece of code that uses facts: a step, a checksum, or the code after a pipeline. Identified by its kind and
/// number.
type FactUser = (u8, u32);

/// Facts that pieces of code use. Each fact has the set of its users.
#[derive(Clone, Debug, Default)]
pub(crate) struct FactUses(BTreeMap<Fact, BTreeSet<FactUser>>);

impl FactUses {
    /// Adds all facts of `other` with their users.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (fact, users) in &other.0 {
            self.0.entry(*fact).or_default().extend(users);
        }
    }

    fn add(&mut self, fact: Fact, user: FactUser) {
        self.0.entry(fact).or_default().insert(user);
    }

    /// Adds the facts that a step uses, without those of later steps.
    pub(crate) fn step(&mut self, program: &Program, facts: &FieldUsage, node: Node) {
        match node {
            Node::Conditional(id) => {
                let condition = &program.conditional(id).condition;
                self.condition(facts, condition, (0, id.0));
            }
            Node::Table(id) => self.table(program, facts, program.table(id), (1, id.0)),
        }
    }

    /// Adds the facts that the code between the parser and the first step uses.
    pub(crate) fn checksums(&mut self, program: &Program, facts: &FieldUsage) {
        for (index, checksum) in program.checksums.iter().enumerate() {
            let user = (2, index as u32);
            if checksum.verify {
                self.add(Fact::Valid(checksum.header), user);
                if let Some(condition) = &checksum.condition {
                    self.condition(facts, condition, user);
                }
            }
        }
    }

    /// Adds the facts that the code after ingress uses. These are the facts that decide whether the packet is
    /// forwarded, and the facts that the code after egress uses.
    pub(crate) fn end_of_ingress(&mut self, program: &Program, facts: &FieldUsage) {
        let standard = &program.standard_metadata;
        // Gives `egress_spec` so many users that paths are split by it before all other facts. `egress_spec` must come
        // first, because no other fact matters for a dropped packet.
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

    /// Adds the facts that the code after egress uses: the validity of each header. Counts [`MANY`] users for each of
    /// these facts, so that each may split paths even if no step uses it. A variant for a set of valid headers saves
    /// nearly as much code as it adds.
    pub(crate) fn end_of_egress(&mut self, program: &Program) {
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

    fn table(&mut self, program: &Program, facts: &FieldUsage, table: &Table, user: FactUser) {
        for key in &table.key {
            match key.source {
                KeySource::Field(header, _) | KeySource::Valid(header) => {
                    self.add(Fact::Valid(header), user);
                }
                KeySource::Metadata(slot) if table.const_entries => {
                    self.field(facts, slot, user);
                }
                KeySource::Metadata(_) => {}
            }
        }
        let default = table.default.as_ref().map(|default| default.action);
        for id in table.actions.iter().copied().chain(default) {
            self.action(program, facts, id, user);
        }
    }

    fn action(&mut self, program: &Program, facts: &FieldUsage, id: ActionId, user: FactUser) {
        for op in &program.action(id).ops {
            match op {
                Op::JumpUnless(condition, _) => self.condition(facts, condition, user),
                Op::AddHeader(HeaderRef::Fixed(id))
                | Op::RemoveHeader(HeaderRef::Fixed(id))
                | Op::AssignHeader(_, HeaderRef::Fixed(id)) => self.add(Fact::Valid(*id), user),
                _ => {}
            }
        }
    }

    fn condition(&mut self, facts: &FieldUsage, condition: &Bool, user: FactUser) {
        match condition {
            Bool::Valid(HeaderRef::Fixed(id)) => self.add(Fact::Valid(*id), user),
            Bool::Cmp(_, _, operands) => {
                self.data(facts, &operands.0, user);
                self.data(facts, &operands.1, user);
            }
            Bool::NonZero(arith) => self.data(facts, &arith.data, user),
            Bool::And(operands) | Bool::Or(operands) | Bool::BoolEq(operands) => {
                self.condition(facts, &operands.0, user);
                self.condition(facts, &operands.1, user);
            }
            Bool::Not(inner) => self.condition(facts, inner, user),
            _ => {}
        }
    }

    fn data(&mut self, facts: &FieldUsage, data: &Data, user: FactUser) {
        if let Data::Field(slot) = data {
            self.field(facts, *slot, user);
        }
    }

    fn field(&mut self, facts: &FieldUsage, slot: FieldSlot, user: FactUser) {
        if let Some(index) = facts.index(slot) {
            self.add(Fact::Field(index), user);
        }
    }
}

/// Those facts that are certain at one point of the code and used from there on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// For each fact: the number of steps that use the fact, the fact, and its value.
    certain: Vec<(usize, Fact, u64)>,
    /// Number of bytes that the parser has consumed, if the number is certain and used.
    pub(crate) parsed: Option<u64>,
}

impl About {
    fn answer(&self, question: Fact) -> Option<u64> {
        let mut certain = self.certain.iter();
        certain.find_map(|(_, fact, value)| (*fact == question).then_some(*value))
    }
}

impl Known {
    /// Returns those facts of `uses` that are certain here.
    pub(crate) fn about(&self, uses: &FactUses) -> About {
        let mut about = About::default();
        for (fact, users) in &uses.0 {
            let certain = match fact {
                Fact::Field(index) => self.field(*index),
                Fact::Valid(id) => self.valid(*id).map(u64::from),
            };
            if let Some(value) = certain {
                about.certain.push((users.len(), *fact, value));
            }
        }
        about
    }
}

/// The blocks at which one step begins: one block for each set of facts that are certain at the step's begin.
#[derive(Debug, Default)]
pub(crate) struct Variants(Vec<(About, Block)>);

impl Variants {
    /// Returns the block for these facts. Creates the block if there is none yet.
    pub(crate) fn block(&mut self, b: &mut FunctionBuilder<'_>, about: About) -> Block {
        if let Some((_, block)) = self.0.iter().find(|(known, _)| *known == about) {
            return *block;
        }
        let block = b.create_block();
        self.0.push((about, block));
        block
    }
}

/// A group of paths to a step: the facts that are certain on these paths, the block to which they lead, and their
/// likelihood.
struct Progress {
    about: About,
    block: Block,
    weight: f64,
}

fn weight(ways: &[Progress]) -> f64 {
    ways.iter().map(|way| way.weight).sum()
}

/// Groups paths by the value of a fact, which `answer` returns. Moves the paths of groups whose weight is below `least`
/// to `rare`.
fn split(
    ways: Vec<Progress>,
    least: f64,
    rare: &mut Vec<Progress>,
    answer: impl Fn(&About) -> Option<u64>,
) -> Vec<Vec<Progress>> {
    let mut answers: BTreeMap<Option<u64>, Vec<Progress>> = BTreeMap::new();
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
    /// Returns the blocks at which a step is compiled, one for each group of paths. All edges to the step must exist.
    pub(crate) fn settle(&mut self, variants: Variants) -> Vec<Block> {
        let reached = variants.0.into_iter();
        let ways: Vec<Progress> = reached
            .filter(|(_, block)| self.is_reached(*block))
            .map(|(about, block)| Progress {
                about,
                block,
                weight: self.weight_of(block),
            })
            .collect();
        let certain = ways.iter().flat_map(|way| &way.about.certain);
        let questions: BTreeSet<(usize, Fact)> = certain
            .filter(|(users, ..)| *users >= MANY)
            .map(|(users, fact, _)| (*users, *fact))
            .collect();
        let total = weight(&ways);
        let least = total * LEAST_SHARE;
        let mut groups = vec![ways];
        let mut rare = Vec::new();
        // First splits by facts, beginning with the fact that most steps use.
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
        // Then splits by the number of bytes that the parser has consumed. If this number is certain, offsets in the
        // packet are constants.
        let mut parts = Vec::new();
        for group in groups {
            parts.extend(split(group, least, &mut rare, |about| about.parsed));
        }
        parts.push(rare);
        let parts = parts.into_iter();
        parts.filter_map(|ways| self.together(ways)).collect()
    }

    /// Merges paths: makes all of them lead to one block, and returns this block. Returns `None` if there are no paths.
    fn together(&mut self, ways: Vec<Progress>) -> Option<Block> {
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
