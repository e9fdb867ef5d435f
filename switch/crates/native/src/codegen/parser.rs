// SPDX-License-Identifier: Apache-2.0
//! Compiles the parser. A state is compiled once for each likely set of facts ([`crate::codegen::variants`]). The
//! number of consumed bytes is kept in a register and written to the packet when the parser ends.

mod select;

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Variable;
use sluice_engine::{Counters, ProgramPoint};
use sluice_program::expr::Arith;
use sluice_program::parser::{ExtractTo, ParserOp, Target};
use sluice_program::{FieldSlot, HeaderId, StateId};

use crate::analysis::parser_states::{Likelihood, bounds, groups};
use crate::codegen::expr::Params;
use crate::codegen::lower::Lower;
use crate::codegen::number::Words;
use crate::codegen::variants::{About, FactUses, Variants};
use crate::runtime::calls;
use crate::runtime::frame::Frame;

/// The parser under construction.
pub(crate) struct Parsing {
    /// Address of the packet's first byte. `length` is the length of the packet in bytes.
    data: Value,
    length: Value,
    /// Number of bytes consumed.
    parsed: Variable,
    /// Address of `Packet::parsed`, to which the number of consumed bytes is stored at the end.
    parsed_place: Value,
    /// Block that handles an error. Its argument is the value of P4's type `error`.
    failed: Block,
    accepted: Variants,
    /// Block for packets that have entered too many states.
    limit: Block,
    /// Number of states that the packet has entered. `None` if the number cannot exceed the limit.
    steps: Option<Variable>,
    states: Vec<Variants>,
    /// For each state, whether the state lies on a cycle. A state on a cycle is compiled only once.
    cyclic: Vec<bool>,
    /// For each state, whether the limit of states must be tested there, because a packet may exceed it by entering
    /// this state.
    bounded: Vec<bool>,
    likelihood: Likelihood,
    /// Facts that the code after the parser uses.
    uses: FactUses,
}

impl Parsing {
    /// Returns the likelihood of a target of a state, relative to the state's other targets.
    fn weight(&self, state: StateId, target: Target) -> f64 {
        self.likelihood.of(state, target)
    }

    /// Returns the likelihood of the target for packets that match no case. Returns 0 if there is no such target.
    fn weight_of_rest(&self, state: StateId, rest: Option<Target>) -> f64 {
        rest.map_or(0.0, |target| self.weight(state, target))
    }

    /// Returns the block that a transition leads to.
    fn target(&mut self, lower: &mut Lower<'_>, target: Target) -> Block {
        let mut about = lower.known.about(&self.uses);
        match target {
            Target::Accept => self.accepted.block(&mut lower.b, about),
            Target::State(id) if self.cyclic[id.index()] => {
                self.states[id.index()].block(&mut lower.b, About::default())
            }
            Target::State(id) => {
                about.parsed = lower.known.parsed;
                self.states[id.index()].block(&mut lower.b, about)
            }
        }
    }
}

/// Header instance that an extraction fills.
#[derive(Clone, Copy)]
enum Destination {
    Fixed(HeaderId),
    /// A header that is selected at run time. Contains its id, and one of the headers that may be selected, all of
    /// which have the same type.
    Found(Value, HeaderId),
}

impl Destination {
    /// Returns a header that has the same type as the destination.
    fn example(self) -> HeaderId {
        match self {
            Self::Fixed(id) | Self::Found(_, id) => id,
        }
    }
}

