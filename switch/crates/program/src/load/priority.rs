// SPDX-License-Identifier: Apache-2.0
//! Drops the field `priority` from the standard metadata of a program that never writes it. The switch then need not
//! read the field for each packet.

use crate::action::{LValue, Op};
use crate::expr::HeaderRef;
use crate::layout::FieldSlot;
use crate::parser::ParserOp;
use crate::program::Program;

/// Clears the priority's slot if no operation of the program writes it.
pub(crate) fn note(program: &mut Program) {
    let priority = program.standard_metadata.priority;
    program.standard_metadata.priority = priority.filter(|slot| is_written(program, slot));
}

/// Returns whether the program may write any bit of a slot.
fn is_written(program: &Program, slot: &FieldSlot) -> bool {
    let meets = |other: &FieldSlot| {
        let end = |slot: &FieldSlot| slot.bit() + usize::from(slot.width);
        other.bit() < end(slot) && slot.bit() < end(other)
    };
    let actions = program.actions.iter().flat_map(|action| &action.ops);
    let mut ops = actions.chain(&program.deparser.ops);
    let mut parser = program.states.iter().flat_map(|state| &state.ops);
    let mut meters = program.tables.iter().filter_map(|table| table.meter);
    ops.any(|op| op_writes(program, op, &meets))
        || parser.any(|op| match op {
            ParserOp::Run(op) => op_writes(program, op, &meets),
            ParserOp::Lookahead { target, .. } => meets(target),
            // The parser extracts packet headers only, never metadata.
            ParserOp::Extract(_)
            | ParserOp::ExtractVarbit(..)
            | ParserOp::Advance(_)
            | ParserOp::Verify(..) => false,
        })
        || meters.any(|(_, target)| meets(&target))
}

/// Returns whether an operation writes a metadata slot for which `meets` is true. Elements of header stacks are not
/// metadata, so it ignores them.
fn op_writes(program: &Program, op: &Op, meets: &impl Fn(&FieldSlot) -> bool) -> bool {
    match op {
        Op::Move { to, .. } => meets(to),
        Op::Assign(target, _)
        | Op::ExecuteMeter(_, _, target)
        | Op::RegisterRead(target, ..)
        | Op::Hash { target, .. }
        | Op::Random(target, ..) => match target {
            LValue::Field(slot) => meets(slot),
            LValue::HeaderField(HeaderRef::Fixed(id), slot) => {
                meets(&slot.moved(program.header(*id).offset))
            }
            LValue::HeaderField(..) => false,
        },
        Op::MarkToDrop(Some((port, group))) => meets(port) || group.as_ref().is_some_and(meets),
        // These operations write all fields of a metadata instance.
        Op::AssignHeader(HeaderRef::Fixed(id), _)
        | Op::AddHeader(HeaderRef::Fixed(id))
        | Op::RemoveHeader(HeaderRef::Fixed(id)) => program.header(*id).metadata,
        _ => false,
    }
}
