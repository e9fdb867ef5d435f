// SPDX-License-Identifier: Apache-2.0
//! Tables: the key, the look-up, and the actions, inlined where the table is applied.

use std::rc::Rc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Switch;
use sluice_program::control::KeySource;
use sluice_program::{ActionId, Key, Next, Table, TableId};

use super::action::{End, param_words};
use super::expr::Params;
use super::key::KeyField;
use super::lower::Lower;
use super::number::Words;
use super::pipeline::Graph;
use super::runtime::{self, HIT, NONE};
use crate::counters::Counters;

impl Lower<'_> {
    /// A table from look-up to the step that follows. Ends the block.
    pub(super) fn table(&mut self, id: TableId, graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        let counted = table.with_counters || table.support_timeout || table.meter.is_some();
        if table.key.is_empty() && !counted && table.profile.is_none() {
            match &table.default {
                None => return self.after(table, None, false, graph),
                Some(default) if default.const_entry => {
                    let action = self.program.action(default.action);
                    let params = Params::Known(param_words(action, &default.params));
                    return self.run(table, default.action, &params, false, graph);
                }
                Some(_) => {}
            }
        }
        if self.is_constant(table) && !counted && self.constant_table(id, graph) {
            return;
        }
        let found = self.look_up(id, table);
        self.dispatch(table, found, graph);
    }

    /// Whether a table's entries are known now, and few enough.
    fn is_constant(&self, table: &Table) -> bool {
        table.const_entries && table.profile.is_none() && !table.key.is_empty()
    }

    /// What a miss of a constant table does. Ends the block.
    pub(super) fn miss(&mut self, id: TableId, graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        match &table.default {
            None => self.after(table, None, false, graph),
            Some(default) if default.const_entry => {
                let action = self.program.action(default.action);
                let params = Params::Known(param_words(action, &default.params));
                self.run(table, default.action, &params, false, graph);
            }
            // The control plane may have changed it. No entry matches here, so this is a miss again.
            Some(_) => {
                let found = self.look_up(id, table);
                self.dispatch(table, found, graph);
            }
        }
    }

    /// Runs an action whose name, and whether it was hit, are known. Ends the block.
    pub(super) fn run(
        &mut self,
        table: &Table,
        action: ActionId,
        params: &Params,
        hit: bool,
        graph: &mut Graph,
    ) {
        let end = self.action(action, params, graph.exit());
        if end == End::Open {
            self.after(table, Some(action), hit, graph);
        }
    }

    /// Goes on with what follows. Ends the block.
    fn after(&mut self, table: &Table, action: Option<ActionId>, hit: bool, graph: &mut Graph) {
        let next = graph.block(&mut self.b, table.next_after(action, hit));
        self.jump(next);
    }

    /// The value of a key field, as it is compared with entries.
    pub(super) fn key_value(&mut self, key: &Key) -> Words {
        let value = match key.source {
            KeySource::Metadata(slot) => self.load_slot(self.phv, slot),
            KeySource::Field(header, slot) => {
                let valid = self.is_valid(header);
                let zero = self.int(0);
                let value = self.load_slot(self.phv, slot);
                value
                    .into_iter()
                    .map(|word| self.b.ins().select(valid, word, zero))
                    .collect()
            }
            KeySource::Valid(header) => {
                let valid = self.is_valid(header);
                vec![self.widen(valid)]
            }
        };
        match &key.mask {
            None => value,
            Some(mask) => {
                let mask = words_of(mask);
                let masked = value.into_iter().zip(mask);
                masked.map(|(word, mask)| self.and(word, mask)).collect()
            }
        }
    }

    /// Looks the table's key up: where the parameters lie, and the action with the flag [`HIT`].
    fn look_up(&mut self, id: TableId, table: &Table) -> (Value, Value) {
        let fields: Vec<KeyField> = table
            .key
            .iter()
            .map(|key| KeyField {
                offset: key.offset,
                bytes: key.bytes(),
                value: self.key_value(key),
            })
            .collect();
        let key = self.key_in_memory(&fields, table.key_bytes);
        let plain = !(table.with_counters || table.support_timeout)
            && table.meter.is_none()
            && table.profile.is_none();
        let function = if plain {
            runtime::lookup as *const ()
        } else {
            runtime::lookup_full as *const ()
        };
        let (id, bytes) = (self.int(id.0.into()), self.int(table.key_bytes as u64));
        let found = self.call(function, &[id, key, bytes], 2);
        (found[0], found[1])
    }

    /// Runs the action that a look-up found. Ends the block.
    fn dispatch(&mut self, table: &Table, (params, found): (Value, Value), graph: &mut Graph) {
        let hit = self.and(found, HIT);
        let zero = self.int(0);
        let hit = self.compare(IntCC::NotEqual, hit, zero);
        let action = self.and(found, HIT - 1);
        let mut switch = Switch::new();
        let mut blocks: Vec<(ActionId, Block)> = Vec::new();
        let default = table.default.as_ref().map(|default| default.action);
        for id in table.actions.iter().copied().chain(default) {
            if blocks.iter().all(|(known, _)| *known != id) {
                let block = self.b.create_block();
                switch.set_entry(id.0.into(), block);
                blocks.push((id, block));
            }
        }
        let none = self.b.create_block();
        debug_assert!(blocks.iter().all(|(id, _)| u64::from(id.0) != NONE));
        switch.emit(&mut self.b, action, none);
        for (id, block) in blocks {
            self.enter(block);
            let params = if self.program.action(id).param_words == 0 {
                Params::Known(Rc::new([]))
            } else {
                Params::At(params)
            };
            if self.action(id, &params, graph.exit()) == End::Open {
                self.after_either(table, Some(id), hit, graph);
            }
        }
        self.enter(none);
        self.when(hit, |lower| {
            lower.bump(std::mem::offset_of!(Counters, empty_group));
        });
        self.after_either(table, None, hit, graph);
    }

    /// Goes on with what follows a hit or a miss. Ends the block.
    fn after_either(
        &mut self,
        table: &Table,
        action: Option<ActionId>,
        hit: Value,
        graph: &mut Graph,
    ) {
        let next = |hit| -> Next { table.next_after(action, hit) };
        let on_hit = graph.block(&mut self.b, next(true));
        let on_miss = graph.block(&mut self.b, next(false));
        self.branch(hit, on_hit, on_miss);
    }
}

/// Right-aligned bytes as words, least significant first.
pub(super) fn words_of(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    bytes.rchunks(8).map(word).collect()
}
