// SPDX-License-Identifier: Apache-2.0
//! Collects the state that packets leave in a store: counters, times of last hits, the colours that meters gave, and
//! registers.
//!
//! If two stores got equal contents and processed the same packets, their residues have equal cells in the same order.

use sluice_program::{CounterId, MeterId, RegisterId, TableId};
use sluice_tables::{EntryState, Meter, Store, View};

/// A cell, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Name of the object that has the cell.
    pub name: String,
    /// Index of the cell in the object, or position of an entry in the order of keys.
    pub index: usize,
    /// Content of the cell.
    pub content: Content,
}

/// The content of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Packets and bytes.
    Count(u64, u64),
    /// An entry: packets, bytes, and time of the last hit (0 without a hit). If the entry has a meter, also the meter's
    /// counts for each colour.
    Entry(u64, u64, u64, Option<[(u64, u64); 3]>),
    /// Counts of a meter for green, yellow and red.
    Colors([(u64, u64); 3]),
    /// A register's value.
    Register(Vec<u8>),
}

/// Returns all cells of tables and externs that differ from their initial state. The order of the cells depends only on
/// the content of the store.
pub fn of(store: &Store) -> Vec<Cell> {
    let view = store.view();
    let mut cells = Vec::new();
    for index in 0..store.program().tables.len() {
        table(store, &view, TableId(index as u32), &mut cells);
    }
    drop(view);
    counters(store, &mut cells);
    meters(store, &mut cells);
    registers(store, &mut cells);
    cells
}

fn table(store: &Store, view: &View<'_>, id: TableId, cells: &mut Vec<Cell>) {
    let name = &store.program().table(id).name;
    let mut add = |index, state: Option<&EntryState>, meter: Option<&Meter>| {
        let (packets, bytes) = state.map_or((0, 0), |state| state.counter().get());
        // Before the first hit, the store returns the time of insertion. No packet has set it, so it counts as 0.
        let last_hit_us = state
            .filter(|_| packets != 0)
            .map_or(0, EntryState::last_hit_us);
        cells.push(Cell {
            name: name.clone(),
            index,
            content: Content::Entry(packets, bytes, last_hit_us, meter.map(colors)),
        });
    };
    let entries = view.entries(id);
    for (index, entry) in entries.iter().enumerate() {
        add(index, entry.state(), entry.meter());
    }
    let default = view.default_entry(id);
    add(entries.len(), Some(default.state()), default.meter());
}

fn counters(store: &Store, cells: &mut Vec<Cell>) {
    let externs = store.externs();
    for (number, counter) in store.program().counters.iter().enumerate() {
        let id = CounterId(number as u32);
        for index in 0..externs.counter_size(id) {
            let count = externs.counter(id, index).map(|cell| cell.get());
            if let Some((packets, bytes)) = count.filter(|count| *count != (0, 0)) {
                let (name, content) = (counter.name.clone(), Content::Count(packets, bytes));
                cells.push(Cell {
                    name,
                    index,
                    content,
                });
            }
        }
    }
}

fn meters(store: &Store, cells: &mut Vec<Cell>) {
    let externs = store.externs();
    for (number, meter) in store.program().meters.iter().enumerate() {
        let id = MeterId(number as u32);
        for index in 0..externs.meter_size(id) {
            let seen = externs.meter(id, index).map(colors);
            if let Some(seen) = seen.filter(|seen| *seen != [(0, 0); 3]) {
                let (name, content) = (meter.name.clone(), Content::Colors(seen));
                cells.push(Cell {
                    name,
                    index,
                    content,
                });
            }
        }
    }
}

fn registers(store: &Store, cells: &mut Vec<Cell>) {
    let externs = store.externs();
    for (number, register) in store.program().registers.iter().enumerate() {
        let id = RegisterId(number as u32);
        for index in 0..externs.register_size(id) {
            let value = externs.register_read(id, index).unwrap_or_default();
            if value.iter().any(|byte| *byte != 0) {
                let name = register.name.clone();
                let content = Content::Register(value.to_vec());
                cells.push(Cell {
                    name,
                    index,
                    content,
                });
            }
        }
    }
}

fn colors(meter: &Meter) -> [(u64, u64); 3] {
    meter.colors().each_ref().map(|cell| cell.get())
}