impl Lower<'_> {
    /// Compiles the parser and the verification of checksums. `after` compiles the code that follows, and ends the
    /// block. `after` is called once for each set of facts. The machine code returns 1 if the packet enters too many
    /// states.
    pub(crate) fn parser(&mut self, uses: &FactUses, after: &mut dyn FnMut(&mut Self)) {
        let program = self.program;
        let parsed_place = self.frame_field(offset_of!(Frame<'static>, parsed));
        let data = self.frame_field(offset_of!(Frame<'static>, data));
        let length = self.frame_field(offset_of!(Frame<'static>, data_len));
        let most = self.config.max_parser_steps as usize;
        let groups = groups(program);
        let (cyclic, bounded) = bounds(program, &groups, most);
        let zero = self.int(0);
        let mut variable = || {
            let variable = self.b.declare_var(I64);
            self.b.def_var(variable, zero);
            variable
        };
        let parsed = variable();
        let steps = bounded.contains(&true).then(&mut variable);
        let mut uses = uses.clone();
        uses.checksums(program, self.facts);
        let mut parsing = Parsing {
            data,
            length,
            parsed,
            parsed_place,
            failed: self.b.create_block(),
            accepted: Variants::default(),
            limit: self.b.create_block(),
            steps,
            states: program.states.iter().map(|_| Variants::default()).collect(),
            cyclic,
            bounded,
            likelihood: Likelihood::new(program, &groups),
            uses,
        };
        (self.known.parsed, self.known.entered) = (Some(0), Some(0));
        self.b.set_cold_block(parsing.limit);
        self.b.append_block_param(parsing.failed, I64);
        let first = parsing.target(self, program.parser.start);
        self.jump(first);
        for group in groups {
            self.states(&group, &mut parsing);
        }
        self.finish_parser(parsing, after);
    }

    /// Compiles the states of a cycle, or a single state.
    fn states(&mut self, group: &[StateId], parsing: &mut Parsing) {
        let program = self.program;
        if let [id] = group
            && !parsing.cyclic[id.index()]
        {
            let variants = std::mem::take(&mut parsing.states[id.index()]);
            for block in self.settle(variants) {
                self.enter(block);
                self.mark(ProgramPoint::State(*id));
                self.state(*id, parsing);
            }
            return;
        }
        let blocks: Vec<Block> = group
            .iter()
            .map(|id| parsing.target(self, Target::State(*id)))
            .collect();
        // Adds preheaders, which only packets that enter the loop pass. The compiler moves loop-invariant code to a
        // preheader. Without one, it would move the code to a block that all packets pass.
        let blocks = self.apart(group, &blocks, parsing);
        // A fact is certain in a loop only if it holds on all edges into the loop and no operation in the loop changes
        // it.
        self.known = self.incoming_to_any(&blocks);
        (self.known.parsed, self.known.entered) = (None, None);
        for op in group.iter().flat_map(|id| &program.state(*id).ops) {
            self.forget_parsed(op);
        }
        let known = self.known.clone();
        for (id, block) in group.iter().zip(&blocks) {
            self.enter_open(*block, known.clone());
            self.mark(ProgramPoint::State(*id));
            self.state(*id, parsing);
        }
        self.incoming_to_any(&blocks);
        blocks.iter().for_each(|block| self.b.seal_block(*block));
    }

    /// Creates new blocks for the states of a loop. The previous block of a state becomes the preheader: code outside
    /// of the loop jumps to it to enter the loop.
    fn apart(&mut self, group: &[StateId], outer: &[Block], parsing: &mut Parsing) -> Vec<Block> {
        let blocks = group.iter().zip(outer).map(|(id, outer)| {
            parsing.states[id.index()] = Variants::default();
            let inner = parsing.target(self, Target::State(*id));
            if self.is_reached(*outer) {
                self.enter(*outer);
                self.jump(inner);
            }
            inner
        });
        blocks.collect()
    }

    /// Forgets all facts that may no longer hold after an operation of the parser.
    fn forget_parsed(&mut self, op: &ParserOp) {
        match op {
            ParserOp::Run(op) => self.forget_written(op),
            ParserOp::Lookahead { target, .. } => self.forget_field(*target),
            ParserOp::Extract(to) | ParserOp::ExtractVarbit(to, _) => {
                let program = self.program;
                let headers: Vec<HeaderId> = match to {
                    ExtractTo::Header(id) => vec![*id],
                    ExtractTo::Stack(id) => program.stack(*id).headers.clone(),
                    ExtractTo::UnionStack(id, _) => {
                        let unions = program.union_stack(*id).unions.iter();
                        unions
                            .flat_map(|id| program.union(*id).headers.clone())
                            .collect()
                    }
                };
                headers.into_iter().for_each(|id| self.forget_header(id));
            }
            ParserOp::Advance(_) | ParserOp::Verify(..) => {}
        }
    }

    /// Forgets the validity of a header and of the other members of its union.
    fn forget_header(&mut self, id: HeaderId) {
        self.known.forget_valid(id);
        if let Some(union) = self.program.header(id).union {
            for member in &self.program.union(union).headers {
                self.known.forget_valid(*member);
            }
        }
    }

    fn finish_parser(&mut self, mut parsing: Parsing, after: &mut dyn FnMut(&mut Self)) {
        for block in self.settle(std::mem::take(&mut parsing.accepted)) {
            self.enter(block);
            self.note_together();
            let no_error = self.int(self.program.core_errors.no_error.into());
            self.parsed(no_error, &parsing, after);
        }
        if self.is_reached(parsing.failed) {
            self.enter(parsing.failed);
            self.bump(offset_of!(Counters, parser_errors));
            let error = self.b.block_params(parsing.failed)[0];
            self.parsed(error, &parsing, after);
        }
        if self.is_reached(parsing.limit) {
            self.enter(parsing.limit);
            let taken = self.taken(&parsing);
            self.store(taken, parsing.parsed_place, 0);
            self.finish(1);
        }
    }

    /// Compiles the code after the last state. This code verifies checksums and sets the error fields. Ends the block.
    fn parsed(&mut self, error: Value, parsing: &Parsing, after: &mut dyn FnMut(&mut Self)) {
        let taken = self.taken(parsing);
        self.store(taken, parsing.parsed_place, 0);
        self.known.parsed = None;
        self.mark(ProgramPoint::Checksums);
        let wrong = self.verify_checksums();
        let (good, bad) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        let right = self.not(wrong);
        self.branch(right, good, bad);
        for (block, wrong) in [(good, 0), (bad, 1)] {
            if !self.is_reached(block) {
                continue;
            }
            self.enter(block);
            if wrong == 1 {
                self.bump(offset_of!(Counters, checksum_errors));
            }
            if let Some(slot) = self.program.standard_metadata.parser_error {
                self.store_number(slot, error);
            }
            if let Some(slot) = self.program.standard_metadata.checksum_error {
                self.store_constant(slot, wrong);
            }
            after(self);
        }
    }

    /// Writes a number to a slot.
    fn store_number(&mut self, slot: FieldSlot, value: Value) {
        let value = self.resize(vec![value], usize::from(slot.width).div_ceil(64));
        self.store_slot(self.phv, slot, &value);
    }

    /// Generates code that ends parsing with an error. Ends the block.
    fn fail(&mut self, error: u32, parsing: &Parsing) {
        let error = self.int(error.into());
        self.jump_with(parsing.failed, error);
    }

    /// Generates code that ends parsing with an error unless the condition holds.
    fn check(&mut self, condition: Value, error: u32, parsing: &Parsing) {
        if self.constant(condition) == Some(1) {
            return;
        }
        let (after, failed) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(failed);
        self.branch(condition, after, failed);
        self.enter(failed);
        self.fail(error, parsing);
        self.enter(after);
    }

    /// Returns the number of bytes consumed so far.
    fn taken(&mut self, parsing: &Parsing) -> Value {
        match self.known.parsed {
            Some(taken) => self.int(taken),
            None => self.b.use_var(parsing.parsed),
        }
    }

    /// Generates code that ends parsing with an error unless at least `bytes` bytes of the packet are left.
    fn check_left(&mut self, bytes: Value, parsing: &Parsing) {
        let enough = match (self.known.parsed, self.constant(bytes)) {
            (Some(taken), Some(bytes)) => {
                let needed = self.int(taken.saturating_add(bytes));
                let how = IntCC::UnsignedGreaterThanOrEqual;
                self.compare(how, parsing.length, needed)
            }
            _ => {
                let taken = self.taken(parsing);
                let left = self.b.ins().isub(parsing.length, taken);
                self.compare(IntCC::UnsignedLessThanOrEqual, bytes, left)
            }
        };
        let error = self.program.core_errors.packet_too_short;
        self.check(enough, error, parsing);
    }

    /// Consumes bytes. The caller must have checked that the packet has this number of bytes left.
    fn take(&mut self, bytes: Value, parsing: &Parsing) {
        let before = self.taken(parsing);
        let sum = self.known.parsed.zip(self.constant(bytes));
        self.known.parsed = sum.map(|(taken, bytes)| taken + bytes);
        let taken = match self.known.parsed {
            Some(taken) => self.int(taken),
            None => self.b.ins().iadd(before, bytes),
        };
        self.b.def_var(parsing.parsed, taken);
    }

    /// Returns the address of the next byte, as a base address and a constant offset.
    fn ahead(&mut self, parsing: &Parsing) -> (Value, u32) {
        let near = self
            .known
            .parsed
            .and_then(|taken| u16::try_from(taken).ok());
        match near {
            Some(taken) => (parsing.data, taken.into()),
            None => {
                let taken = self.taken(parsing);
                (self.b.ins().iadd(parsing.data, taken), 0)
            }
        }
    }

    /// Compiles a state. Ends the block.
    fn state(&mut self, id: StateId, parsing: &mut Parsing) {
        let state = self.program.state(id);
        if let Some(steps) = parsing.steps {
            let entered = self.b.use_var(steps);
            let entered = self.b.ins().iadd_imm_s(entered, 1);
            self.b.def_var(steps, entered);
            let most = u64::from(self.config.max_parser_steps);
            self.known.entered = self.known.entered.map(|entered| entered + 1);
            let within = self.known.entered.is_some_and(|entered| entered <= most);
            if parsing.bounded[id.index()] && !within {
                let most = self.int(most);
                let over = self.compare(IntCC::UnsignedGreaterThan, entered, most);
                let after = self.b.create_block();
                self.branch(over, parsing.limit, after);
                self.enter(after);
            }
        }
        for op in &state.ops {
            self.parser_op(op, parsing);
        }
        self.transition(id, parsing);
    }

    fn parser_op(&mut self, op: &ParserOp, parsing: &Parsing) {
        match op {
            ParserOp::Extract(to) => self.extract(to, None, parsing),
            ParserOp::ExtractVarbit(to, bits) => {
                let bits = self.whole_bytes(bits, parsing);
                self.extract(to, Some(bits), parsing);
            }
            ParserOp::Run(op) => self.op(op, &Params::None),
            ParserOp::Lookahead {
                target,
                offset,
                width,
            } => {
                let value = self.look_ahead(*offset, *width, parsing);
                let value = self.resize(value, usize::from(target.width).div_ceil(64));
                self.store_slot(self.phv, *target, &value);
            }
            ParserOp::Advance(bits) => {
                let bits = self.whole_bytes(bits, parsing);
                let bytes = self.shr(bits, 3);
                self.check_left(bytes, parsing);
                self.take(bytes, parsing);
            }
            ParserOp::Verify(condition, error) => {
                let condition = self.bool(condition, &Params::None);
                let (after, failed) = (self.b.create_block(), self.b.create_block());
                self.branch(condition, after, failed);
                self.enter(failed);
                let error = self.low(error, &Params::None);
                let error = self.and(error, u32::MAX.into());
                self.jump_with(parsing.failed, error);
                self.enter(after);
            }
        }
    }

    /// Returns a number of bits, which the program computes, as a number of bytes. At run time, ends parsing with an
    /// error if the number of bits is not a multiple of 8.
    fn whole_bytes(&mut self, bits: &Arith, parsing: &Parsing) -> Value {
        let bits = self.index(bits, &Params::None);
        let rest = self.and(bits, 7);
        let zero = self.int(0);
        let whole = self.compare(IntCC::Equal, rest, zero);
        let error = self.program.core_errors.parser_invalid_argument;
        self.check(whole, error, parsing);
        bits
    }

    /// Returns the header instance to fill. At run time, ends parsing with an error if the stack is full.
    fn destination(&mut self, to: &ExtractTo, parsing: &Parsing) -> Destination {
        let program = self.program;
        let ids: Vec<HeaderId> = match to {
            ExtractTo::Header(id) => return Destination::Fixed(*id),
            ExtractTo::Stack(id) => program.stack(*id).headers.clone(),
            ExtractTo::UnionStack(id, member) => {
                let unions = program.union_stack(*id).unions.iter();
                unions
                    .map(|union| program.union(*union).headers[*member])
                    .collect()
            }
        };
        let filled = self.filled(self.level(to));
        let size = self.int(ids.len() as u64);
        let room = self.compare(IntCC::UnsignedLessThan, filled, size);
        self.check(room, program.core_errors.stack_out_of_bounds, parsing);
        let Some(first) = ids.first().copied() else {
            // Unreachable, because a stack without elements is always full.
            return Destination::Fixed(HeaderId(0));
        };
        let words = ids.iter().map(|id| u64::from(id.0)).collect();
        let address = self.statics.words(words);
        Destination::Found(self.constant_at(address, filled), first)
    }

    /// Returns the index of the fill level of a stack, given the extraction that adds an element to the stack.
    fn level(&self, to: &ExtractTo) -> usize {
        match to {
            ExtractTo::Header(_) => usize::MAX,
            ExtractTo::Stack(id) => id.index(),
            ExtractTo::UnionStack(id, _) => self.program.stacks.len() + id.index(),
        }
    }

    fn extract(&mut self, to: &ExtractTo, varbit_bits: Option<Value>, parsing: &Parsing) {
        let program = self.program;
        let destination = self.destination(to, parsing);
        let header = program.header(destination.example());
        let ty = program.header_type(header.ty);
        let fixed = (ty.fixed_bits / 8) as u32;
        let mut bytes = self.int(fixed.into());
        if let Some(bits) = varbit_bits {
            let varbit = self.shr(bits, 3);
            bytes = self.b.ins().iadd(bytes, varbit);
        }
        self.check_left(bytes, parsing);
        let error = program.core_errors.header_too_short;
        if varbit_bits.is_some() {
            let most = self.int(header.bytes.into());
            let fits = self.compare(IntCC::UnsignedLessThanOrEqual, bytes, most);
            self.check(fits, error, parsing);
        } else if fixed > header.bytes {
            let never = self.byte(false);
            self.check(never, error, parsing);
        }
        let simple = varbit_bits.is_none() && ty.varbit.is_none() && fixed <= 256;
        match destination {
            Destination::Fixed(id) if simple => {
                let source = self.ahead(parsing);
                self.copy((self.phv, header.offset), source, fixed);
                self.set_valid(id);
            }
            _ => {
                let id = match destination {
                    Destination::Fixed(id) => self.int(id.0.into()),
                    Destination::Found(id, _) => id,
                };
                let start = self.taken(parsing);
                let bits = varbit_bits.unwrap_or_else(|| self.int(0));
                self.call(calls::extract as *const (), &[id, start, bytes, bits], 0);
                self.forget_parsed(&ParserOp::Extract(to.clone()));
            }
        }
        self.take(bytes, parsing);
        if !matches!(to, ExtractTo::Header(_)) {
            let level = self.level(to);
            let filled = self.filled(level);
            let more = self.b.ins().iadd_imm_s(filled, 1);
            self.set_filled(level, more);
        }
    }

    /// Returns bits ahead of the parser as a number. At run time, ends parsing with an error if the packet is too
    /// short.
    fn look_ahead(&mut self, offset: u32, width: u32, parsing: &Parsing) -> Words {
        let bytes = (u64::from(offset) + u64::from(width)).div_ceil(8);
        let bytes = self.int(bytes);
        self.check_left(bytes, parsing);
        let (source, ahead) = self.ahead(parsing);
        self.load_outside(source, ahead as usize * 8 + offset as usize, width)
    }
}
