// SPDX-License-Identifier: Apache-2.0
//! Indirect counters, meters and registers: arrays that packets and the control plane share.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use sluice_program::{CounterId, MeterId, Program, RegisterId};

use crate::counter::CounterCell;
use crate::error::Result;
use crate::meter::Meter;
use crate::model::Value;
use crate::value;

/// A register array. A cell is `words` 64-bit words, most significant first. Code must hold the array's lock while it
/// reads a cell and then writes it back, and for every access to a cell of several words.
struct RegisterArray {
    width: u16,
    words: usize,
    cells: Vec<AtomicU64>,
    lock: RawMutex,
}

impl fmt::Debug for RegisterArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "bit<{}> register of {} words",
            self.width,
            self.cells.len()
        )
    }
}

/// Lock on register arrays, held by one action or by the control plane. Unlocks them when dropped.
pub struct HeldRegisters<'a> {
    arrays: &'a [RegisterArray],
    held: &'a [RegisterId],
}

impl Drop for HeldRegisters<'_> {
    fn drop(&mut self) {
        for id in self.held {
            // SAFETY: `Externs::hold_registers` locked each of these arrays, for this value alone.
            unsafe { self.arrays[id.index()].lock.unlock() };
        }
    }
}

impl RegisterArray {
    fn cell(&self, index: usize) -> Option<&[AtomicU64]> {
        let start = index.checked_mul(self.words)?;
        self.cells.get(start..start.checked_add(self.words)?)
    }
}

/// All counters, meters and registers of a program. Direct counters and meters are stored in their entries instead.
#[derive(Debug)]
pub struct Externs {
    /// Cells of all counters, in the order of the program.
    counters: Vec<CounterCell>,
    /// Range of each counter's cells in `counters`.
    counter_cells: Vec<Range<usize>>,
    meters: Vec<Vec<Meter>>,
    registers: Vec<RegisterArray>,
}

fn zeroed<T: Default>(size: usize) -> Vec<T> {
    std::iter::repeat_with(T::default).take(size).collect()
}

impl Externs {
    /// Creates all arrays. Cells are zero, and meters are not configured.
    pub fn new(program: &Program) -> Self {
        let counters = (0..program.counters.len()).map(|index| CounterId(index as u32));
        let counter_cells: Vec<_> = counters.map(|id| Self::cells_of(program, id)).collect();
        Self {
            counters: zeroed(counter_cells.last().map_or(0, |last| last.end)),
            counter_cells,
            meters: program
                .meters
                .iter()
                .map(|meter| zeroed(meter.size))
                .collect(),
            registers: program
                .registers
                .iter()
                .map(|register| {
                    let words = usize::from(register.width).div_ceil(64);
                    let cells = zeroed(register.size * words);
                    RegisterArray {
                        width: register.width,
                        words,
                        cells,
                        lock: RawMutex::INIT,
                    }
                })
                .collect(),
        }
    }

    /// Returns the range of a counter's cells in [`all_counters`](Self::all_counters).
    pub fn cells_of(program: &Program, id: CounterId) -> Range<usize> {
        let sizes = program.counters.iter().map(|counter| counter.size);
        let start = sizes.clone().take(id.index()).sum();
        start..start + program.counter(id).size
    }

    /// Returns the cells of all counters. Their addresses do not change.
    #[inline]
    pub fn all_counters(&self) -> &[CounterCell] {
        &self.counters
    }

    /// Returns a counter cell, or `None` if `index` is beyond the array.
    #[inline]
    pub fn counter(&self, id: CounterId, index: usize) -> Option<&CounterCell> {
        self.counters[self.counter_cells[id.index()].clone()].get(index)
    }

    /// Returns a meter cell, or `None` if `index` is beyond the array.
    #[inline]
    pub fn meter(&self, id: MeterId, index: usize) -> Option<&Meter> {
        self.meters[id.index()].get(index)
    }

    /// Locks register arrays. Order: the ids must be ascending, to avoid deadlocks. v1model runs each action that uses
    /// registers atomically. So an action holds the locks of its arrays from its first operation to its last operation,
    /// and other workers and the control plane never see an action half done.
    ///
    /// # Panics
    /// In debug builds, panics if the arrays are not in ascending order.
    pub fn hold_registers<'a>(&'a self, ids: &'a [RegisterId]) -> HeldRegisters<'a> {
        debug_assert!(ids.is_sorted_by(|a, b| a.index() < b.index()));
        for id in ids {
            self.registers[id.index()].lock.lock();
        }
        HeldRegisters {
            arrays: &self.registers,
            held: ids,
        }
    }

    /// Releases locks that [`Self::hold_registers`] took. Needed when the guard was forgotten with `mem::forget`,
    /// because then no destructor releases them.
    ///
    /// # Safety
    /// The caller must hold the lock of each of these arrays. It no longer holds these locks after this call.
    pub unsafe fn release_registers(&self, ids: &[RegisterId]) {
        drop(HeldRegisters {
            arrays: &self.registers,
            held: ids,
        });
    }

    /// Returns the 64-bit words of a register cell, most significant first, or `None` if `index` is beyond the array.
    #[inline]
    pub fn register(&self, id: RegisterId, index: usize) -> Option<&[AtomicU64]> {
        self.registers[id.index()].cell(index)
    }

    /// Returns a register cell's value in the shortest form, or `None` if `index` is beyond the array.
    pub fn register_read(&self, id: RegisterId, index: usize) -> Option<Value> {
        let held = [id];
        let _held = self.hold_registers(&held);
        let words: Vec<u64> = self
            .register(id, index)?
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        Some(value::from_words(&words))
    }

    /// Writes a register cell. Returns `Ok(false)` if `index` is beyond the array.
    ///
    /// # Errors
    /// `OutOfRange` if the value is empty or does not fit in a cell.
    pub fn register_write(&self, id: RegisterId, index: usize, value: &[u8]) -> Result<bool> {
        let mut words = Vec::new();
        value::append_words(
            &mut words,
            value,
            self.registers[id.index()].width,
            &"register cell",
        )?;
        let held = [id];
        let _held = self.hold_registers(&held);
        let Some(cell) = self.register(id, index) else {
            return Ok(false);
        };
        for (to, from) in cell.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Returns the number of cells of an indirect counter.
    pub fn counter_size(&self, id: CounterId) -> usize {
        self.counter_cells[id.index()].len()
    }

    /// Returns the number of cells of an indirect meter.
    pub fn meter_size(&self, id: MeterId) -> usize {
        self.meters[id.index()].len()
    }

    /// Returns the number of cells of a register.
    pub fn register_size(&self, id: RegisterId) -> usize {
        let array = &self.registers[id.index()];
        array.cells.len() / array.words
    }
}
