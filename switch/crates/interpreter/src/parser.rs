// SPDX-License-Identifier: Apache-2.0
//! Runs the parser.
//!
//! An error ends parsing. The headers extracted so far are kept. The program can read the error in `parser_error`. The
//! error alone does not drop the packet.

use sluice_engine::number::Number;
use sluice_engine::{ProgramPoint, Trace, TraceStep, bits};
use sluice_program::HeaderId;
use sluice_program::parser::{
    ExtractTo, KeyPart, ParserOp, State, Target, Transition, TransitionMatch,
};

use crate::machine::Machine;

/// Reason why the parser stopped before it reached `accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// An error, as a value of P4's type `error`.
    Error(u32),
    /// The parser entered too many states, so the packet must be dropped.
    Limit,
}

type ParseResult<R> = Result<R, Stop>;

impl<T: Trace> Machine<'_, T> {
    /// Parses the packet and verifies its checksums. Writes the parser error and the checksum error to standard
    /// metadata.
    ///
    /// # Errors
    /// Returns [`Stop::Limit`] if the parser does not end within the configured number of steps.
    pub(crate) fn parse(&mut self) -> Result<(), Stop> {
        self.packet.parsed = 0;
        let error = match self.run_parser() {
            Ok(()) => self.program.core_errors.no_error,
            Err(Stop::Error(error)) => {
                self.worker.counters.parser_errors += 1;
                self.note(TraceStep::ParserError(error));
                error
            }
            Err(Stop::Limit) => return Err(Stop::Limit),
        };
        self.note(TraceStep::At(ProgramPoint::Checksums));
        let checksums_right = self.verify_checksums();
        self.worker.counters.checksum_errors += u64::from(!checksums_right);
        if !checksums_right {
            self.note(TraceStep::ChecksumError);
        }
        let standard = &self.program.standard_metadata;
        let bytes = &mut self.packet.phv.bytes;
        if let Some(slot) = standard.parser_error {
            i64::from(error).store(bytes, slot);
        }
        if let Some(slot) = standard.checksum_error {
            i64::from(!checksums_right).store(bytes, slot);
        }
        Ok(())
    }

    fn run_parser(&mut self) -> ParseResult<()> {
        let program = self.program;
        let mut target = program.parser.start;
        let mut steps = 0;
        while let Target::State(id) = target {
            steps += 1;
            if steps > self.config.max_parser_steps {
                return Err(Stop::Limit);
            }
            self.note(TraceStep::State(id));
            let state: &State = program.state(id);
            for op in &state.ops {
                self.parser_op(op)?;
            }
            target = self.transition(state)?;
        }
        Ok(())
    }

    fn rest(&self) -> &[u8] {
        &self.packet.data(self.context.input)[self.packet.parsed..]
    }

    fn too_short(&self) -> Stop {
        Stop::Error(self.program.core_errors.packet_too_short)
    }

    fn parser_op(&mut self, op: &ParserOp) -> ParseResult<()> {
        match op {
            ParserOp::Extract(to) => self.extract(to, 0),
            ParserOp::ExtractVarbit(to, bits) => {
                let bits = self.index(bits, &[]);
                if !bits.is_multiple_of(8) {
                    return Err(Stop::Error(
                        self.program.core_errors.parser_invalid_argument,
                    ));
                }
                self.extract(to, bits)
            }
            ParserOp::Run(op) => {
                self.run_op(op, &[]);
                Ok(())
            }
            ParserOp::Lookahead {
                target,
                offset,
                width,
            } => {
                let value = self.look_ahead(*offset, *width)?;
                bits::store_padded(&mut self.packet.phv.bytes, *target, &value);
                Ok(())
            }
            ParserOp::Advance(bits) => {
                let bits = self.index(bits, &[]);
                if !bits.is_multiple_of(8) {
                    return Err(Stop::Error(
                        self.program.core_errors.parser_invalid_argument,
                    ));
                }
                if bits / 8 > self.rest().len() as u64 {
                    return Err(self.too_short());
                }
                self.packet.parsed += (bits / 8) as usize;
                Ok(())
            }
            ParserOp::Verify(condition, error) => {
                if self.bool(condition, &[]) {
                    return Ok(());
                }
                Err(Stop::Error(self.low_u64(error, &[]) as u32))
            }
        }
    }

    /// Returns the header that an extraction fills, or an error if the stack is full.
    fn destination(&self, to: &ExtractTo) -> ParseResult<HeaderId> {
        let full = Stop::Error(self.program.core_errors.stack_out_of_bounds);
        let phv = &self.packet.phv;
        match to {
            ExtractTo::Header(id) => Ok(*id),
            ExtractTo::Stack(id) => {
                let headers = &self.program.stack(*id).headers;
                headers.get(phv.filled(*id)).copied().ok_or(full)
            }
            ExtractTo::UnionStack(id, member) => {
                let unions = &self.program.union_stack(*id).unions;
                let union = unions.get(phv.union_filled(*id)).copied().ok_or(full)?;
                Ok(self.program.union(union).headers[*member])
            }
        }
    }

    fn extract(&mut self, to: &ExtractTo, varbit_bits: u64) -> ParseResult<()> {
        let id = self.destination(to)?;
        let ty = self.program.header_type(self.program.header(id).ty);
        let bytes = (ty.fixed_bits as u64 / 8).saturating_add(varbit_bits / 8);
        if (self.rest().len() as u64) < bytes {
            return Err(self.too_short());
        }
        if bytes > u64::from(self.program.header(id).bytes) {
            return Err(Stop::Error(self.program.core_errors.header_too_short));
        }
        let start = self.packet.parsed;
        let end = start + bytes as usize;
        let packet = &mut *self.packet;
        let (phv, data) = packet.parts(self.context.input);
        phv.extract(self.program, id, varbit_bits as u32, &data[start..end]);
        packet.parsed = end;
        if T::ENABLED {
            self.trace.step(TraceStep::Extract(id));
        }
        match to {
            ExtractTo::Header(_) => {}
            ExtractTo::Stack(id) => packet.phv.set_filled(*id, packet.phv.filled(*id) + 1),
            ExtractTo::UnionStack(id, _) => {
                packet
                    .phv
                    .set_union_filled(*id, packet.phv.union_filled(*id) + 1);
            }
        }
        Ok(())
    }

    /// Returns `width` bits of the packet, right-aligned in whole bytes. These bits begin `offset` bits after the
    /// parsed bytes.
    fn look_ahead(&mut self, offset: u32, width: u32) -> ParseResult<Vec<u8>> {
        let mut value = Vec::new();
        self.append_ahead(offset, width, &mut value)?;
        Ok(value)
    }

    fn append_ahead(&self, offset: u32, width: u32, out: &mut Vec<u8>) -> ParseResult<()> {
        let (offset, width) = (offset as usize, width as usize);
        if self.rest().len() * 8 < offset + width {
            return Err(self.too_short());
        }
        let start = out.len();
        let bytes = width.div_ceil(8);
        out.resize(start + bytes, 0);
        bits::copy_bits(
            self.rest(),
            offset,
            &mut out[start..],
            bytes * 8 - width,
            width,
        );
        Ok(())
    }

    fn transition(&mut self, state: &State) -> ParseResult<Target> {
        let otherwise = || {
            let no_match = Stop::Error(self.program.core_errors.no_match);
            state.default.ok_or(no_match)
        };
        if state.key.is_empty() {
            return otherwise();
        }
        let mut key = std::mem::take(&mut self.worker.key);
        key.clear();
        let built = state
            .key
            .iter()
            .try_for_each(|part| self.append_key(part, &mut key));
        let found = built.map(|()| {
            state
                .transitions
                .iter()
                .find(|case| self.matches(case, &key))
        });
        let target = found.and_then(|found| found.map_or_else(otherwise, |case| Ok(case.next)));
        self.worker.key = key;
        target
    }

    fn matches(&self, case: &Transition, key: &[u8]) -> bool {
        match &case.matches {
            TransitionMatch::Value { value, mask } => key
                .iter()
                .zip(mask)
                .zip(value)
                .all(|((key, mask), value)| key & mask == *value),
            TransitionMatch::ValueSet(set, mask) => {
                self.context
                    .tables
                    .value_set_contains(*set, key, mask.as_deref())
            }
        }
    }

    fn append_key(&self, part: &KeyPart, key: &mut Vec<u8>) -> ParseResult<()> {
        let phv = &self.packet.phv;
        let empty = Stop::Error(self.program.core_errors.stack_out_of_bounds);
        let slot = match part {
            KeyPart::Lookahead(offset, width) => return self.append_ahead(*offset, *width, key),
            KeyPart::Field(slot) => *slot,
            KeyPart::StackLast(stack, slot) => {
                let last = phv.filled(*stack).checked_sub(1).ok_or(empty)?;
                let id = self.program.stack(*stack).headers[last];
                slot.moved(self.program.header(id).offset)
            }
            KeyPart::UnionStackLast(stack, member, slot) => {
                let last = phv.union_filled(*stack).checked_sub(1).ok_or(empty)?;
                let union = self.program.union_stack(*stack).unions[last];
                let id = self.program.union(union).headers[*member];
                slot.moved(self.program.header(id).offset)
            }
        };
        let start = key.len();
        key.resize(start + slot.bytes(), 0);
        bits::load_padded(&phv.bytes, slot, &mut key[start..]);
        Ok(())
    }
}
