// SPDX-License-Identifier: Apache-2.0
//! The lines of a trie: runs of a power of two of them, given out and taken back.

use super::line::{Array, Line};

/// A growing store of lines with a free list for each size of run.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    lines: Vec<Line>,
    free: Vec<Vec<u32>>,
}

impl Pool {
    /// The lines, those not in use included.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// A line in use.
    pub(super) fn line(&self, index: usize) -> &Line {
        &self.lines[index]
    }

    /// Overwrites a line in use.
    pub(super) fn set(&mut self, index: usize, line: Line) {
        self.lines[index] = line;
    }

    /// Takes `1 << bits` consecutive lines; `None` if the trie is full. Their contents are
    /// whatever they were; the caller sets all of them.
    pub(super) fn take(&mut self, bits: u32) -> Option<u32> {
        if let Some(base) = self.free.get_mut(bits as usize).and_then(Vec::pop) {
            return Some(base);
        }
        let base = self.lines.len();
        let end = base + (1 << bits);
        if end > Array::MAX_LINES {
            return None;
        }
        if end > self.lines.capacity() {
            // An eighth in advance: look-ups gain nothing from what is not used.
            let advance = (self.lines.len() / 8).max(1 << bits);
            self.lines.reserve_exact(advance);
        }
        self.lines.resize(end, Line::EMPTY);
        Some(base as u32)
    }

    /// Gives `1 << bits` lines back.
    pub(super) fn give(&mut self, base: u32, bits: u32) {
        let class = bits as usize;
        if self.free.len() <= class {
            self.free.resize(class + 1, Vec::new());
        }
        self.free[class].push(base);
    }

    /// Gives back spare capacity of the store.
    pub(super) fn shrink(&mut self) {
        self.lines.shrink_to_fit();
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let runs: usize = self.free.iter().map(Vec::capacity).sum();
        self.lines.capacity() * size_of::<Line>() + runs * size_of::<u32>()
    }
}

#[cfg(test)]
impl Pool {
    /// Which lines are free.
    pub(super) fn free_lines(&self) -> impl Iterator<Item = usize> + '_ {
        let runs = self.free.iter().enumerate();
        runs.flat_map(|(bits, runs)| {
            let lines = move |&base: &u32| base as usize..base as usize + (1 << bits);
            runs.iter().flat_map(lines)
        })
    }
}
