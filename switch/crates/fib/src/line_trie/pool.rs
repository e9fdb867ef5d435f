// SPDX-License-Identifier: Apache-2.0
//! The lines of a trie: runs of a power of two of them, given out and taken back; and the slots that
//! narrow lines have no room for.

use super::build::{Intervals, Region};
use super::line::{Array, Form, Line, Narrow, ShortSlot, Slot, Wide};

/// A growing store of lines with a free list for each size of run.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    lines: Vec<Line>,
    free: Vec<Vec<u32>>,
    /// What the slots of narrow lines mean that do not end the search.
    escapes: Vec<Slot>,
    free_escapes: Vec<u16>,
}

impl Pool {
    /// The lines, those not in use included.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The slots that narrow lines refer to.
    #[inline(always)]
    pub(super) fn escapes(&self) -> &[Slot] {
        &self.escapes
    }

    /// The intervals of a line in use, whose region is `region`.
    pub(super) fn load(&self, index: usize, form: Form, region: Region) -> Intervals {
        let line = &self.lines[index];
        match form {
            Form::Wide => line.wide().intervals().collect(),
            Form::Narrow => {
                let high = region.first & !0xffff;
                let slot = |short: ShortSlot| match short.escaped() {
                    Some(index) => self.escapes[index],
                    None => short.widened(),
                };
                let held = line.narrow().intervals();
                held.map(|(start, short)| (high | u32::from(start), slot(short)))
                    .collect()
            }
        }
    }

    /// Whether a line can hold these intervals besides others that need `more` escapes; if not, a
    /// wide one can.
    pub(super) fn suits(&self, form: Form, intervals: &[(u32, Slot)], more: usize) -> bool {
        let used = self.escapes.len() - self.free_escapes.len();
        let suits = |slot: Slot| !slot.is_final() || ShortSlot::of(slot).is_some();
        form == Form::Wide
            || used + intervals.len() + more < ShortSlot::MAX_ESCAPES
                && intervals.iter().all(|&(_, slot)| suits(slot))
    }

    /// Writes one to `form.ways()` intervals, which [`suits`](Self::suits) has found to fit, into a
    /// line whose contents have been cleared.
    pub(super) fn set(&mut self, index: usize, form: Form, intervals: &[(u32, Slot)]) {
        self.lines[index] = match form {
            Form::Wide => Wide::new(intervals).into(),
            Form::Narrow => {
                let short = |&(start, slot)| (start, self.short(slot));
                let held: Vec<_> = intervals.iter().map(short).collect();
                Narrow::new(&held).into()
            }
        };
    }

    fn short(&mut self, slot: Slot) -> ShortSlot {
        if slot.is_final() {
            return ShortSlot::of(slot).expect("the line suits the slot");
        }
        let index = match self.free_escapes.pop() {
            Some(index) => usize::from(index),
            None => {
                self.escapes.push(slot);
                self.escapes.len() - 1
            }
        };
        self.escapes[index] = slot;
        ShortSlot::escape(index)
    }

    /// Clears a line in use, before it is given back or written to again.
    pub(super) fn clear(&mut self, index: usize, form: Form) {
        if form == Form::Narrow {
            let held = self.lines[index].narrow().intervals();
            let escapes = held.filter_map(|(_, short)| short.escaped());
            self.free_escapes.extend(escapes.map(|index| index as u16));
        }
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
        self.lines.capacity() * size_of::<Line>()
            + runs * size_of::<u32>()
            + self.escapes.capacity() * size_of::<Slot>()
            + self.free_escapes.capacity() * size_of::<u16>()
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

    /// Number of escapes in use.
    pub(super) fn escapes_in_use(&self) -> usize {
        self.escapes.len() - self.free_escapes.len()
    }
}
