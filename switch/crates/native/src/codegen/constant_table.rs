// SPDX-License-Identifier: Apache-2.0
//! Compiles tables with constant entries, which the program defines. The entries become branches and comparisons in the
//! code, so no lookup is needed at run time.
//!
//! The key is split into columns of at most 64 bits. A table of few rows becomes a sequence of comparisons. For a
//! larger table, the code uses bit-vector classification (Lakshman and Stiliadis, SIGCOMM 1998):
//!
//! - Each column yields a bit vector of the rows that match in this column. For a narrow column, the vector is read
//!   from an array that is indexed by the column's value. A wide column is compared with each value that occurs in a
//!   row.
//! - The conjunction of these vectors has a bit for each row that matches in all columns. The row of the lowest bit
//!   wins.

use std::rc::Rc;
use std::slice;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use sluice_program::control::TableKeyValue;
use sluice_program::{ActionId, Key, MatchKind, Table, TableEntry, TableId};
use sluice_tables::constant_rows;

use crate::analysis::calculation_input::words_of;
use crate::codegen::action::param_words;
use crate::codegen::expr::Params;
use crate::codegen::lower::Lower;
use crate::codegen::pipeline::Graph;

/// Maximum number of rows that are compared one after the other.
const SEQUENTIAL: usize = 3;
/// Maximum width, in bits, of a column whose vectors are in an array.
const TABLED: u32 = 8;
/// Maximum number of rows of a table that is compiled to code. A larger table is looked up like any other table.
const MOST_ROWS: usize = 512;

/// Condition of a row on the value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    Masked { value: u64, mask: u64 },
    Range { low: u64, high: u64 },
}

impl Pattern {
    fn matches(self, key: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Masked { value, mask } => key & mask == value,
            Self::Range { low, high } => (low..=high).contains(&key),
        }
    }
}

/// A row: one pattern for each column, and the action with its parameters.
#[derive(Clone, Debug)]
struct Row {
    patterns: Vec<Pattern>,
    action: ActionId,
    params: Rc<[u64]>,
    /// Number of the record that holds the counter of the row's entry and the time of its last hit.
    record: u32,
}

/// A column of the key.
#[derive(Clone, Copy, Debug)]
struct Column {
    value: Value,
    width: u32,
}

/// Returns a mask of the low `width` bits, as words, least significant first.
fn ones(width: u16) -> Vec<u64> {
    let words = usize::from(width).div_ceil(64);
    let mut ones = vec![u64::MAX; words];
    ones[words - 1] >>= (64 - width % 64) % 64;
    ones
}

/// Returns a mask of the first `len` of `width` bits, as words, least significant first.
fn prefix(width: u16, len: u32) -> Vec<u64> {
    let mut mask = ones(width);
    for bit in 0..u32::from(width) - len {
        mask[bit as usize / 64] &= !(1 << (bit % 64));
    }
    mask
}

/// Returns an entry's condition on a key field, as one pattern for each 64-bit word of the field, least significant
/// first. Returns `None` for a range of more than 64 bits.
fn patterns(key: &Key, value: &TableKeyValue) -> Option<Vec<Pattern>> {
    let all = ones(key.width);
    let own = match &key.mask {
        Some(mask) => words_of(mask),
        None => vec![u64::MAX; all.len()],
    };
    let masked = |value: &[u8], mask: &[u64]| {
        let words = words_of(value);
        (0..all.len())
            .map(|index| {
                let mask = mask[index] & all[index];
                let value = words.get(index).copied().unwrap_or(0) & mask & own[index];
                if mask == 0 {
                    Pattern::Any
                } else {
                    Pattern::Masked { value, mask }
                }
            })
            .collect()
    };
    let any = || vec![Pattern::Any; all.len()];
    Some(match value {
        TableKeyValue::Exact(value) => masked(value, &all),
        TableKeyValue::Lpm(_, 0) | TableKeyValue::Optional(None) => any(),
        TableKeyValue::Lpm(value, len) => masked(value, &prefix(key.width, *len)),
        TableKeyValue::Ternary(value, mask) => masked(value, &words_of(mask)),
        TableKeyValue::Optional(Some(value)) => masked(value, &all),
        TableKeyValue::Range(low, high) => {
            let ([low], [high]) = (&words_of(low)[..], &words_of(high)[..]) else {
                return None;
            };
            if (*low, *high) == (0, all[0]) {
                any()
            } else {
                vec![Pattern::Range {
                    low: *low,
                    high: *high,
                }]
            }
        }
    })
}

