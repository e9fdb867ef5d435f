// SPDX-License-Identifier: Apache-2.0
//! Allocator for the lines of all trees, in runs of one to sixteen.

use sluice_pages::Items;

use super::build::Full;
use super::line::{FANOUT, Line};

/// Growing vector of lines, with a free list for each length of run.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    lines: Items<Line>,
    free: [Vec<u32>; FANOUT],
}

impl Pool {
    /// Most lines: indices must fit.
    const MOST: usize = 1 << 31;

    /// Returns all lines, including those not in use.
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

    /// Allocates a run of lines. Their contents are unspecified, so the caller must set all of them.
    pub(super) fn take(&mut self, count: usize) -> Result<u32, Full> {
        if let Some(first) = self.free[count - 1].pop() {
            return Ok(first);
        }
        let (first, end) = (self.lines.len(), self.lines.len() + count);
        if end > Self::MOST {
            return Err(Full);
        }
        if end > self.lines.capacity() {
            // Grows by an eighth. More would only be unused memory.
            self.lines.reserve(first + (first / 8).max(count));
        }
        self.lines.resize(end, Line::EMPTY);
        Ok(first as u32)
    }

    /// Frees a run.
    pub(super) fn give(&mut self, first: u32, count: usize) {
        self.free[count - 1].push(first);
    }

    /// Releases unused capacity.
    pub(super) fn shrink(&mut self) {
        self.lines.shrink();
    }

    /// Returns the bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let runs: usize = self.free.iter().map(Vec::capacity).sum();
        self.lines.memory_bytes() + runs * size_of::<u32>()
    }
}

#[cfg(test)]
impl Pool {
    /// Returns the number of lines in use.
    pub(super) fn used(&self) -> usize {
        let free = self.free.iter().enumerate();
        let free: usize = free.map(|(class, runs)| (class + 1) * runs.len()).sum();
        self.lines.len() - free
    }
}
