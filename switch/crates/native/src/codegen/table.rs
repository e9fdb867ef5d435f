// SPDX-License-Identifier: Apache-2.0
//! Compiles tables: the key, the lookup, and the actions, which are inlined where the table is applied.

use std::mem::offset_of;
use std::rc::Rc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, Type, Value};
use sluice_engine::Counters;
use sluice_program::control::KeySource;
use sluice_program::{ActionId, Key, MatchKind, Next, Table, TableId};
use sluice_tables::{Access, NO_ACTION, ROW_HIT, ROW_HOLDER, RowShape, TableHandle};

use crate::analysis::calculation_input::words_of;
use crate::codegen::action::{End, param_words};
use crate::codegen::expr::Params;
use crate::codegen::key::KeyField;
use crate::codegen::lower::Lower;
use crate::codegen::number::Words;
use crate::codegen::pipeline::Graph;
use crate::runtime::frame::Frame;
use crate::runtime::lookups::{self, HIT, LookUp};

impl Lower<'_> {
    /// Compiles a table, from the lookup to the next step. Ends the block.
    pub(crate) fn table(&mut self, id: TableId, graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        let counted = table.with_counters || table.support_timeout || table.meter.is_some();
        if table.key.is_empty()
            && !counted
            && table.profile.is_none()
            && let Some(default) = &table.default
            && default.const_entry
        {
            let action = self.program.action(default.action);
            let params = Params::Known(param_words(action, &default.params));
            return self.run(table, default.action, &params, false, graph);
        }
        if self.is_constant(table) && self.constant_table(id, graph) {
            return;
        }
        self.look_up_and_run(id, graph);
    }

    /// Returns whether the table may be compiled to comparisons in the code, without a lookup. Such a table has
    /// constant entries and a key, but neither a profile nor a meter.
    fn is_constant(&self, table: &Table) -> bool {
        let plain = table.profile.is_none() && table.meter.is_none();
        table.const_entries && plain && !table.key.is_empty()
    }

    /// Compiles a miss in a constant table. Ends the block.
    pub(crate) fn miss(&mut self, id: TableId, graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        match &table.default {
            Some(default) if default.const_entry => {
                self.count_miss(id);
                let action = self.program.action(default.action);
                let params = Params::Known(param_words(action, &default.params));
                self.run(table, default.action, &params, false, graph);
            }
            // The control plane may have set the default action, so it is looked up at run time.
            _ => self.run_default(id, graph),
        }
    }

    /// Generates code that runs an action. The action is known at compile time. So is `hit`, which tells whether the
    /// lookup hit an entry. Ends the block.
    pub(crate) fn run(
        &mut self,
        table: &Table,
        action: ActionId,
        params: &Params,
        hit: bool,
        graph: &mut Graph,
    ) {
        let exit = self.b.create_block();
        if self.action(action, params, exit) == End::Open {
            self.after(table, Some(action), hit, graph);
        }
        self.leave_by(exit, graph);
    }

    /// Generates a jump to the step that follows an action. Ends the block.
    fn after(&mut self, table: &Table, action: Option<ActionId>, hit: bool, graph: &mut Graph) {
        let next = self.next_block(graph, table.next_after(action, hit));
        self.jump(next);
    }

    /// Returns the value of a key field in the form in which entries store it.
    pub(crate) fn key_value(&mut self, key: &Key) -> Words {
        let value = match key.source {
            KeySource::Metadata(slot) => self.load_slot(self.phv, slot),
            KeySource::Field(header, slot) => {
                let valid = self.is_valid(header);
                let zero = self.int(0);
                let value = self.load_guarded(self.phv, slot);
                value
                    .into_iter()
                    .map(|word| self.select(valid, word, zero))
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

    /// Generates code that looks up the table's key and runs the resulting action. Ends the block.
    fn look_up_and_run(&mut self, id: TableId, graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        self.tables = Some(self.frame_field(offset_of!(Frame<'static>, tables)));
        if let Access::Direct(bits) = Access::of(table)
            && table.profile.is_some()
            && table.meter.is_none()
        {
            let key = self.direct_key(table, bits);
            let head = self.head_of(id, key);
            let row = |lower: &mut Self| lower.row_of_direct(id, table, key);
            self.run_head_of(id, row, head, true, graph);
            self.tables = None;
            return;
        }
        let row = self.look_up(id, table);
        self.run_row_of(id, row, !table.key.is_empty(), graph);
        self.tables = None;
    }

    /// Generates code that runs the action of a miss. Ends the block.
    fn run_default(&mut self, id: TableId, graph: &mut Graph) {
        let row = self.handle(id, TableHandle::DEFAULT);
        self.run_row_of(id, row, false, graph);
    }

    /// Generates code that runs the action of a row. If `entries` is false, the table has no entries to hit: the row is
    /// always the default row. Ends the block.
    fn run_row_of(&mut self, id: TableId, row: Value, entries: bool, graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        if table.meter.is_some() {
            let number = self.int(id.0.into());
            let found = self.call(lookups::behind as *const (), &[number, row], 2);
            let hit = self.flag(found[1], HIT);
            let action = self.b.ins().ireduce(I32, found[1]);
            return self.dispatch(table, action, found[0], hit, graph);
        }
        let head = self.load(I64, row, 0);
        self.run_head_of(id, |_| row, head, entries, graph);
    }

    /// Like [`Self::run_row_of`], for a table without a meter. The caller has loaded the head of the row.
    fn run_head_of(
        &mut self,
        id: TableId,
        row: impl Fn(&mut Self) -> Value,
        head: Value,
        entries: bool,
        graph: &mut Graph,
    ) {
        let table: &Table = self.program.table(id);
        let hit = if entries {
            self.flag(head, ROW_HIT)
        } else {
            self.byte(false)
        };
        let count = |lower: &mut Self| {
            if table.with_counters || table.support_timeout {
                lower.count_found(id, head, entries.then_some(hit));
            }
        };
        let (action, params) = if table.profile.is_some() {
            self.choose_action(id, row, head, count)
        } else {
            count(self);
            let shape = RowShape::of(self.program, table);
            let action = self.b.ins().ireduce(I32, head);
            let row = row(self);
            (action, self.b.ins().iadd_imm_s(row, shape.params as i64))
        };
        self.dispatch(table, action, params, hit, graph);
    }

    /// Generates code that counts the packet at a row, given the row's head. The table must count packets. `hit` is a
    /// value that tells at run time whether the row belongs to an entry. `hit` is `None` if the row is always the
    /// default row.
    fn count_found(&mut self, id: TableId, head: Value, hit: Option<Value>) {
        let mut state = self.handle(id, TableHandle::DEFAULT_STATE);
        if let Some(hit) = hit {
            let holder = self.shr(head, ROW_HOLDER);
            let own = self.state_of(id, holder);
            state = self.b.ins().select(hit, own, state);
        }
        self.leave_behind(state);
    }

    /// Returns the address of the packet state of an entry, given the number of its record.
    pub(crate) fn state_of(&mut self, id: TableId, number: Value) -> Value {
        let shape = RowShape::of(self.program, self.program.table(id));
        let stride = self.int(shape.stride as u64);
        let offset = self.b.ins().imul(number, stride);
        let records = self.handle(id, TableHandle::RECORDS);
        let record = self.b.ins().iadd(records, offset);
        self.b.ins().iadd_imm_s(record, shape.state as i64)
    }

    /// Generates code that counts the packet at a miss, if the table counts packets.
    pub(crate) fn count_miss(&mut self, id: TableId) {
        let table: &Table = self.program.table(id);
        if table.with_counters || table.support_timeout {
            let state = self.handle(id, TableHandle::DEFAULT_STATE);
            self.leave_behind(state);
        }
    }

    /// Loads a field of 64 bits from a table's handle.
    pub(crate) fn handle(&mut self, id: TableId, field: usize) -> Value {
        self.handle_of(I64, id, field)
    }

    /// Loads a field of this type from a table's handle.
    pub(crate) fn handle_of(&mut self, ty: Type, id: TableId, field: usize) -> Value {
        let tables = match self.tables {
            Some(tables) => tables,
            None => self.frame_field(offset_of!(Frame<'static>, tables)),
        };
        let offset = id.index() * size_of::<TableHandle>() + field;
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        self.b.ins().load(ty, flags, tables, offset as i32)
    }

    /// Returns whether a flag is set in a word.
    fn flag(&mut self, word: Value, flag: u64) -> Value {
        let bit = self.and(word, flag);
        let zero = self.int(0);
        self.compare(IntCC::NotEqual, bit, zero)
    }

    /// Looks up the table's key and returns the address of its row.
    fn look_up(&mut self, id: TableId, table: &Table) -> Value {
        let access = Access::of(table);
        match access {
            Access::Keyless => self.handle(id, TableHandle::DEFAULT),
            Access::Direct(bits) => self.look_up_direct(id, table, bits),
            Access::Prefix(field) => self.unless_empty(id, |lower| {
                let exact = lower.packed(table, |key| key.kind == MatchKind::Exact);
                let address = lower.key_value(&table.key[field]);
                let width = u32::from(table.key[field].width);
                let number = lower.int(id.0.into());
                let mut arguments = vec![number, exact];
                let function = if width <= u32::BITS {
                    arguments.push(lower.shl(address[0], u32::BITS - width));
                    lookups::narrow()
                } else {
                    let address = lower.resize(address, 2);
                    let aligned = lower.shift_left(&address, u128::BITS - width);
                    arguments.extend([aligned[1], aligned[0]]);
                    lookups::wide()
                };
                lower.look_up_by(id, function, arguments)
            }),
            Access::Exact | Access::Bytes => self.unless_empty(id, |lower| {
                let fields: Vec<KeyField> = table
                    .key
                    .iter()
                    .map(|key| KeyField {
                        offset: key.offset,
                        bytes: key.bytes(),
                        value: lower.key_value(key),
                    })
                    .collect();
                let key = lower.key_in_memory(&fields, table.key_bytes);
                let (number, bytes) = (lower.int(id.0.into()), table.key_bytes as u64);
                let arguments = vec![number, key, lower.int(bytes)];
                let function = match access {
                    Access::Exact => lookups::exact(table.key_bytes),
                    _ => None,
                };
                let function = function.unwrap_or_else(lookups::bytes);
                lower.look_up_by(id, function, arguments)
            }),
        }
    }

    /// Generates the call of a lookup. If the table is far ([`Self::is_far`]), calls the version of the lookup that
    /// yields, else the version that does not.
    fn look_up_by(&mut self, id: TableId, function: LookUp, arguments: Vec<Value>) -> Value {
        let far = self.is_far(id);
        let [at_once, waiting] =
            [function.at_once, function.waiting].map(|address| self.int(address as usize as u64));
        let function = self.select(far, waiting, at_once);
        self.call_by(function, &arguments, 1)[0]
    }

    /// Returns whether a table is far. A far table is so large that its lookups yield while memory is fetched.
    fn is_far(&mut self, id: TableId) -> Value {
        let entries = self.handle(id, TableHandle::ENTRIES);
        let far = self.frame_field(offset_of!(Frame<'static>, far));
        self.compare(IntCC::UnsignedGreaterThanOrEqual, entries, far)
    }

    /// Returns the row of a miss if the table has no entries, else the result of `look_up`.
    fn unless_empty(&mut self, id: TableId, look_up: impl FnOnce(&mut Self) -> Value) -> Value {
        let row = self.b.declare_var(I64);
        let default = self.handle(id, TableHandle::DEFAULT);
        self.b.def_var(row, default);
        let entries = self.handle(id, TableHandle::ENTRIES);
        self.when(entries, |lower| {
            let found = look_up(lower);
            lower.b.def_var(row, found);
        });
        self.b.use_var(row)
    }

    /// Looks up a key that is an index into an array, and returns the row.
    fn look_up_direct(&mut self, id: TableId, table: &Table, bits: u32) -> Value {
        let key = self.direct_key(table, bits);
        self.row_of_direct(id, table, key)
    }

    /// Returns the key of a table that is an array, as an index into the array.
    fn direct_key(&mut self, table: &Table, bits: u32) -> Value {
        let key = self.packed(table, |_| true);
        // The key cannot have higher bits. The mask makes sure of this, because the key determines the address of a
        // load.
        self.and(key, (1 << bits) - 1)
    }

    /// Returns the row at an index of a table that is an array.
    fn row_of_direct(&mut self, id: TableId, table: &Table, key: Value) -> Value {
        let slots = self.handle(id, TableHandle::DIRECT_SLOTS);
        let offset = self.shl(key, size_of::<u32>().ilog2());
        let address = self.b.ins().iadd(slots, offset);
        let slot = self.load(I32, address, 0);
        let slot = self.b.ins().uextend(I64, slot);
        let stride = RowShape::of(self.program, table).stride;
        let length = self.int(stride as u64);
        let offset = self.b.ins().imul(slot, length);
        let records = self.handle(id, TableHandle::RECORDS);
        let record = self.b.ins().iadd(records, offset);
        let record = self.b.ins().iadd_imm_s(record, -(stride as i64));
        let default = self.handle(id, TableHandle::DEFAULT);
        self.b.ins().select(slot, record, default)
    }

    /// Returns the selected key fields as one number. Together they have at most 64 bits.
    fn packed(&mut self, table: &Table, which: impl Fn(&Key) -> bool) -> Value {
        let (mut number, mut bits) = (None, 0);
        for key in table.key.iter().filter(|key| which(key)) {
            let value = self.key_value(key)[0];
            bits += u32::from(key.width);
            number = Some(match number {
                None => value,
                Some(before) => {
                    let before = self.shl(before, u32::from(key.width));
                    let number = self.b.ins().bor(before, value);
                    self.note_bits(number, bits);
                    number
                }
            });
        }
        number.unwrap_or_else(|| self.int(0))
    }

    /// Generates code that runs one of the table's actions, selected by an action number that is known only at run
    /// time. Ends the block.
    fn dispatch(
        &mut self,
        table: &Table,
        action: Value,
        params: Value,
        hit: Value,
        graph: &mut Graph,
    ) {
        let mut blocks: Vec<(ActionId, Block)> = Vec::new();
        let default = table.default.as_ref().map(|default| default.action);
        for id in table.actions.iter().copied().chain(default) {
            if blocks.iter().all(|(known, _)| *known != id) {
                blocks.push((id, self.b.create_block()));
            }
        }
        let none = self.b.create_block();
        debug_assert!(blocks.iter().all(|(id, _)| id.0 != NO_ACTION));
        let block_of = |own: ActionId| blocks.iter().find(|(id, _)| *id == own);
        let copies = table.copies.iter();
        let copies = copies.filter_map(|(id, own)| Some((id.0.into(), block_of(*own)?.1)));
        let own = blocks.iter().map(|(id, block)| (id.0.into(), *block));
        let cases: Vec<(u64, Block)> = own.chain(copies).collect();
        let alike = vec![1.0; cases.len() + 1];
        self.emit_switch(&cases, action, none, &alike);
        for (id, block) in blocks {
            self.enter(block);
            let params = if self.program.action(id).param_words == 0 {
                Params::Known(Rc::new([]))
            } else {
                Params::At(params)
            };
            let exit = self.b.create_block();
            if self.action(id, &params, exit) == End::Open {
                self.after_either(table, Some(id), hit, graph);
            }
            self.leave_by(exit, graph);
        }
        self.enter(none);
        self.when(hit, |lower| {
            lower.bump(offset_of!(Counters, empty_group));
        });
        self.after_either(table, None, hit, graph);
    }

    /// Generates a jump to the step that follows a hit or a miss. Ends the block.
    fn after_either(
        &mut self,
        table: &Table,
        action: Option<ActionId>,
        hit: Value,
        graph: &mut Graph,
    ) {
        let next = |hit| -> Next { table.next_after(action, hit) };
        if let Some(hit) = self.constant(hit) {
            let next = self.next_block(graph, next(hit != 0));
            return self.jump(next);
        }
        let on_hit = self.next_block(graph, next(true));
        let on_miss = self.next_block(graph, next(false));
        self.branch(hit, on_hit, on_miss);
    }
}
