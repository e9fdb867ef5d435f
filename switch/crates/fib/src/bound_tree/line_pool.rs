// SPDX-License-Identifier: Apache-2.0
//! Allocator for the lines of all trees. It allocates runs of one to sixteen lines.

use sluice_pages::PageVec;

use super::line::{FANOUT, Line};

/// Error: the structure has no room for more lines or references.
#[derive(Debug)]
pub(super) struct Full;

/// Growing vector of lines, with a free list for each run length.
#[derive(Clone, Debug, Default)]
pub(super) struct LinePool {
    lines: PageVec<Line>,
    free: [Vec<u32>; FANOUT],
}

impl LinePool {
    /// Maximum number of lines that an index can address.
    const MOST: usize = 1 << 31;

    /// Returns all lines, including unused ones.
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

    /// Allocates a run of lines. The contents are unspecified, so the caller must write all lines of the run.
    pub(super) fn take(&mut self, count: usize) -> Result<u32, Full> {
        if let Some(first) = self.free[count - 1].pop() {
            return Ok(first);
        }
        let (first, end) = (self.lines.len(), self.lines.len() + count);
        if end > Self::MOST {
            return Err(Full);
        }
        if end > self.lines.capacity() {
            // Grows by an eighth. Larger steps would leave more memory unused.
            self.lines.reserve(first + (first / 8).max(count));
        }
        self.lines.resize(end, Line::EMPTY);
        Ok(first as u32)
    }

    /// Frees a run of lines.
    pub(super) fn give(&mut self, first: u32, count: usize) {
        self.free[count - 1].push(first);
    }

    /// Releases unused capacity.
    pub(super) fn shrink(&mut self) {
        self.lines.shrink();
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let runs: usize = self.free.iter().map(Vec::capacity).sum();
        self.lines.memory_bytes() + runs * size_of::<u32>()
    }
}

#[cfg(test)]
impl LinePool {
    /// Returns the number of lines in use.
    pub(super) fn used(&self) -> usize {
        let free = self.free.iter().enumerate();
        let free: usize = free.map(|(class, runs)| (class + 1) * runs.len()).sum();
        self.lines.len() - free
    }
}
