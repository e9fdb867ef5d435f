// SPDX-License-Identifier: Apache-2.0
//! Provides the memory of a tree: blocks of whole cache lines in one vector. A block is identified by the number of its
//! first line. A freed block is reused for a new block of the same size class.

/// Number of words in a cache line.
pub(crate) const LINE: usize = 8;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; LINE]);

/// Allocator of blocks of lines. Line 0 belongs to no block.
#[derive(Debug)]
pub(crate) struct Arena {
    lines: Vec<Line>,
    /// First line of the next new block.
    end: usize,
    /// Freed blocks, by size class.
    free: Vec<Vec<u32>>,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self {
            lines: vec![Line([0; LINE]); 1],
            end: 1,
            free: Vec::new(),
        }
    }

    /// Returns the size class and the number of lines of a block for `words` words. Up to 64 lines, a block has as many
    /// lines as it needs. A larger block has a power of two of lines.
    fn size(words: usize) -> (usize, usize) {
        let lines = words.div_ceil(LINE).max(1);
        if lines <= 64 {
            (lines, lines)
        } else {
            let power = lines.next_power_of_two();
            (64 + power.ilog2() as usize, power)
        }
    }

    /// Allocates a block of at least `words` words, all 0.
    ///
    /// # Panics
    /// Panics if the arena would exceed 2^31 lines, which are 128 GiB.
    pub(crate) fn allocate(&mut self, words: usize) -> u32 {
        let (class, lines) = Self::size(words);
        if let Some(block) = self.free.get_mut(class).and_then(Vec::pop) {
            self.words_mut(block, lines * LINE).fill(0);
            return block;
        }
        let block = self.end;
        self.end += lines;
        if self.end > self.lines.len() {
            self.lines.resize(self.end, Line([0; LINE]));
        }
        assert!(self.end < 1 << 31, "a tree has fewer than 2^31 lines");
        block as u32
    }

    /// Frees a block that was allocated for `words` words.
    pub(crate) fn release(&mut self, block: u32, words: usize) {
        let (class, _) = Self::size(words);
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(block);
    }

    /// Returns the first `count` words of a block.
    pub(crate) fn words(&self, block: u32, count: usize) -> &[u64] {
        let start = block as usize * LINE;
        &self.flat()[start..start + count]
    }

    /// Returns the first `count` words of a block for writing.
    pub(crate) fn words_mut(&mut self, block: u32, count: usize) -> &mut [u64] {
        let start = block as usize * LINE;
        let lines = self.lines.len() * LINE;
        // SAFETY: a `Line` is `repr(C)` and holds eight words. The size of a `Line` equals its alignment, so adjacent
        // lines are adjacent words. The slice borrows `self.lines`.
        let flat = unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), lines) };
        &mut flat[start..start + count]
    }

    /// Returns all words. Block `b` begins at word `b * LINE`.
    pub(crate) fn flat(&self) -> &[u64] {
        // SAFETY: as in `words_mut`.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * LINE) }
    }

    /// Returns the number of allocated bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_is_used_again_for_its_size_and_comes_back_empty() {
        let mut arena = Arena::new();
        let (small, large) = (arena.allocate(7), arena.allocate(70 * LINE));
        assert_ne!(small, 0);
        arena.words_mut(small, 8).fill(9);
        arena.release(small, 8);
        assert_ne!(arena.allocate(9), small);
        assert_eq!(arena.allocate(1), small);
        assert_eq!(arena.words(small, 8), [0; 8]);
        arena.release(large, 70 * LINE);
        assert_eq!(arena.allocate(128 * LINE), large);
    }

    #[test]
    fn blocks_do_not_overlap() {
        let mut arena = Arena::new();
        let blocks: Vec<(u32, usize)> = (1..200).map(|n| (arena.allocate(n * 3), n * 3)).collect();
        for (block, words) in &blocks {
            arena.words_mut(*block, *words).fill(u64::from(*block));
        }
        for (block, words) in &blocks {
            assert!(
                arena
                    .words(*block, *words)
                    .iter()
                    .all(|word| *word == u64::from(*block))
            );
        }
    }
}
