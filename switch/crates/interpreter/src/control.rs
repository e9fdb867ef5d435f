// SPDX-License-Identifier: Apache-2.0
//! Runs a pipeline: tables and conditions, one after the other.

use sluice_engine::calculation::select;
use sluice_engine::{Extern, Packet, ProgramPoint, Trace, TraceStep, bits, hit};
use sluice_program::control::KeySource;
use sluice_program::{ConditionalId, Next, Node, Pipeline, Table, TableId};
use sluice_tables::ActionRef;

use crate::machine::{Flow, Machine};

impl<T: Trace> Machine<'_, T> {
    /// Runs a pipeline to its end or to `exit`.
    pub(crate) fn run_pipeline(&mut self, pipeline: &Pipeline) {
        let mut next = pipeline.first;
        while let Some(node) = next {
            self.note(TraceStep::At(ProgramPoint::Node(node)));
            next = match node {
                Node::Conditional(id) => self.condition(id),
                Node::Table(id) => match self.apply(id) {
                    (Flow::Continue, next) => next,
                    (Flow::Exit, _) => return,
                },
            };
        }
    }

    fn condition(&mut self, id: ConditionalId) -> Next {
        let conditional = self.program.conditional(id);
        let value = self.bool(&conditional.condition, &[]);
        self.note(TraceStep::Condition(id, value));
        if value {
            conditional.if_true
        } else {
            conditional.if_false
        }
    }

    fn apply(&mut self, id: TableId) -> (Flow, Next) {
        let program = self.program;
        let table = program.table(id);
        let worker = &mut *self.worker;
        build_key(table, self.packet, &mut worker.key);
        let (scratch, random) = (&mut worker.hash_input, &mut worker.random);
        let packet = (&*self.packet, self.context.input);
        let selector = || {
            let profile = table.profile.map(|profile| program.profile(profile));
            let selector = profile.and_then(|profile| profile.selector.as_ref());
            selector.map_or(0, |selector| {
                select(program, packet, selector, scratch, random)
            })
        };
        let tables = self.context.tables;
        let found = tables.lookup(id, &worker.key, selector);
        let hit = found.hit;
        if let Some(state) = found.state {
            let metered = hit::record(
                program,
                table,
                (self.packet, self.context.now_us),
                self.config.dry_run,
                state,
                found.meter,
            );
            if let Some((meter, color)) = metered {
                self.note(TraceStep::Extern(Extern::DirectMeter(meter, color)));
            }
        }
        let called = found.action.map(|entry| ActionRef {
            action: table.own_copy(entry.action),
            ..entry
        });
        let action = called.map(|entry| entry.action);
        if T::ENABLED {
            self.trace.step(TraceStep::Table {
                table: id,
                key: &self.worker.key,
                entry: tables.find(program, id, &self.worker.key).as_ref(),
                action: called,
            });
        }
        let flow = match called {
            Some(entry) => self.run_action(entry),
            None => {
                self.worker.counters.empty_group += u64::from(hit);
                Flow::Continue
            }
        };
        (flow, table.next_after(action, hit))
    }
}

/// Builds a table's lookup key. Each field is padded to whole bytes. A field of an invalid header is 0.
fn build_key(table: &Table, packet: &Packet, out: &mut Vec<u8>) {
    out.clear();
    out.resize(table.key_bytes, 0);
    let phv = &packet.phv;
    for key in &table.key {
        let target = &mut out[key.offset..key.offset + key.bytes()];
        match key.source {
            KeySource::Metadata(slot) => bits::load_padded(&phv.bytes, slot, target),
            KeySource::Field(header, slot) if phv.is_valid(header) => {
                bits::load_padded(&phv.bytes, slot, target);
            }
            KeySource::Field(..) => {}
            KeySource::Valid(header) => target[0] = u8::from(phv.is_valid(header)),
        }
        if let Some(mask) = &key.mask {
            target
                .iter_mut()
                .zip(mask)
                .for_each(|(byte, mask)| *byte &= mask);
        }
    }
}
