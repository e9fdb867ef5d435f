// SPDX-License-Identifier: Apache-2.0
//! Runs a pipeline: tables and conditions, one after the other.

use sluice_program::control::KeySource;
use sluice_program::{ConditionalId, MeterUnit, Next, Node, Pipeline, Table, TableId};
use sluice_tables::{ActionRef, Color, EntryState, Meter};

use crate::bits;
use crate::checksum::select;
use crate::machine::{Flow, Machine};
use crate::number::Number;
use crate::packet::Packet;
use crate::profile::Place;
use crate::trace::{Extern, Step, Trace};

impl<T: Trace> Machine<'_, T> {
    /// Runs a pipeline to its end or to `exit`.
    pub(crate) fn run_pipeline(&mut self, pipeline: &Pipeline) {
        let mut next = pipeline.first;
        while let Some(node) = next {
            self.note(Step::At(Place::Node(node)));
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
        self.note(Step::Condition(id, value));
        if value {
            conditional.if_true
        } else {
            conditional.if_false
        }
    }

    fn apply(&mut self, id: TableId) -> (Flow, Next) {
        let program = self.program;
        let table = program.table(id);
        let work = &mut *self.work;
        build_key(table, self.packet, &mut work.key);
        let (scratch, random) = (&mut work.hash_input, &mut work.random);
        let packet = (&*self.packet, self.context.input);
        let selector = || {
            let profile = table.profile.map(|profile| program.profile(profile));
            let selector = profile.and_then(|profile| profile.selector.as_ref());
            selector.map_or(0, |selector| {
                select(program, packet, selector, scratch, random)
            })
        };
        let side = self.context.side;
        let found = side.lookup(id, &work.key, selector);
        let hit = found.hit;
        if let Some(state) = found.state {
            self.leave_behind(table, state, found.meter);
        }
        let called = found.action.map(|entry| ActionRef {
            action: table.own_copy(entry.action),
            ..entry
        });
        let action = called.map(|entry| entry.action);
        if T::ENABLED {
            self.trace.step(Step::Table {
                table: id,
                key: &self.work.key,
                entry: side.find(program, id, &self.work.key).as_ref(),
                action: called,
            });
        }
        let flow = match called {
            Some(entry) => self.run_action(entry),
            None => {
                self.work.counters.empty_group += u64::from(hit);
                Flow::Continue
            }
        };
        (flow, table.next_after(action, hit))
    }

    /// Updates the entry's counter, idle time and meter, as far as the table has them.
    pub(crate) fn leave_behind(
        &mut self,
        table: &Table,
        state: &EntryState,
        meter: Option<&Meter>,
    ) {
        let (bytes, now_us) = (self.packet.ingress_length, self.context.now_us);
        let rehearsal = self.config.rehearsal;
        if (table.with_counters || table.support_timeout) && !rehearsal {
            state.hit(bytes, now_us);
        }
        if let (Some((meter, target)), Some(cell)) = (table.meter, meter) {
            let amount = match self.program.meter(meter).unit {
                MeterUnit::Packets => 1,
                MeterUnit::Bytes => bytes,
            };
            let color = if rehearsal {
                Color::Green
            } else {
                cell.execute(amount, bytes, now_us)
            };
            (color as i64).store(&mut self.packet.phv.bytes, target);
            if T::ENABLED {
                let step = Step::Extern(Extern::DirectMeter(meter, color));
                self.trace.step(step);
            }
        }
    }
}

/// Builds a table's lookup key: each field in whole bytes, 0 if its header is not valid.
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
