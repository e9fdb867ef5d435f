// SPDX-License-Identifier: Apache-2.0
//! The lines of all trees: runs of one to sixteen of them, given out and taken back.

use sluice_pages::Items;

use super::build::Full;
use super::line::{FANOUT, Line};

/// A growing store of lines, with a list of free runs for each length.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    lines: Items<Line>,
    free: [Vec<u32>; FANOUT],
}

impl Pool {
    /// Lines that can be numbered.
    const MOST: usize = 1 << 31;

    /// The lines, those not in use included.
    #[inline(always)]
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(super) fn get(&self, index: u32) -> &Line {
        &self.lines[index as usize]
    }

    pub(super) fn set(&mut self, index: u32, line: Line) {
        self.lines[index as usize] = line;
    }

    /// Takes a run of lines, which are whatever they were: the caller sets all of them.
    pub(super) fn take(&mut self, count: usize) -> Result<u32, Full> {
        if let Some(first) = self.free[count - 1].pop() {
            return Ok(first);
        }
        let (first, end) = (self.lines.len(), self.lines.len() + count);
        if end > Self::MOST {
            return Err(Full);
        }
        if end > self.lines.capacity() {
            // An eighth in advance: look-ups gain nothing from what is not used.
            self.lines.reserve(first + (first / 8).max(count));
        }
        self.lines.resize(end, Line::EMPTY);
        Ok(first as u32)
    }

    /// Gives a run back.
    pub(super) fn give(&mut self, first: u32, count: usize) {
        self.free[count - 1].push(first);
    }

    /// Gives back spare capacity of the store.
    pub(super) fn shrink(&mut self) {
        self.lines.shrink();
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let runs: usize = self.free.iter().map(Vec::capacity).sum();
        self.lines.memory_bytes() + runs * size_of::<u32>()
    }
}

#[cfg(test)]
impl Pool {
    /// How many lines are in use.
    pub(super) fn used(&self) -> usize {
        let free = self.free.iter().enumerate();
        let free: usize = free.map(|(class, runs)| (class + 1) * runs.len()).sum();
        self.lines.len() - free
    }
}