/// Returns an entry's rank. As in `sluice_tables`, the matching entry with the lowest rank wins.
fn order(table: &Table, entry: &TableEntry) -> u32 {
    if table.needs_priority() {
        return entry.priority;
    }
    let lengths = entry.key.iter().map(|value| match value {
        TableKeyValue::Lpm(_, len) => u32::MAX - len,
        _ => 0,
    });
    lengths.max().unwrap_or(0)
}

impl Lower<'_> {
    /// Compiles a table with constant entries and ends the block. Returns `false` without generating code if the table
    /// cannot be compiled.
    pub(crate) fn constant_table(&mut self, id: TableId, graph: &mut Graph) -> bool {
        let table: &Table = self.program.table(id);
        if table.entries.len() > MOST_ROWS {
            return false;
        }
        // An entry that equals an earlier entry has no record and is left out, because the earlier entry always wins.
        let records = constant_rows(table).into_iter();
        let entries = table.entries.iter().zip(records);
        let mut entries: Vec<(&TableEntry, u32)> = entries
            .filter_map(|(entry, record)| Some((entry, record?)))
            .collect();
        entries.sort_by_key(|(entry, _)| order(table, entry));
        let mut rows = Vec::new();
        for (entry, record) in entries {
            let mut all = Vec::new();
            for (key, value) in table.key.iter().zip(&entry.key) {
                // A key's mask applies to values, but not to the upper bound of a range.
                let ranged = key.kind == MatchKind::Range && key.mask.is_some();
                match patterns(key, value) {
                    Some(patterns) if !ranged => all.extend(patterns),
                    _ => return false,
                }
            }
            let action = self.program.action(entry.action);
            rows.push(Row {
                patterns: all,
                action: entry.action,
                params: param_words(action, &entry.params),
                record,
            });
        }
        let columns = self.columns(table);
        // If a column's value is known at compile time, drops the rows that do not match this value.
        for (index, column) in columns.iter().enumerate() {
            if let Some(value) = self.constant(column.value) {
                rows.retain(|row| row.patterns[index].matches(value));
                for row in &mut rows {
                    row.patterns[index] = Pattern::Any;
                }
            }
        }
        let always = |row: &Row| row.patterns.iter().all(|pattern| *pattern == Pattern::Any);
        if let Some(last) = rows.iter().position(always) {
            rows.truncate(last + 1);
        }
        if rows.len() <= SEQUENTIAL {
            self.sequence(id, &columns, &rows, graph);
        } else {
            for rows in rows.chunks(64) {
                self.vectors(id, &columns, rows, graph);
            }
            self.miss(id, graph);
        }
        true
    }

    fn columns(&mut self, table: &Table) -> Vec<Column> {
        let mut columns = Vec::new();
        for key in &table.key {
            let value = self.key_value(key);
            for (index, value) in value.into_iter().enumerate() {
                let width = (u32::from(key.width) - index as u32 * 64).min(64);
                columns.push(Column { value, width });
            }
        }
        columns
    }

    /// Generates code that tests whether a column matches a pattern. Returns `None` if the column always matches.
    fn matches(&mut self, column: Column, pattern: Pattern) -> Option<Value> {
        match pattern {
            Pattern::Any => None,
            Pattern::Masked { value, mask } => {
                let all = u64::MAX >> (64 - column.width);
                let key = if mask & all == all {
                    column.value
                } else {
                    self.and(column.value, mask)
                };
                let value = self.int(value);
                Some(self.compare(IntCC::Equal, key, value))
            }
            Pattern::Range { low, high } => {
                let (low, high) = (self.int(low), self.int(high));
                let above = self.compare(IntCC::UnsignedGreaterThanOrEqual, column.value, low);
                let below = self.compare(IntCC::UnsignedLessThanOrEqual, column.value, high);
                Some(self.b.ins().band(above, below))
            }
        }
    }

    /// Generates code that tests one row after the other. Ends the block.
    fn sequence(&mut self, id: TableId, columns: &[Column], rows: &[Row], graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        for row in rows {
            let mut all = None;
            for (column, pattern) in columns.iter().zip(&row.patterns) {
                if let Some(matches) = self.matches(*column, *pattern) {
                    all = Some(match all {
                        None => matches,
                        Some(before) => self.both(before, matches),
                    });
                }
            }
            let params = Params::Known(Rc::clone(&row.params));
            match all.map(|all| self.constant(all)) {
                Some(Some(0)) => continue,
                // This row always matches, so the rows after it are never reached.
                None | Some(Some(_)) => {
                    self.count_row(id, slice::from_ref(row), None);
                    return self.run(table, row.action, &params, true, graph);
                }
                Some(None) => {}
            }
            let all = all.expect("a row that may match has a condition");
            let (hit, next) = (self.b.create_block(), self.b.create_block());
            self.branch(all, hit, next);
            self.enter(hit);
            self.count_row(id, slice::from_ref(row), None);
            self.run(table, row.action, &params, true, graph);
            self.enter(next);
        }
        self.miss(id, graph);
    }

    /// Generates code that tests up to 64 rows at once. Leaves the builder in a new block, which is reached if no row
    /// matches.
    fn vectors(&mut self, id: TableId, columns: &[Column], rows: &[Row], graph: &mut Graph) {
        let (hit, none) = (self.b.create_block(), self.b.create_block());
        // Order: narrow columns come first. They are cheap to test, and for most packets they already show that no row
        // matches.
        let (narrow, wide): (Vec<_>, Vec<_>) = (0..columns.len())
            .filter(|index| rows.iter().any(|row| row.patterns[*index] != Pattern::Any))
            .partition(|index| columns[*index].width <= TABLED);
        let mut vector = self.conjunction(None, &narrow, columns, rows);
        if let Some(narrowed) = vector
            && !wide.is_empty()
        {
            let more = self.b.create_block();
            self.branch(narrowed, more, none);
            self.enter(more);
        }
        vector = self.conjunction(vector, &wide, columns, rows);
        let all = u64::MAX >> (64 - rows.len());
        let vector = match vector {
            Some(vector) => vector,
            None => self.int(all),
        };
        let zero = self.int(0);
        let any = self.compare(IntCC::NotEqual, vector, zero);
        self.branch(any, hit, none);
        self.enter(hit);
        self.run_row(id, vector, rows, graph);
        self.enter(none);
    }

    /// Returns the rows in `vector` (or all rows if `vector` is `None`) that match in the columns `which`, as a bit
    /// vector. Returns `vector` itself if `which` is empty.
    fn conjunction(
        &mut self,
        vector: Option<Value>,
        which: &[usize],
        columns: &[Column],
        rows: &[Row],
    ) -> Option<Value> {
        which.iter().fold(vector, |vector, index| {
            let wanted: Vec<Pattern> = rows.iter().map(|row| row.patterns[*index]).collect();
            let here = self.column_vector(columns[*index], &wanted);
            Some(match vector {
                None => here,
                Some(before) => self.b.ins().band(before, here),
            })
        })
    }

    /// Returns the vector of the rows that match in a column.
    fn column_vector(&mut self, column: Column, wanted: &[Pattern]) -> Value {
        let rows = |test: &dyn Fn(Pattern) -> bool| {
            let bits = wanted.iter().enumerate();
            bits.filter(|(_, pattern)| test(**pattern))
                .fold(0, |vector, (row, _)| vector | 1u64 << row)
        };
        if column.width <= TABLED {
            let keys = 0..1 << column.width;
            let table = keys.map(|key| rows(&|pattern| pattern.matches(key)));
            if wanted.len() <= 8 {
                let table: Vec<u8> = table.map(|rows| rows as u8).collect();
                let address = self.statics.bytes(&table);
                return self.constant_byte_at(address, column.value);
            }
            let address = self.statics.words(table.collect());
            return self.constant_at(address, column.value);
        }
        let mut vector = self.int(rows(&|pattern| pattern == Pattern::Any));
        let mut seen = Vec::new();
        for pattern in wanted {
            if seen.contains(pattern) {
                continue;
            }
            seen.push(*pattern);
            if let Some(matches) = self.matches(column, *pattern) {
                // Each row has one pattern for the column, so the row's bit is added at most once. Therefore the sum is
                // the union of the vectors.
                let these = rows(&|other| other == *pattern) as i64;
                if self.constant(matches) != Some(0) {
                    let with = self.b.ins().iadd_imm_s(vector, these);
                    vector = self.select(matches, with, vector);
                }
            }
        }
        vector
    }

    /// Generates code that runs the action of the row with the lowest bit in a vector. The vector must not be 0. Ends
    /// the block.
    fn run_row(&mut self, id: TableId, vector: Value, rows: &[Row], graph: &mut Graph) {
        let table: &Table = self.program.table(id);
        let row = self.b.ins().ctz(vector);
        let minus = self.b.ins().ineg(vector);
        let lowest = self.b.ins().band(vector, minus);
        self.count_row(id, rows, Some(row));
        let mut actions: Vec<ActionId> = Vec::new();
        for row in rows {
            if !actions.contains(&row.action) {
                actions.push(row.action);
            }
        }
        let blocks: Vec<_> = actions.iter().map(|_| self.b.create_block()).collect();
        let share = 1.0 / blocks.len() as f64;
        for block in &blocks {
            self.flow_part(*block, share);
        }
        // For each action in turn, the code tests whether the lowest bit belongs to a row with this action.
        let mut targets = actions.iter().zip(&blocks).peekable();
        while let Some((action, block)) = targets.next() {
            if targets.peek().is_none() {
                self.b.ins().jump(*block, &[]);
                break;
            }
            let own = rows.iter().enumerate();
            let own = own.filter(|(_, row)| row.action == *action);
            let own = own.fold(0, |rows, (index, _)| rows | 1 << index);
            let this = self.and(lowest, own);
            let next = self.b.create_block();
            self.b.ins().brif(this, *block, &[], next, &[]);
            self.b.switch_to_block(next);
            self.b.seal_block(next);
        }
        for (action, block) in actions.into_iter().zip(blocks) {
            self.enter(block);
            let params = self.row_params(action, row, rows);
            self.run(table, action, &params, true, graph);
        }
    }

    /// Generates code that counts the packet at the entry of the row with index `row`, or of the first row if `row` is
    /// `None`. Generates no code if the table has neither counters nor timeouts.
    fn count_row(&mut self, id: TableId, rows: &[Row], row: Option<Value>) {
        let table: &Table = self.program.table(id);
        if table.with_counters || table.support_timeout {
            let record = match row {
                None => self.int(rows[0].record.into()),
                Some(row) => {
                    let records = rows.iter().map(|row| u64::from(row.record)).collect();
                    let records = self.statics.words(records);
                    self.constant_at(records, row)
                }
            };
            let state = self.state_of(id, record);
            self.leave_behind(state);
        }
    }

    /// Returns the parameters of the row at index `row`, whose action must be `action`.
    fn row_params(&mut self, action: ActionId, row: Value, rows: &[Row]) -> Params {
        let mut own = rows.iter().filter(|row| row.action == action);
        let first = own.next().expect("a listed action has a row");
        if own.all(|row| row.params == first.params) {
            return Params::Known(Rc::clone(&first.params));
        }
        let words = first.params.len();
        let all = rows.iter().flat_map(|row| {
            let own = row.action == action;
            (0..words).map(move |word| if own { row.params[word] } else { 0 })
        });
        let address = self.statics.words(all.collect());
        let stride = self.int(words as u64 * 8);
        let offset = self.b.ins().imul(row, stride);
        let start = self.int(address as u64);
        Params::At(self.b.ins().iadd(start, offset))
    }
}
