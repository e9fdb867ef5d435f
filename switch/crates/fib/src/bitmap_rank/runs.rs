// SPDX-License-Identifier: Apache-2.0
//! A chunk in unpacked form: 256 positions that are divided into runs. All positions of a run have the same item.

use crate::lookup_item::LookupItem;

/// Number of positions of a chunk.
pub(super) const POSITIONS: usize = 256;

/// A bitmap of the positions that start a run, and the item of each run. Position 0 always starts a run, so the bitmap
/// leaves it out.
#[derive(Clone, Debug)]
pub(super) struct Runs<I> {
    pub(super) starts: [u64; 4],
    pub(super) items: Vec<I>,
}

impl<I> Default for Runs<I> {
    fn default() -> Self {
        Self {
            starts: [0; 4],
            items: Vec::new(),
        }
    }
}

impl<I: LookupItem> Runs<I> {
    /// Returns a single run of all positions.
    pub(super) fn of(item: I) -> Self {
        Self {
            starts: [0; 4],
            items: vec![item],
        }
    }

    pub(super) fn clear(&mut self) {
        self.starts = [0; 4];
        self.items.clear();
    }

    /// Returns the index of the run that contains a position.
    #[inline]
    pub(super) fn run_of(&self, position: usize) -> usize {
        let (word, bit) = (position / 64, position % 64);
        let before: u32 = self.starts[..word].iter().map(|w| w.count_ones()).sum();
        (before + (self.starts[word] << (63 - bit)).count_ones()) as usize
    }

    /// Returns the items of the runs that contain the positions `from..to`.
    pub(super) fn items_between(&self, from: usize, to: usize) -> &[I] {
        &self.items[self.run_of(from)..=self.run_of(to - 1)]
    }

    /// Appends a run at `position`. If the last run has the same item, extends the last run instead.
    #[inline]
    pub(super) fn push(&mut self, position: usize, item: I) {
        match self.items.last() {
            None => debug_assert_eq!(position, 0),
            Some(last) if *last == item => return,
            Some(_) => self.starts[position / 64] |= 1 << (position % 64),
        }
        self.items.push(item);
    }

    /// Replaces the contents of the positions `from..to` by `others`, and writes the result to `made`. `others` are
    /// pairs of position and item. The first pair has the position `from`.
    pub(super) fn replace(
        &mut self,
        from: usize,
        to: usize,
        others: &[(usize, I)],
        made: &mut Self,
    ) {
        made.clear();
        if from > 0 {
            // Keeps the runs before `from`.
            let kept = self.run_of(from - 1) + 1;
            made.items.extend_from_slice(&self.items[..kept]);
            made.starts = masked(&self.starts, 0, from);
        }
        for (position, item) in others {
            made.push(*position, *item);
        }
        if to < POSITIONS {
            let run = self.run_of(to);
            made.push(to, self.items[run]);
            made.items.extend_from_slice(&self.items[run + 1..]);
            let after = masked(&self.starts, to + 1, POSITIONS);
            for (word, after) in made.starts.iter_mut().zip(after) {
                *word |= after;
            }
        }
    }
}

/// Returns the bits `from..to` of a bitmap. All other bits are 0.
fn masked(bits: &[u64; 4], from: usize, to: usize) -> [u64; 4] {
    let below = |end: usize, word: usize| match end.saturating_sub(word * 64) {
        0 => 0,
        count if count >= 64 => u64::MAX,
        count => (1 << count) - 1,
    };
    std::array::from_fn(|word| bits[word] & below(to, word) & !below(from, word))
}
